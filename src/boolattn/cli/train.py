"""The verbs of models: pretrain, train, average, export (to ONNX); reproduce; and of data."""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click import argument, option

from boolattn.cli import joined, note, print_json, quiet_libraries
from boolattn.cli.explain import explain
from boolattn.errors import ConfigError, MissingDataError

#: A sentence like that of the paper's Figure 1.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"
TARGETS = ("table1", "table2", "table3", "table4", "figure1", "figure3")
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
    from boolattn.encoder.towers import Card, save_towers
    from boolattn.training.launch import average as averaged

    quiet_libraries()
    card = Card(base=Path(base).name, command=shlex.join(["boolattn", *sys.argv[1:]]))
    save_towers(averaged(base, model, share), out, card=card)
    note(f"wrote {out}")


@click.command()
@argument("model", type=Path, help="Folder of a trained or sentence-transformers model.")
@argument("out", type=Path, help="The folder to write.")
@option("--float32", is_flag=True, help="Do not round the weights.")
def export(model: Path, out: Path, float32: bool) -> None:
    """Write a model for onnxruntime, which needs no PyTorch, and compare the two."""
    if not (model / "modules.json").is_file():
        raise MissingDataError(f"{model} holds no modules.json; give the folder of a trained model")
    from boolattn.encoder.export.folder import export_model

    quiet_libraries()
    manifest = export_model(model, out, int8=not float32, log=note)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
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


@click.command()
@click.argument("target", type=click.Choice(TARGETS), help="A table or figure of the paper.")
@option("--out", type=Path, default=Path("reproduced"), help="Folder of runs and results.")
@option("--preset", help="Data set, encoder and settings; default: demo.")
@option("--data", help="Folder of the data set.")
@option("--encoder", help="Folder of the encoder.")
@option("--stored", type=Path, help="Show this folder's finished runs only.")
@option("--seeds", default="0,42,1234", help="Separated by commas; these are the paper's.")
@option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change one setting.")
@option("--start", multiple=True, help="SYSTEM=FOLDER: model that table2 continues, of {seed}.")
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


@click.group()
def data() -> None:
    """List and build data sets."""


@data.command("list")
def list_() -> None:
    """List the data sets, their sources and their licences."""
    from boolattn.data.catalog import CATALOG

    for name, entry in CATALOG.items():
        click.secho(name, bold=True)
        click.echo(f"  {entry['summary']} ({entry['source']})")
        click.echo(f"  {entry['size']} ({entry['licence']})")


@data.command()
@click.argument("name", help="A name that `boolattn data list` shows.")
@option("--from", "folder", type=Path, help="Folder with the data set's files.")
@option("--size", default="small", help="Size of a generated benchmark: small or full.")
@option("--seed", default=0, help="Random seed of generated data.")
@option("--out", type=Path, help="New folder or file to write.")
@option("-n", type=click.IntRange(1), default=10_000, help="Number of sentences.")
@option("--only", multiple=True, help="Domains to build; repeatable.")
def build(name: str, out: Path | None, n: int, only: tuple[str, ...], **options: Any) -> None:
    """Write a data set: a BEIR folder, taxa or domains with a manifest, sentences as JSON lines."""
    from boolattn.data import catalog
    from boolattn.data.beir import write_beir
    from boolattn.data.sentences import generate
    from boolattn.jsonl import write_jsonl

    only = only if name == "domains" else ()
    chosen = catalog.DataOptions(**options, only=only, tell=note)
    catalog.check_name(name)
    if name in ("taxa", "domains"):
        out = out or catalog.built_folder(name, chosen)
        catalog.build_benchmark(name, out, chosen)
    elif out is None:
        raise ConfigError(f"no output given for {name}: add --out FOLDER")
    elif name == "sentences":
        write_jsonl(out, map(asdict, generate(n, chosen.seed)))
    else:
        opened = catalog.open_dataset(name, chosen)
        write_beir(out, opened.documents, opened.splits)
    click.echo(str(out))


def _start(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise click.BadParameter(f"--start takes SYSTEM=FOLDER, got {text!r}")
    return name, Path(folder)


def _run(verb: str, preset: str, changes: tuple[str, ...], **options: Any) -> None:
    quiet_libraries(log_format="%(message)s")
    from boolattn.training import launch
    from boolattn.training.settings import load_preset

    run = launch.pretrain if verb == "pretrain" else launch.train
    where = launch.Launch(**options, command=shlex.join(["boolattn", *sys.argv[1:]]))
    metrics = run(load_preset(preset, changes, first=verb), where)
    if os.environ.get("RANK", "0") == "0":  # the first process of several
        print_json({"model": str(where.out / "model"), **metrics}, indent=2)
