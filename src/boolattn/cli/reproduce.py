"""The verb ``reproduce``: a table or figure of the paper, with our results beside the paper's."""

from __future__ import annotations

import shlex
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class What(StrEnum):
    """Tables and figures of the paper."""

    TABLE1 = "table1"
    TABLE2 = "table2"
    TABLE3 = "table3"
    TABLE4 = "table4"
    FIGURE1 = "figure1"
    FIGURE3 = "figure3"
    SIZES = "sizes"


def reproduce(  # noqa: PLR0913 - one parameter for each option
    what: Annotated[What, typer.Argument(help="A table or figure of the paper.")],
    out: Annotated[Path, typer.Option(help="Folder of runs and results.")] = Path("reproduced"),
    preset: Annotated[
        str, typer.Option(help="Preset: data set, encoder and settings; default: demo.")
    ] = "",
    data: Annotated[
        str, typer.Option(metavar="[NAME=]FOLDER", help="Data set, as in quest=FOLDER.")
    ] = "",
    encoder: Annotated[
        str, typer.Option(metavar="[NAME=]FOLDER", help="Encoder, as in bert-base=FOLDER.")
    ] = "",
    stored: Annotated[
        Path | None, typer.Option(help="Show the finished runs of this folder; run nothing.")
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Separated by commas; the paper's are 0,42,1234.")
    ] = "0,42,1234",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting.")
    ] = None,
    start: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SYSTEM=FOLDER", help="Model to continue from, for table2; may have {seed}."
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model of figure1; default: the shipped one.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Do the runs of a table or figure of the paper, and show our results beside the paper's."""
    from boolattn.reproduction import model_figures
    from boolattn.reproduction import reproduce as reproduction

    if model is not None and what is not What.FIGURE1:
        raise typer.BadParameter(f"--model is for figure1; leave it out for {what.value}")
    if what is What.SIZES:
        typer.echo(model_figures.count_sizes(out))
        return
    if what is What.FIGURE1:
        typer.echo(model_figures.figure1(model, out))
        return
    import torch

    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.systems import parse_seeds

    torch.set_num_threads(threads)
    request = reproduction.make_request(
        what.value,
        preset,
        data,
        encoder,
        seeds=parse_seeds(seeds),
        changes=changes or [],
        starts=dict(_start(one) for one in start or []),
    )
    if stored is not None:
        typer.echo(reproduction.show_stored(what.value, request, stored, out, _progress))
        return
    command = shlex.join(["boolattn", *sys.argv[1:]])
    # A later table may start from the models.
    paths = Paths(runs=out / "runs", work=out / "work", command=command, keep_models=True)
    started = time.monotonic()
    typer.echo(reproduction.reproduce(what.value, request, paths, _progress))
    typer.echo(f"{time.monotonic() - started:.0f} s; results are in {out}", err=True)


def _start(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--start takes SYSTEM=FOLDER, got {text!r}")
    return name, Path(folder)


def _progress(line: str) -> None:
    typer.echo(line, err=True)
