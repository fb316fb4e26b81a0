"""The verbs ``pretrain`` and ``train``: one run from a preset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from boolattn.cli.output import print_json, quiet_libraries

PresetName = Annotated[str, Option(help="Name of a preset, or a TOML file.")]
Changes = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")
]
Out = Annotated[Path, Option(help="Folder of the run.")]
Resume = Annotated[bool, Option("--resume", help="Continue a run that stopped.")]


def pretrain(
    out: Out, preset: PresetName = "demo", changes: Changes = None, *, resume: Resume = False
) -> None:
    """Pre-train a plug-in on generated sentences: its cues, gates and scopes."""
    quiet_libraries(log_format="%(message)s")
    from boolattn.training import launch
    from boolattn.training.preset_files import load_preset

    chosen = load_preset(preset, changes or [], first="pretrain")
    metrics = launch.pretrain(chosen, launch.Launch(out=out, resume=resume))
    print_json({"model": str(out / "model"), **metrics}, indent=2)


def train(  # noqa: PLR0913 - options of a command line
    out: Out,
    preset: PresetName = "demo",
    changes: Changes = None,
    data: Annotated[Path | None, Option(help="Folder of the data set.")] = None,
    pretrained: Annotated[Path | None, Option(help="Model folder to start from.")] = None,
    rankings: Annotated[Path | None, Option(help="TREC run for n_bm25 negatives.")] = None,
    *,
    resume: Resume = False,
) -> None:
    """Train a two-tower model for retrieval."""
    quiet_libraries(log_format="%(message)s")
    from boolattn.training import launch
    from boolattn.training.preset_files import load_preset

    options = launch.Launch(
        out=out,
        data=data,
        pretrained=pretrained,
        rankings=rankings,
        resume=resume,
        show_progress=sys.stderr.isatty(),
    )
    result = launch.train(load_preset(preset, changes or []), options)
    summary = {"model": str(result.model), "steps": result.n_steps, **result.metrics}
    print_json(summary, indent=2)
