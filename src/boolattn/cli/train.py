"""The verbs ``pretrain``, ``train``, ``average`` and ``export`` (to ONNX)."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click
from click import argument, option

from boolattn.cli.output import joined, json_option, note, print_json, quiet_libraries
from boolattn.errors import MissingDataError

run_options = joined(
    option("--out", type=Path, required=True, help="Folder of the run."),
    option("--preset", default="demo", help="Name of a preset, or a TOML file."),
    option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting."),
    option("--data", type=Path, help="Folder of the data set, or of SetBERT's sentences."),
    option("--resume", is_flag=True, help="Continue a run that stopped."),
)


@click.command()
@run_options
def pretrain(**options: Any) -> None:
    """Pre-train a plug-in: its cues, gates and scopes; by default on generated sentences."""
    _run("pretrain", **options)


@click.command()
@run_options
@option("--pretrained", type=Path, help="Model folder to start from.")
@option("--rankings", type=Path, help="TREC run for n_bm25 negatives.")
def train(**options: Any) -> None:
    """Train a two-tower model for retrieval."""
    _run("train", **options)


@click.command()
@argument("base", help="Folder of the encoder that the model began with.")
@argument("model", type=Path, help="Folder of the trained model.")
@option("--out", type=Path, required=True, help="The model folder to write.")
@option("--share", default=0.5, type=click.FloatRange(0), help="Share of the trained weights.")
def average(base: str, model: Path, out: Path, share: float) -> None:
    """Average the weights of a trained model with those of the encoder it began with."""
    from boolattn.encoders.models import require_torch

    require_torch("average")
    from boolattn.encoder.tower_storage import Card, save_towers
    from boolattn.training.launch import average as averaged

    quiet_libraries()
    card = Card(base=Path(base).name, command=shlex.join(["boolattn", *sys.argv[1:]]))
    save_towers(averaged(base, model, share), out, card=card)
    note(f"wrote {out}")


@click.command()
@argument("model", type=Path, help="Folder of a trained or sentence-transformers model.")
@argument("out", type=Path, help="The folder to write.")
@option("--float32", is_flag=True, help="Do not round the weights.")
@json_option
def export(model: Path, out: Path, float32: bool, as_json: bool) -> None:
    """Write a model for onnxruntime, which needs no PyTorch, and compare the two."""
    if not (model / "modules.json").is_file():
        raise MissingDataError(f"{model} holds no modules.json; give the folder of a trained model")
    from boolattn.encoders.models import require_torch

    require_torch("export")
    from boolattn.encoder.export.folder import export_model

    quiet_libraries()
    manifest = export_model(model, out, int8=not float32, log=note)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if as_json:
        print_json({"folder": str(out), "bytes": size, **manifest.agreement})
        return
    for name, value in manifest.agreement.items():
        click.echo(f"agreement with torch: {name.replace('_', ' ')} {value:.4f}")
    note(f"{out}: {size / 1e6:.1f} MB")


@click.command()
@argument("folder", type=Path, help="Folder of a model for PyTorch.")
def checksums(folder: Path) -> None:
    """Recompute a model's checksums, after you changed its files."""
    from boolattn.checksums import SUMS, write_sums

    if not folder.is_dir():
        raise MissingDataError(f"there is no folder {folder}")
    write_sums(folder)
    note(f"wrote {folder / SUMS}")


def _run(verb: str, preset: str, changes: tuple[str, ...], **options: Any) -> None:
    quiet_libraries(log_format="%(message)s")
    from boolattn.training.launch import Launch, run_command

    command = shlex.join(["boolattn", *sys.argv[1:]])
    result = run_command(verb, preset, changes, Launch(**options, command=command))
    if os.environ.get("RANK", "0") == "0":  # the first process of several
        print_json(result, indent=2)
