"""The verbs ``pretrain``, ``train``, ``average`` and ``export`` (to ONNX)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from boolattn.cli.output import AsJson, console, note, print_json, quiet_libraries
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
    *,
    resume: Resume = False,
) -> None:
    """Train a two-tower model for retrieval."""
    files = {"data": data, "pretrained": pretrained, "rankings": rankings}
    _run("train", preset, changes, out=out, resume=resume, **files)


def average(
    base: Annotated[str, Argument(help="Folder of the encoder that the model began with.")],
    model: Annotated[Path, Argument(help="Folder of the trained model.")],
    out: Annotated[Path, Option(help="The model folder to write.")],
    share: Annotated[float, Option(min=0, help="Share of the trained weights.")] = 0.5,
) -> None:
    """Average the weights of a trained model with those of the encoder it began with."""
    from boolattn.encoders.models import require_torch

    require_torch("average")
    from boolattn.encoder.tower_storage import Card, save_towers
    from boolattn.training.towers import average as averaged

    quiet_libraries()
    card = Card(base=Path(base).name, command=shlex.join(["boolattn", *sys.argv[1:]]))
    save_towers(averaged(base, model, share), out, card=card)
    note(f"wrote {out}")


def export(
    model: Annotated[Path, Argument(help="Folder of a trained or sentence-transformers model.")],
    out: Annotated[Path, Argument(help="The folder to write.")],
    float32: Annotated[bool, Option("--float32", help="Do not round the weights.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a model for onnxruntime, which needs no PyTorch, and compare the two."""
    if not (model / "modules.json").is_file():
        raise MissingDataError(f"{model} holds no modules.json; give the folder of a trained model")
    from boolattn.encoders.models import require_torch

    require_torch("export")
    from rich.table import Table

    from boolattn.encoder.export.folder import export_model

    quiet_libraries()
    manifest = export_model(model, out, int8=not float32, log=note)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if as_json:
        print_json({"folder": str(out), "bytes": size, **manifest.agreement})
        return
    table = Table("agreement with torch", "", box=None)
    for name, value in manifest.agreement.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}")
    console().print(table)
    note(f"{out}: {size / 1e6:.1f} MB")


def checksums(folder: Annotated[Path, Argument(help="Folder of a model for PyTorch.")]) -> None:
    """Recompute a model's checksums, after you changed its files."""
    from boolattn.checksums import SUMS, write_sums

    if not folder.is_dir():
        raise MissingDataError(f"there is no folder {folder}")
    write_sums(folder)
    note(f"wrote {folder / SUMS}")


def _run(verb: str, preset: str, changes: list[str] | None, **options: Any) -> None:
    quiet_libraries(log_format="%(message)s")
    from boolattn.training.launch import Launch, run_command

    command = shlex.join(["boolattn", *sys.argv[1:]])
    launch = Launch(**options, command=command)
    print_json(run_command(verb, preset, changes or [], launch), indent=2)
