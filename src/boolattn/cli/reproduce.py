"""The verb ``reproduce``: a table or figure of the paper, ours beside the paper's.

The table goes to stdout, progress to stderr. May import: boolattn.reproduction.
"""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class What(StrEnum):
    """What the paper shows."""

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
        str, typer.Option(help="How large: its data set, encoder and numbers.")
    ] = "demo",
    data: Annotated[Path | None, typer.Option(help="Folder of the data set.")] = None,
    encoder: Annotated[str, typer.Option(help="Folder of the preset's encoder.")] = "",
    seeds: Annotated[str, typer.Option(help="By commas; the paper's are 0,42,1234.")] = "0,42,1234",
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one number.")
    ] = None,
    start: Annotated[
        list[str] | None,
        typer.Option(metavar="SYSTEM=FOLDER", help="Model to go on from, for table2."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model of figure1; left out, the shipped one.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of each.")] = 2,
) -> None:
    """Run a table or figure of the paper at the size asked for, and lay ours beside it."""
    from boolattn.reproduction import reproduce as room

    if what is What.SIZES:
        typer.echo(room.count_sizes(out))
        return
    if what is What.FIGURE1:
        typer.echo(room.figure1(model, out))
        return
    from boolattn.reproduction.places import Places
    from boolattn.reproduction.running import Limits
    from boolattn.reproduction.systems import names_of, pairs, seeds_of

    size = room.Size(
        preset=preset,
        data=data,
        encoder=encoder,
        seeds=seeds_of(seeds),
        changes=changes or [],
        starts={name: Path(folder) for name, folder in pairs(start or [], ()).items()},
    )
    places = Places(
        runs=out / "runs",
        work=out / "work",
        made=out / "work" / "made",
        command=f"boolattn reproduce {what.value} --preset {preset} --seeds {names_of(seeds)}",
    )
    limits = Limits(n_workers=workers, n_threads=threads)
    begun = time.monotonic()
    typer.echo(room.reproduce(what.value, size, places, limits, tell=_tell))
    typer.echo(f"{time.monotonic() - begun:.0f} s; results are in {out}", err=True)


def _tell(line: str) -> None:
    typer.echo(line, err=True)
