"""One table or figure of the paper: run what it needs, and lay ours beside the paper's.

May import: boolattn.reproduction, boolattn.evaluation, boolattn.plugin.explain, boolattn.files,
boolattn.errors.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation import figures
from boolattn.files import atomic_file
from boolattn.reproduction import drawing
from boolattn.reproduction.comparing import Table
from boolattn.reproduction.paper import OURS, Reported, find_target, sizes
from boolattn.reproduction.plan import SEEDS, Wanted, plan
from boolattn.reproduction.running import Limits, finished_runs, run
from boolattn.reproduction.runs import load_queries
from boolattn.reproduction.systems import Request, known, raw_preset
from boolattn.reproduction.tables import lines, markdown, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from boolattn.reproduction.paper import Target
    from boolattn.reproduction.places import Places
    from boolattn.reproduction.tables import Line

#: The paper's kind of sentence.
SENTENCE = "films set in Vietnam that are also comedies but not Italian action films"


@dataclass(frozen=True, kw_only=True)
class Size:
    """At what size a table is reproduced.

    Attributes:
        preset: Its name, or a TOML file; it says which data set and encoder.
        data: Folder of the data set.
        encoder: Folder of the encoder, where the preset's name does not lead to it.
        seeds: Each makes one run of every system.
        changes: ``key=value``.
        starts: Model folders that systems go on from, by name; for Table 2.
    """

    preset: str = "demo"
    data: Path | None = None
    encoder: str = ""
    seeds: Sequence[int] = SEEDS
    changes: Sequence[str] = ()
    starts: Mapping[str, Path] = field(default_factory=dict)


def reproduce(
    name: str, size: Size, places: Places, limits: Limits, tell: Callable[[str], None]
) -> str:
    """Run what a table or figure of the paper needs; return it in Markdown.

    Finished runs are taken as they are. Writes ``<name>.json``, ``<name>.md`` and ``<name>.png``
    beside the runs.
    """
    target = find_target(name)
    out = places.runs.parent
    wanted = wanted_for(target, size)
    run(wanted, places, limits, tell)
    table = _table(wanted, places)
    rows = [*target.rows, *_ours(target, table)]
    text = f"**{target.title}**\n\n{_rows_table(target, rows)}\n\n{_note(target, table)}"
    if name == "figure3":
        text = f"**{target.title}**\n\n{_by_template(table)}\n\n{_note(target, table)}"
    written = {
        "target": name,
        "title": target.title,
        "paper_on": target.on,
        "rows": plain_values(rows),
    }
    _write(out / f"{name}.json", json.dumps(written, indent=1, ensure_ascii=False))
    _write(out / f"{name}.md", text)
    _draw(target, table, rows, out / f"{name}.png", tell)
    return text


def wanted_for(target: Target, size: Size) -> Wanted:
    """Say which runs a table needs."""
    values = raw_preset(size.preset)
    model, data = values.get("model", {}), values.get("data", {})
    questions = known().suite("boolquestions")
    suites = [
        suite
        for suite in known().suites.values()
        if suite.catalog == data.get("name") and suite != questions
    ]
    if target.name == "table2":
        suites = [questions]
        if size.data is None:
            raise MissingDataError(
                "BoolQuestions is not here: name a folder in BEIR's form with its training and "
                "test questions by --data (docs/reproduction.md says how)"
            )
    if not suites:
        raise ConfigError(f"preset {size.preset} is on {data.get('name')!r}, which no table takes")
    source = str(model.get("encoder", "minilm"))
    encoders = known().encoders.values()
    names = [encoder.name for encoder in encoders if encoder.source == source]
    name = names[0] if names else "minilm"
    chosen = size.encoder or ("" if names else source)
    return Wanted(
        systems=target.systems,
        datasets=[suites[0].name],
        encoders=[name],
        seeds=size.seeds,
        data={suites[0].name: size.data} if size.data else {},
        request=Request(
            preset=size.preset,
            sources={name: chosen} if chosen else {},
            changes=tuple(size.changes),
        ),
        starts=size.starts,
    )


def figure1(model: Path | None, out: Path, text: str = SENTENCE) -> str:
    """Draw what BoolAttn does to one sentence: what the paper's Figure 1 sketches."""
    import boolattn.encoder  # noqa: F401 - makes Bool-BERT known to transformers
    from boolattn.plugin.explain import explain
    from boolattn.reproduction.loading import load_explained

    encoder, tokenizer = load_explained(model)
    found = explain(encoder, tokenizer, text)
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
    text = f"**Figure 1: attention moves by the operators**\n\n“{text}”\n\n{table}"
    _write(out / "figure1.md", text)
    return text


def count_sizes(out: Path) -> str:
    """Lay the numbers of parameters beside the paper's."""
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


def _table(wanted: Wanted, places: Places) -> Table:
    runs = finished_runs(plan(wanted, places), places)
    if not runs:
        raise MissingDataError(
            f"no run was finished; {places.runs.parent / 'failed'} says why, line by line"
        )
    dataset, encoder = wanted.datasets[0], wanted.encoders[0]
    queries = load_queries(places.runs, dataset)
    return Table(dataset, encoder, lines(runs)[dataset, encoder], queries)


def _ours(target: Target, table: Table) -> list[Reported]:
    """Return our rows: one for each system, gate and split."""
    found = []
    suite = known().suite(table.dataset)
    for line in table.lines:
        for split in table.splits:
            seeds = sorted(line.seeds(split))
            if not seeds:
                continue
            values = {metric: _value(table, line, split, metric) for metric in target.metrics}
            words = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
            note = f"{suite.label}, {suite.splits.get(split, split)}; {words}; gate: {line.gate}"
            found.append(Reported(line.label, OURS, values, note))
    return found


def _value(table: Table, line: Line, split: str, metric: str) -> float:
    """Return a mean over seeds; ``mrr@10 not`` is over the queries with NOT."""
    name, _, operator = metric.partition(" ")
    averaged = table.averaged(line, split, sorted(line.seeds(split)))
    if not operator:
        return round(averaged.overall.means[name], 5)
    groups = averaged.by("operator")
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
    return markdown(["system", "whose", *heads, "on"], cells)


def _by_template(table: Table) -> str:
    """Lay out Recall@100 by template."""
    rows = []
    for line in table.lines:
        for split in table.splits:
            if not line.seeds(split):
                continue
            averaged = table.averaged(line, split, sorted(line.seeds(split)))
            for template, group in averaged.by("template").items():
                value = short(group.means["recall@100"])
                rows.append([line.label, line.gate, split, f"`{template}`", str(group.n), value])
    return markdown(["system", "gate", "queries", "template", "n", "Recall@100"], rows)


def _note(target: Target, table: Table) -> str:
    suite = known().suite(table.dataset)
    if suite.name in ("quest", "boolquestions"):
        return f"The paper's rows are for {target.on}."
    return (
        f"The paper's rows are for {target.on}. Ours are for {suite.label} and must not be "
        "compared with them: only rows of one data set can be."
    )


def _draw(
    target: Target,
    table: Table,
    rows: Sequence[Reported],
    path: Path,
    tell: Callable[[str], None],
) -> None:
    """Draw a figure, where there is something to draw with."""
    try:
        if target.name == "figure3":
            split = table.splits[-1]
            own = [line for line in table.lines if line.seeds(split)]
            found = [table.averaged(line, split, sorted(line.seeds(split))) for line in own]
            figures.save(figures.by_template(found), path)
        else:
            figures.save(drawing.rows_figure(target.title, target.metrics, rows), path)
    except MissingDataError as error:
        tell(str(error))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as handle:
        handle.write(text + "\n")


def plain_values(rows: Sequence[Reported]) -> list[dict[str, Any]]:
    """Return rows as JSON takes them; nan becomes nothing."""
    return [
        {**asdict(row), "values": {k: None if np.isnan(v) else v for k, v in row.values.items()}}
        for row in rows
    ]
