"""The verbs ``pretrain`` and ``train``: one run from a preset.

May import: boolattn.training.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

PresetName = Annotated[str, typer.Option(help="A preset's name, or a TOML file.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one number.")
]
Out = Annotated[Path, typer.Option(help="The run's folder.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that stopped.")]


def pretrain(
    out: Out, preset: PresetName = "demo", changes: Changes = None, *, resume: Resume = False
) -> None:
    """Teach a plug-in its cues, gates and scopes on generated sentences."""
    _prepare()
    from boolattn.training import launch
    from boolattn.training.preset_files import load_preset

    chosen = load_preset(preset, changes or [], first="pretrain")
    metrics = launch.pretrain(chosen, launch.Launch(out=out, resume=resume))
    typer.echo(json.dumps({"model": str(out / "model"), **metrics}, indent=2))


def train(  # noqa: PLR0913 - options of a command line
    out: Out,
    preset: PresetName = "demo",
    changes: Changes = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data set.")] = None,
    pretrained: Annotated[
        Path | None, typer.Option(help="Model folder of a pretraining, or of a training.")
    ] = None,
    rankings: Annotated[
        Path | None,
        typer.Option(help="TREC run of the training queries, for n_bm25 negatives."),
    ] = None,
    *,
    resume: Resume = False,
) -> None:
    """Train two towers for retrieval."""
    _prepare()
    from boolattn.training import launch
    from boolattn.training.preset_files import load_preset

    where = launch.Launch(
        out=out,
        data=data,
        pretrained=pretrained,
        rankings=rankings,
        resume=resume,
        show_progress=sys.stderr.isatty(),
    )
    result = launch.train(load_preset(preset, changes or []), where)
    summary = {"model": str(result.model), "steps": result.n_steps, **result.metrics}
    typer.echo(json.dumps(summary, indent=2))


def _prepare() -> None:
    """Send what the training tells to stderr, and the libraries' own bars nowhere."""
    from transformers.utils.logging import disable_progress_bar

    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for name in ("httpx", "sentence_transformers", "transformers", "accelerate"):
        logging.getLogger(name).setLevel(logging.WARNING)
    disable_progress_bar()
