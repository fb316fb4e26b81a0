"""Tables and figures of the paper: do their runs, and show our rows beside the paper's."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation import figures
from boolattn.evaluation.tables import markdown, short
from boolattn.files import atomic_file
from boolattn.reproduction.own_rows import (
    OURS,
    Reported,
    own_rows,
    reported_rows,
    stored_runs,
)
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.systems import paper_registry
from boolattn.training.preset_files import read_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.reproduction.own_rows import OwnRow
    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.systems import DatasetSpec

    Progress = Callable[[str], None]

#: A sentence like the paper's.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"
#: As transformers names them.
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
#: Each BERT with these sizes, and the paper's "approximately" so many millions of parameters.
_BERTS = {"base": ((768, 12, 12, 3072), 121.0), "large": ((1024, 24, 16, 4096), 378.0)}


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper: its columns and rows, and our systems for it."""

    name: str
    title: str
    on: str
    metrics: tuple[str, ...]
    systems: tuple[str, ...]
    against: Mapping[str, str]  # The system that each of ours is tested against
    rows: tuple[Reported, ...]


@lru_cache(maxsize=1)
def targets() -> dict[str, Target]:
    """Read ``paper.toml``."""
    text = files("boolattn.reproduction").joinpath("paper.toml").read_text("utf-8")
    found = {}
    for name, table in tomllib.loads(text).items():
        metrics = tuple(table["metrics"])
        rows = tuple(
            Reported(row["label"], row["who"], dict(zip(metrics, row["values"], strict=True)))
            for row in table["rows"]
        )
        systems, against = tuple(table["systems"]), table.get("against", {})
        found[name] = Target(name, table["title"], table["on"], metrics, systems, against, rows)
    return found


def reproduce(name: str, request: RunRequest, paths: Paths, progress: Progress) -> str:
    """Do the runs of a table or figure that are not finished; return it in Markdown.

    Writes ``<name>.json``, ``<name>.md`` and ``<name>.png`` beside the folder of runs.
    """
    from boolattn.reproduction.execution import run_all

    found = run_all(request, paths, progress)
    if not found:
        folder = paths.runs.parent / "failed"
        causes = sorted({path.read_text("utf-8").strip() for path in folder.rglob("*.txt")})
        raise MissingDataError(f"no run succeeded: {'; '.join(causes)} (see {folder})")
    own = own_rows(found, paths.runs, request.datasets[0])
    return _write_target(targets()[name], request, own, paths.runs.parent, progress)


def show_stored(name: str, request: RunRequest, folder: Path, out: Path, progress: Progress) -> str:
    """Return a table or figure of the finished runs below a folder; nothing is run."""
    found, missing = stored_runs(request, folder)
    key = f"{request.datasets[0]}/{request.encoders[0]}"
    if not found:
        raise MissingDataError(f"{folder} has no run of {name} in {key}")
    own = own_rows(found, folder, request.datasets[0])
    text = _write_target(targets()[name], request, own, out, progress)
    return text + (f"\n\nNot run: {'; '.join(missing)}." if missing else "")


def _write_target(
    target: Target, request: RunRequest, own: Sequence[OwnRow], out: Path, progress: Progress
) -> str:
    dataset = paper_registry().dataset(request.datasets[0])
    encoder = paper_registry().encoder(request.encoders[0]).label
    ours = reported_rows(own, target.metrics, target.against, dataset, encoder)
    rows, is_figure = [*target.rows, *ours], target.name == "figure3"
    body = _by_template(own) if is_figure else _rows_table(target, rows)
    text = f"**{target.title}**\n\n{body}\n\n{_note(target, dataset, ours)}"
    written = {"target": target.name, "title": target.title, "paper_on": target.on}
    plain = json.loads(json.dumps([asdict(row) for row in rows]), parse_constant=lambda _: None)
    written_text = json.dumps({**written, "rows": plain}, indent=1, ensure_ascii=False)
    _write(out / f"{target.name}.json", written_text)
    _write(out / f"{target.name}.md", text)
    try:
        if is_figure:
            last = own[-1].results.split
            drawn = [one for row in own if (one := row.results).split == last]
            figure = figures.by_template(drawn)
        else:
            bars = [(f"{r.label} ({r.note or r.who})", r.values, r.who == OURS) for r in rows]
            figure = figures.reported_rows(target.title, target.metrics, bars)
        figures.save(figure, out / f"{target.name}.png")
    except MissingDataError as error:
        progress(str(error))
    return text


def make_request(
    name: str, preset: str = "", data: str = "", encoder: str = "", **more: Any
) -> RunRequest:
    """Request the runs of a table.

    The preset names data set and encoder, ``data`` and ``encoder`` their folders. Without a
    preset ``NAME=FOLDER`` names both: the preset is the encoder's for that data set.
    """
    registry = paper_registry()
    dataset, folder = _named(data, registry.datasets)
    owner, source = _named(encoder, registry.encoders)
    if name == "table2" and not folder:
        raise MissingDataError(
            "BoolQuestions is missing: name a folder in BEIR's format with its training and "
            "test questions by --data (docs/reproduction.md says how)"
        )
    if preset or not (dataset or owner):
        preset = preset or "demo"
        own, other = _owners(name, preset)
        for option, given, there in (("data", dataset, own), ("encoder", owner, other)):
            if given not in ("", there):
                raise ConfigError(f"--{option} {given}=…: preset {preset} is for {there}")
        usual = str(read_preset(preset).get("model", {}).get("encoder", "minilm"))
        is_known = any(one.source == usual for one in registry.encoders.values())
        dataset, owner, source = own, other, source or ("" if is_known else usual)
    # The paper's.
    dataset, owner = dataset or "quest", owner or "bert-base"
    return RunRequest(
        systems=targets()[name].systems,
        datasets=[dataset],
        encoders=[owner],
        data={dataset: Path(folder)} if folder else {},
        preset=preset,
        sources={owner: source} if source else {},
        **more,
    )


def _owners(name: str, preset: str) -> tuple[str, str]:
    """Return the names of a preset's data set and encoder."""
    registry, values = paper_registry(), read_preset(preset)
    catalog = values.get("data", {}).get("name")
    questions = registry.dataset("boolquestions")
    known = [d.name for d in registry.datasets.values() if d.catalog == catalog and d != questions]
    if not known and name != "table2":
        raise ConfigError(f"preset {preset} is for {catalog!r}, which has no table")
    source = values.get("model", {}).get("encoder", "minilm")
    names = [one.name for one in registry.encoders.values() if one.source == source]
    return questions.name if name == "table2" else known[0], names[0] if names else "minilm"


def _named(text: str, known: Mapping[str, object]) -> tuple[str, str]:
    """Split ``NAME=FOLDER``; a folder alone has no name."""
    name, _, folder = text.partition("=")
    return (name, folder) if name in known and folder else ("", text)


def figure1(model: Path | None, out: Path, text: str = SENTENCE) -> str:
    """Draw the effect of BoolAttn on one sentence, which the paper's Figure 1 sketches."""
    from boolattn.encoders.models import shipped_model, torch_folder
    from boolattn.plugin.explain import explain

    home = torch_folder(model) if model else shipped_model()
    found = explain(*load_query_encoder(home), text)
    _write(out / "figure1.json", json.dumps(found.to_dict(), ensure_ascii=False))
    figures.save(found.figure(), out / "figure1.png")
    rows = []
    for row in found.rows():
        cues = [op.upper() for op, p in row["cue"].items() if p > 0.5]
        scopes = [op.upper() for op, p in row["scope"].items() if p > 0.5 and found.gate[op]]
        cells = (" ".join(operators) or "–" for operators in (cues, scopes))
        rows.append([row["token"], *cells, f"{100 * row['attention_change']:+.1f}%"])
    table = markdown(["token", "cue of", "in the scope of", "attention received"], rows)
    text = f"**Figure 1: attention changed by the operators**\n\n“{text}”\n\n{table}"
    _write(out / "figure1.md", text)
    return text


def load_query_encoder(home: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the encoder with BoolAttn, and its tokenizer, from a trained model or a pretraining."""
    from transformers import AutoModel, AutoTokenizer

    from boolattn.plugin import load

    is_towers = (home / "modules.json").is_file()
    encoder = AutoModel.from_pretrained(home, local_files_only=True) if is_towers else load(home)
    return encoder, AutoTokenizer.from_pretrained(home, local_files_only=True)


def sizes() -> list[dict[str, Any]]:
    """Count the parameters of BERT alone, with the plug-in, and with its light form."""
    import torch
    from transformers import AutoConfig, AutoModel

    from boolattn.attention.config import BoolAttnConfig
    from boolattn.plugin import attach

    found = []
    for name, (size, stated) in _BERTS.items():
        config = AutoConfig.for_model("bert", **dict(zip(_SIZES, size, strict=True)))
        for variant, rank in (("paper", None), ("corrected", None), ("corrected", 16)):
            with torch.device("meta"):
                encoder = AutoModel.from_config(config)
                alone = encoder.num_parameters()
                attach(encoder, BoolAttnConfig(variant=variant, gate="learned", rank=rank))
            total = encoder.num_parameters()
            found.append(
                {
                    "encoder": f"BERT-{name}",
                    "variant": variant + (f", rank {rank}" if rank else ""),
                    "encoder_millions": round(alone / 1e6, 1),
                    "total_millions": round(total / 1e6, 1),
                    "added_percent": round(100 * (total - alone) / alone, 1),
                    "paper_millions": stated if variant == "paper" else None,
                }
            )
    return found


def count_sizes(out: Path) -> str:
    """Show the numbers of parameters beside the paper's."""
    found = sizes()
    rows = []
    for row in found:
        stated = f"about {row['paper_millions']:.0f}M (paper)" if row["paper_millions"] else "–"
        sized = (f"{row['encoder_millions']}M", f"{row['total_millions']}M")
        rows.append([row["encoder"], row["variant"], *sized, f"{row['added_percent']}%", stated])
    heads = ["encoder", "BoolAttn", "encoder alone", "with BoolAttn", "added", "the paper says"]
    text = f"**Sizes**\n\n{markdown(heads, rows)}"
    _write(out / "sizes.json", json.dumps(found, indent=1))
    _write(out / "sizes.md", text)
    return text


def _rows_table(target: Target, rows: Sequence[Reported]) -> str:
    heads = [metric.replace("recall@", "R@").replace("mrr@10 ", "") for metric in target.metrics]
    cells = []
    for row in rows:
        values = map(row.cell, target.metrics)
        cells.append([row.label, row.who, *values, row.note or target.on])
    return markdown(["system", "source", *heads, "on"], cells)


def _by_template(own: Sequence[OwnRow], metric: str = "recall@100") -> str:
    rows = [
        [one.system, one.gate, one.split, f"`{name}`", str(group.n), short(group.means[metric])]
        for one in (row.results for row in own)
        for name, group in one.by("template").items()
    ]
    columns = ["system", "operator labels", "queries", "template", "n", "Recall@100"]
    return markdown(columns, rows)


def _note(target: Target, dataset: DatasetSpec, ours: Sequence[Reported]) -> str:
    note = f"The paper's rows are for {target.on}."
    if dataset.name not in ("quest", "boolquestions"):
        note += f" Ours are for {dataset.label} and must not be compared with them: "
        note += "only rows of one data set can be."
    pairs = "; ".join(dict.fromkeys(row.tested for row in ours if row.tested))
    test = "paired randomisation test over queries, values averaged over the seeds of both"
    return note + (f" † p < .05, ‡ p < .001 ({test}): {pairs}." if pairs else "")


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as handle:
        handle.write(text + "\n")
