"""Tables and figures of the paper: do their runs, and show our rows beside the paper's."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation import figures
from boolattn.evaluation.results import average
from boolattn.evaluation.tables import markdown, short
from boolattn.files import atomic_file
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.runs import Run, load_queries
from boolattn.reproduction.systems import paper_registry, row_label
from boolattn.training.preset_files import read_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from boolattn.evaluation.results import Results
    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.systems import DatasetSpec

    Progress = Callable[[str], None]
    #: Results averaged over seeds, and the number of seeds.
    Averaged = tuple[Results, int]

OURS = "ours"
#: A sentence like the paper's.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"
#: As transformers names them.
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
#: Each BERT with these sizes, and the paper's "approximately" so many millions of parameters.
_BERTS = {"base": ((768, 12, 12, 3072), 121.0), "large": ((1024, 24, 16, 4096), 378.0)}


@dataclass(frozen=True)
class Reported:
    """One row of a table: values by metric, and who reports them ("ours", "paper")."""

    label: str
    who: str
    values: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper: its columns and rows, and our systems for it."""

    name: str
    title: str
    on: str
    metrics: tuple[str, ...]
    systems: tuple[str, ...]
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
        systems = tuple(table["systems"])
        found[name] = Target(name, table["title"], table["on"], metrics, systems, rows)
    return found


def reproduce(
    name: str, request: RunRequest, paths: Paths, progress: Progress, seconds: float = 0
) -> str:
    """Do the runs of a table or figure that are not finished; return it in Markdown.

    Writes ``<name>.json``, ``<name>.md`` and ``<name>.png`` beside the folder of runs.
    """
    from boolattn.reproduction.execution import run_all

    target = targets()[name]
    dataset = paper_registry().dataset(request.datasets[0])
    own = _own_results(request, run_all(request, paths, progress, seconds), paths)
    encoder = paper_registry().encoder(request.encoders[0]).label
    rows = [*target.rows, *(_own_row(target, one, n, dataset, encoder) for one, n in own)]
    is_figure = name == "figure3"
    body = _by_template(own) if is_figure else _rows_table(target, rows)
    text = f"**{target.title}**\n\n{body}\n\n{_note(target, dataset)}"
    plain = [
        {**asdict(row), "values": {k: None if np.isnan(v) else v for k, v in row.values.items()}}
        for row in rows
    ]
    out = paths.runs.parent
    written = {"target": name, "title": target.title, "paper_on": target.on, "rows": plain}
    _write(out / f"{name}.json", json.dumps(written, indent=1, ensure_ascii=False))
    _write(out / f"{name}.md", text)
    try:
        if is_figure:
            figure = figures.by_template([one for one, _ in own if one.split == own[-1][0].split])
        else:
            drawn = [(f"{r.label} ({r.note or r.who})", r.values, r.who == OURS) for r in rows]
            figure = figures.reported_rows(target.title, target.metrics, drawn)
        figures.save(figure, out / f"{name}.png")
    except MissingDataError as error:
        progress(str(error))
    return text


def make_request(
    name: str, preset: str = "demo", data: Path | None = None, encoder: str = "", **more: Any
) -> RunRequest:
    """Request the runs of a table; the preset names data set and encoder, not their folders."""
    registry, values = paper_registry(), read_preset(preset)
    catalog = values.get("data", {}).get("name")
    questions = registry.dataset("boolquestions")
    datasets = [d for d in registry.datasets.values() if d.catalog == catalog and d != questions]
    if name == "table2":
        datasets = [questions]
        if data is None:
            raise MissingDataError(
                "BoolQuestions is missing: name a folder in BEIR's format with its training and "
                "test questions by --data (docs/reproduction.md says how)"
            )
    if not datasets:
        raise ConfigError(f"preset {preset} is for {catalog!r}, which has no table")
    source = str(values.get("model", {}).get("encoder", "minilm"))
    names = [one.name for one in registry.encoders.values() if one.source == source]
    owner, chosen = names[0] if names else "minilm", encoder or ("" if names else source)
    return RunRequest(
        systems=targets()[name].systems,
        datasets=[datasets[0].name],
        encoders=[owner],
        data={datasets[0].name: data} if data else {},
        preset=preset,
        sources={owner: chosen} if chosen else {},
        **more,
    )


def figure1(model: Path | None, out: Path, text: str = SENTENCE) -> str:
    """Draw the effect of BoolAttn on one sentence, which the paper's Figure 1 sketches."""
    from boolattn.embedding.models import shipped_model, torch_folder
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


def _own_results(request: RunRequest, files: Sequence[Path], paths: Paths) -> list[Averaged]:
    if not files:
        folder = paths.runs.parent / "failed"
        causes = sorted({path.read_text("utf-8").strip() for path in folder.rglob("*.txt")})
        raise MissingDataError(f"no run succeeded: {'; '.join(causes)} (see {folder})")
    registry, dataset = paper_registry(), request.datasets[0]
    queries = load_queries(paths.runs, dataset)
    groups: dict[tuple[str, str, str], list[Results]] = {}
    for run in map(Run.load, files):
        for row in run.rows:
            mode = registry.query_mode(row.query_mode)
            label = row_label(registry.known(run.key.system), mode)
            one = row.results(label, dataset, run.key.seed, queries[row.split])
            groups.setdefault((label, row.gate, row.split), []).append(one)
    return [(average(group), len(group)) for group in groups.values()]


def _own_row(
    target: Target, results: Results, n_seeds: int, dataset: DatasetSpec, encoder: str
) -> Reported:
    values = {metric: _value(results, metric) for metric in target.metrics}
    seeds = f"{n_seeds} seed" + ("s" if n_seeds > 1 else "")
    queries = f"{dataset.label}, {dataset.splits.get(results.split, results.split)}"
    note = f"{encoder}, {queries}; {seeds}; operator labels: {results.gate}"
    return Reported(results.system, OURS, values, note)


def _value(results: Results, metric: str) -> float:
    """Return a mean; ``mrr@10 not`` is over the queries with NOT."""
    name, _, operator = metric.partition(" ")
    groups = results.by("operator") if operator else {"": results.overall}
    return round(groups[operator].means[name], 5) if operator in groups else float("nan")


def _rows_table(target: Target, rows: Sequence[Reported]) -> str:
    heads = [metric.replace("recall@", "R@").replace("mrr@10 ", "") for metric in target.metrics]
    cells = []
    for row in rows:
        values = (short(row.values.get(metric, float("nan"))) for metric in target.metrics)
        cells.append([row.label, row.who, *values, row.note or target.on])
    return markdown(["system", "source", *heads, "on"], cells)


def _by_template(own: Sequence[Averaged], metric: str = "recall@100") -> str:
    rows = [
        [one.system, one.gate, one.split, f"`{name}`", str(group.n), short(group.means[metric])]
        for one, _ in own
        for name, group in one.by("template").items()
    ]
    columns = ["system", "operator labels", "queries", "template", "n", "Recall@100"]
    return markdown(columns, rows)


def _note(target: Target, dataset: DatasetSpec) -> str:
    note = f"The paper's rows are for {target.on}."
    if dataset.name not in ("quest", "boolquestions"):
        note += f" Ours are for {dataset.label} and must not be compared with them: "
        note += "only rows of one data set can be."
    return note


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as handle:
        handle.write(text + "\n")
