"""The verb ``reproduce``: a table or figure of the paper, with our results beside the paper's."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from boolattn.cli.explain import explain
from boolattn.cli.output import note

#: A sentence like that of the paper's Figure 1.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"
Target = Literal["table1", "table2", "table3", "table4", "figure1", "figure3"]


def reproduce(  # noqa: PLR0913 - one parameter for each option
    target: Annotated[Target, Argument(help="A table or figure of the paper.")],
    out: Annotated[Path, Option(help="Folder of runs and results.")] = Path("reproduced"),
    preset: Annotated[str, Option(help="Data set, encoder and settings; default: demo.")] = "",
    data: Annotated[str, Option(metavar="[NAME=]FOLDER", help="As in quest=FOLDER.")] = "",
    encoder: Annotated[str, Option(metavar="[NAME=]FOLDER", help="As in bert-base=FOLDER.")] = "",
    stored: Annotated[Path | None, Option(help="Show this folder's finished runs only.")] = None,
    seeds: Annotated[str, Option(help="Separated by commas; these are the paper's.")] = "0,42,1234",
    changes: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change one setting.")
    ] = None,
    start: Annotated[
        list[str] | None,
        Option(metavar="SYSTEM=FOLDER", help="Model that table2 continues; may have {seed}."),
    ] = None,
    model: Annotated[Path | None, Option(help="Of figure1; default: the shipped one.")] = None,
    threads: Annotated[int, Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Do the runs of a table or figure of the paper, and show our results beside the paper's."""
    if model is not None and target != "figure1":
        raise typer.BadParameter(f"--model is for figure1; leave it out for {target}")
    if target == "figure1":
        explain(SENTENCE, model, figure=out / "figure1.png")
        return
    import torch

    from boolattn.reproduction import reproduce as reproduction
    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.systems import parse_seeds

    torch.set_num_threads(threads)
    request = reproduction.make_request(
        target,
        preset,
        data,
        encoder,
        seeds=parse_seeds(seeds),
        changes=changes or [],
        starts=dict(map(_start, start or [])),
    )
    command = shlex.join(["boolattn", *sys.argv[1:]])
    # A later table may start from the models.
    paths = Paths(runs=out / "runs", work=out / "work", command=command, keep_models=True)
    started = time.monotonic()
    typer.echo(reproduction.reproduce(target, request, paths, note, stored=stored))
    note(f"{time.monotonic() - started:.0f} s; results are in {out}")


def _start(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--start takes SYSTEM=FOLDER, got {text!r}")
    return name, Path(folder)
