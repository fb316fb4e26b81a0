"""The verbs ``pretrain`` and ``train``, one run from a preset, and ``export`` to ONNX."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from boolattn.cli.output import print_json, quiet_libraries
from boolattn.errors import MissingDataError

PresetName = Annotated[str, Option(help="Name of a preset, or a TOML file.")]
Changes = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")
]
Out = Annotated[Path, Option(help="Folder of the run.")]
Resume = Annotated[bool, Option("--resume", help="Continue a run that stopped.")]


def pretrain(
    out: Out,
    preset: PresetName = "demo",
    changes: Changes = None,
    data: Annotated[Path | None, Option(help="Folder of SetBERT's sentences.")] = None,
    *,
    resume: Resume = False,
) -> None:
    """Pre-train a plug-in: its cues, gates and scopes; by default on generated sentences."""
    _run("pretrain", preset, changes, out=out, data=data, resume=resume)


def train(  # noqa: PLR0913 - options of a command line
    out: Out,
    preset: PresetName = "demo",
    changes: Changes = None,
    data: Annotated[Path | None, Option(help="Folder of the data set.")] = None,
    pretrained: Annotated[Path | None, Option(help="Model folder to start from.")] = None,
    rankings: Annotated[Path | None, Option(help="TREC run for n_bm25 negatives.")] = None,
    parser_queries: Annotated[Path | None, Option(help="Labelled queries for the parser.")] = None,
    *,
    resume: Resume = False,
) -> None:
    """Train a two-tower model for retrieval."""
    files = {"data": data, "pretrained": pretrained, "rankings": rankings}
    _run("train", preset, changes, out=out, resume=resume, parser_queries=parser_queries, **files)


def export(
    model: Annotated[Path, Argument(help="Folder of a trained two-tower model.")],
    out: Annotated[Path, Argument(help="The ONNX file to write.")] = Path("query.onnx"),
) -> None:
    """Write the query tower of a model as ONNX, including its gate."""
    if not (model / "modules.json").is_file():
        raise MissingDataError(f"{model} holds no modules.json; give the folder of a trained model")
    from sentence_transformers import SentenceTransformer

    # Registers Bool-BERT with transformers, too.
    from boolattn.encoder.export import export_query_tower

    quiet_libraries()
    towers = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    typer.echo(export_query_tower(towers, out))


def _run(verb: str, preset: str, changes: list[str] | None, **options: Any) -> None:
    quiet_libraries(log_format="%(message)s")
    from boolattn.training.launch import Launch, run_command

    command = shlex.join(["boolattn", *sys.argv[1:]])
    launch = Launch(**options, show_progress=sys.stderr.isatty(), command=command)
    print_json(run_command(verb, preset, changes or [], launch), indent=2)
