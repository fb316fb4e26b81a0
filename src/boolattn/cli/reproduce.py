"""The verb ``reproduce``: a table or figure of the paper, with our results beside the paper's."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import click
from click import option

from boolattn.cli.explain import explain
from boolattn.cli.output import note

#: A sentence like that of the paper's Figure 1.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"
TARGETS = ("table1", "table2", "table3", "table4", "figure1", "figure3")


@click.command()
@click.argument("target", type=click.Choice(TARGETS), help="A table or figure of the paper.")
@option("--out", type=Path, default=Path("reproduced"), help="Folder of runs and results.")
@option("--preset", help="Data set, encoder and settings; default: demo.")
@option("--data", help="Folder of the data set.")
@option("--encoder", help="Folder of the encoder.")
@option("--stored", type=Path, help="Show this folder's finished runs only.")
@option("--seeds", default="0,42,1234", help="Separated by commas; these are the paper's.")
@option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change one setting.")
@option(
    "--start",
    multiple=True,
    metavar="SYSTEM=FOLDER",
    help="Model that table2 continues; may have {seed}.",
)
@option("--model", type=Path, help="Of figure1; default: the shipped one.")
@option("--threads", type=click.IntRange(1), default=2, help="CPU threads.")
def reproduce(target: str, out: Path, **options: Any) -> None:
    """Do the runs of a table or figure of the paper, and show our results beside the paper's."""
    model = options["model"]
    if model is not None and target != "figure1":
        raise click.BadParameter(f"--model is for figure1; leave it out for {target}")
    if target == "figure1":
        click.get_current_context().invoke(
            explain, text=SENTENCE, model=model, figure=out / "figure1.png"
        )
        return
    import torch

    from boolattn.reproduction import reproduce as reproduction
    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.runs import parse_seeds

    torch.set_num_threads(options["threads"])
    request = reproduction.make_request(
        target,
        *(options[name] or "" for name in ("preset", "data", "encoder")),
        seeds=parse_seeds(options["seeds"]),
        changes=options["changes"],
        starts=dict(map(_start, options["start"])),
    )
    command = shlex.join(["boolattn", *sys.argv[1:]])
    # A later table may start from the models.
    paths = Paths(runs=out / "runs", work=out / "work", command=command, keep_models=True)
    started = time.monotonic()
    click.echo(reproduction.reproduce(target, request, paths, note, stored=options["stored"]))
    note(f"{time.monotonic() - started:.0f} s; results are in {out}")


def _start(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise click.BadParameter(f"--start takes SYSTEM=FOLDER, got {text!r}")
    return name, Path(folder)
