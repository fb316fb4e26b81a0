"""One table or figure of the paper: do its runs, and show our rows beside the paper's."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation import figures
from boolattn.evaluation.results import average
from boolattn.evaluation.tables import short
from boolattn.files import atomic_file
from boolattn.reproduction.paper import OURS, Reported, sizes, targets
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.runs import Run, load_queries
from boolattn.reproduction.systems import paper_registry, row_label
from boolattn.training.preset_files import read_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from boolattn.evaluation.results import Results
    from boolattn.reproduction.paper import Target
    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.systems import DatasetSpec

    Progress = Callable[[str], None]
    #: Results averaged over seeds, and the number of seeds.
    Averaged = tuple[Results, int]

#: Colours of bars: the paper's rows are grey, ours are not.
_GREY, _COLOURS = "0.82", ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
#: A sentence like the paper's.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"


def reproduce(name: str, request: RunRequest, paths: Paths, progress: Progress) -> str:
    """Do the runs of a table or figure that are not finished; return it in Markdown.

    Writes ``<name>.json``, ``<name>.md`` and ``<name>.png`` beside the folder of runs.
    """
    from boolattn.reproduction.execution import run_all

    target = targets()[name]
    dataset = paper_registry().dataset(request.datasets[0])
    own = _own_results(request, run_all(request, paths, progress), paths)
    rows = [*target.rows, *(_own_row(target, one, n, dataset) for one, n in own)]
    body = _by_template(own) if name == "figure3" else _rows_table(target, rows)
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
        figures.save(_figure(target, own, rows), out / f"{name}.png")
    except MissingDataError as error:
        progress(str(error))
    return text


def make_request(
    name: str,
    preset: str = "demo",
    data: Path | None = None,
    encoder: str = "",
    **more: Any,
) -> RunRequest:
    """List the runs of a table.

    Args:
        name: "table1".
        preset: Name or TOML file; it names data set and encoder.
        data: Folder of the data set.
        encoder: Folder of the encoder, where the preset's name does not lead to it.
        more: Seeds, changes and starts of the request.
    """
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
    chosen = encoder or ("" if names else source)
    owner = names[0] if names else "minilm"
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
    from transformers import AutoModel, AutoTokenizer

    import boolattn.encoder  # noqa: F401 - registers Bool-BERT in transformers
    from boolattn.embedding.int8_storage import shipped_model
    from boolattn.plugin import load
    from boolattn.plugin.explain import explain

    home = model or shipped_model()
    is_towers = (home / "modules.json").is_file()
    encoder = AutoModel.from_pretrained(home, local_files_only=True) if is_towers else load(home)
    found = explain(encoder, AutoTokenizer.from_pretrained(home, local_files_only=True), text)
    _write(out / "figure1.json", json.dumps(found.to_dict(), ensure_ascii=False))
    figures.save(found.figure(), out / "figure1.png")
    rows = [
        [
            row["token"],
            " ".join(op.upper() for op, p in row["cue"].items() if p > 0.5) or "–",
            " ".join(op.upper() for op, p in row["scope"].items() if p > 0.5 and found.gate[op])
            or "–",
            f"{100 * row['attention_change']:+.1f}%",
        ]
        for row in found.rows()
    ]
    table = markdown(["token", "cue of", "in the scope of", "attention received"], rows)
    text = f"**Figure 1: attention changed by the operators**\n\n“{text}”\n\n{table}"
    _write(out / "figure1.md", text)
    return text


def count_sizes(out: Path) -> str:
    """Show the numbers of parameters beside the paper's."""
    found = sizes()
    rows = [
        [
            row["encoder"],
            row["variant"],
            f"{row['encoder_millions']}M",
            f"{row['total_millions']}M",
            f"{row['added_percent']}%",
            f"about {row['paper_millions']:.0f}M (paper)" if row["paper_millions"] else "–",
        ]
        for row in found
    ]
    heads = ["encoder", "BoolAttn", "encoder alone", "with BoolAttn", "added", "the paper says"]
    text = f"**Sizes**\n\n{markdown(heads, rows)}"
    _write(out / "sizes.json", json.dumps(found, indent=1))
    _write(out / "sizes.md", text)
    return text


def _own_results(request: RunRequest, files: Sequence[Path], paths: Paths) -> list[Averaged]:
    """Average our results over seeds: one for each system, query mode and split."""
    if not files:
        raise MissingDataError(
            f"no run succeeded; the files in {paths.runs.parent / 'failed'} give the causes"
        )
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


def _own_row(target: Target, results: Results, n_seeds: int, dataset: DatasetSpec) -> Reported:
    values = {metric: _value(results, metric) for metric in target.metrics}
    seeds = f"{n_seeds} seed" + ("s" if n_seeds > 1 else "")
    queries = f"{dataset.label}, {dataset.splits.get(results.split, results.split)}"
    note = f"{queries}; {seeds}; operator labels: {results.gate}"
    return Reported(results.system, OURS, values, note)


def _value(results: Results, metric: str) -> float:
    """Return a mean; ``mrr@10 not`` is over the queries with NOT."""
    name, _, operator = metric.partition(" ")
    groups = results.by("operator") if operator else {"": results.overall}
    return round(groups[operator].means[name], 5) if operator in groups else float("nan")


def _rows_table(target: Target, rows: Sequence[Reported]) -> str:
    heads = [metric.replace("recall@", "R@").replace("mrr@10 ", "") for metric in target.metrics]
    cells = [
        [
            row.label,
            row.who,
            *(short(row.values.get(metric, float("nan"))) for metric in target.metrics),
            row.note or target.on,
        ]
        for row in rows
    ]
    return markdown(["system", "source", *heads, "on"], cells)


def _by_template(own: Sequence[Averaged]) -> str:
    """Lay out Recall@100 by template."""
    metric = "recall@100"
    rows = [
        [one.system, one.gate, one.split, f"`{name}`", str(group.n), short(group.means[metric])]
        for one, _ in own
        for name, group in one.by("template").items()
    ]
    columns = ["system", "operator labels", "queries", "template", "n", "Recall@100"]
    return markdown(columns, rows)


def _note(target: Target, dataset: DatasetSpec) -> str:
    note = f"The paper's rows are for {target.on}."
    if dataset.name in ("quest", "boolquestions"):
        return note
    return (
        f"{note} Ours are for {dataset.label} and must not be compared with them: only rows of "
        "one data set can be."
    )


def _figure(target: Target, own: Sequence[Averaged], rows: Sequence[Reported]) -> Any:  # noqa: ANN401 - a Figure
    if target.name != "figure3":
        return _rows_figure(target.title, target.metrics, rows)
    return figures.by_template([one for one, _ in own if one.split == own[-1][0].split])


def _rows_figure(title: str, metrics: Sequence[str], rows: Sequence[Reported]) -> Any:  # noqa: ANN401 - a Figure
    """Draw rows as bars, one panel a metric; rows that are not ours are hatched."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDataError("figures need matplotlib: pip install 'boolattn[plot]'") from error
    height = max(2.6, 0.34 * len(rows) + 1.2)
    figure = Figure(figsize=(3.0 + 2.0 * len(metrics), height), layout="constrained")
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    ours = [row.who == OURS for row in rows]
    colours = [_COLOURS[sum(ours[:i]) % len(_COLOURS)] if o else _GREY for i, o in enumerate(ours)]
    for panel, metric in zip(panels, metrics, strict=True):
        values = [row.values.get(metric, np.nan) for row in rows]
        hatches = ["" if own else "//" for own in ours]
        bars = panel.barh(range(len(rows)), values, color=colours, hatch=hatches)
        panel.bar_label(bars, fmt=lambda v: "" if np.isnan(v) else f"{v:.3f}", fontsize=7)
        panel.set_title(metric, fontsize=9)
        panel.set_xlim(0, 1.2 * max([v for v in values if not np.isnan(v)], default=1) or 1)
        panel.spines[["top", "right"]].set_visible(False)
    names = [f"{row.label} ({row.note or row.who})" for row in rows]
    panels[0].set_yticks(range(len(rows)), names, fontsize=7)
    panels[0].invert_yaxis()
    figure.suptitle(f"{title} (hatched: not ours)", fontsize=10)
    return figure


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table in Markdown."""
    table = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as handle:
        handle.write(text + "\n")
