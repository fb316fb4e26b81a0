"""Tables and figures of the paper: do their runs, and show our rows beside the paper's."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation import figures
from boolattn.evaluation.tables import markdown, short
from boolattn.files import atomic_file, package_table
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.runs import Run, RunKey, make_tables, registry
from boolattn.training.settings import read_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.runs import Line, LineTable

    Progress = Callable[[str], None]

OURS = "ours"
#: Marks of p values below a level.
MARKS = {0.001: " ‡", 0.05: " †", 2.0: ""}


@dataclass(frozen=True)
class Reported:
    """One row of a table: values by metric, and who reports them ("ours", "paper").

    ``spread`` is the standard deviation over several seeds, ``p_values`` those of the paired
    randomisation test over queries, ``tested`` the two systems in words.
    """

    label: str
    who: str
    values: Mapping[str, float]
    note: str = ""
    spread: Mapping[str, float] = field(default_factory=dict)
    p_values: Mapping[str, float] = field(default_factory=dict)
    tested: str = ""

    def cell(self, metric: str) -> str:
        """Write a value with its spread and the mark of its test."""
        text = short(self.values.get(metric, float("nan")))
        if metric in self.spread:
            text += f" ±{short(self.spread[metric])}"
        p_value = self.p_values.get(metric, 1.0)
        return text + next(mark for level, mark in MARKS.items() if p_value < level)


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper: its columns and rows, and our systems for it."""

    name: str
    title: str
    on: str
    metrics: Sequence[str]
    systems: Sequence[str]
    against: Mapping[str, str]  # The system that each of ours is tested against
    rows: Sequence[Reported]


@lru_cache(maxsize=1)
def targets() -> dict[str, Target]:
    """Read ``paper.toml``."""
    read = {}
    for name, table in package_table("boolattn.reproduction", "paper.toml").items():
        rows = [
            Reported(
                row["label"], row["who"], dict(zip(table["metrics"], row["values"], strict=True))
            )
            for row in table["rows"]
        ]
        read[name] = Target(**{"against": {}, **table, "name": name, "rows": rows})
    return read


def reproduce(
    name: str, request: RunRequest, paths: Paths, progress: Progress, *, stored: Path | None = None
) -> str:
    """Do the runs of a table or figure that are not finished; return it in Markdown.

    With ``stored`` nothing is run: the finished runs below that folder are shown. Writes
    ``<name>.json``, ``<name>.md`` and of a figure ``<name>.png`` beside the folder of runs.
    """
    from boolattn.reproduction.execution import run_all

    runs, out = list(request.runs()), paths.runs.parent
    if stored is None:
        finished = run_all(request, paths, progress)
    else:
        finished = [path for run in runs if (path := stored / run.key.path).is_file()]
    if not finished:
        key = f"{request.datasets[0]}/{request.encoders[0]}"
        raise MissingDataError(f"{stored or paths.runs} has no run of {name} in {key}")
    [table] = make_tables(map(Run.load, finished))
    text = _write_target(targets()[name], table, out, progress)
    keys, missing = set(map(RunKey.of, finished)), dict[str, list[str]]()
    for run in runs:
        if run.key not in keys:
            missing.setdefault(run.system.name, []).append(str(run.seed))
    names = [f"{system} (seed {', '.join(seeds)})" for system, seeds in missing.items()]
    return text + (f"\n\nNot run: {'; '.join(names)}." if names else "")


def _write_target(target: Target, table: LineTable, out: Path, progress: Progress) -> str:
    ours = [
        _reported(target, table, line, split)
        for split in table.splits
        for line in table.lines
        if split in line.rows
    ]
    rows, is_figure = [*target.rows, *ours], target.name == "figure3"
    body = _by_template(table) if is_figure else _rows_table(target, rows)
    text = f"**{target.title}**\n\n{body}\n\n{_note(target, table, ours)}"
    written = {"target": target.name, "title": target.title, "paper_on": target.on}
    plain = json.loads(json.dumps([asdict(row) for row in rows]), parse_constant=lambda _: None)
    written_text = json.dumps({**written, "rows": plain}, indent=1, ensure_ascii=False)
    for ending, content in (("json", written_text), ("md", text)):
        with atomic_file(out / f"{target.name}.{ending}") as handle:
            handle.write(content + "\n")
    if is_figure:
        averaged = [line.averaged(table.splits[-1]) for line in table.lines]
        try:
            figures.save(figures.by_template(averaged), out / f"{target.name}.png")
        except MissingDataError as error:
            progress(str(error))
    return text


def _reported(target: Target, table: LineTable, line: Line, split: str) -> Reported:
    """Return the row of a line, tested against another over the seeds that both have."""
    means = {metric: line.means(split, metric) for metric in target.metrics}
    base = table.find(target.against.get(line.system, ""))
    # A metric of some queries, like "mrr@10 not", is not tested.
    compared = line.compare(base, split, [metric for metric in means if " " not in metric])
    names = [f"{tested.label} ({tested.gate})" for tested in (line, base) if tested]
    queries = f"{table.dataset.label}, {table.dataset.splits[split]}"
    seeds = ", ".join(map(str, line.rows[split]))
    return Reported(
        line.label,
        OURS,
        {metric: round(float(np.mean(v)), 5) if v else np.nan for metric, v in means.items()},
        f"{table.encoder_label}, {queries}; seeds {seeds}; operator labels: {line.gate}",
        {metric: float(np.std(v, ddof=1)) for metric, v in means.items() if len(v) > 1},
        {metric: comparison.p_value for metric, comparison in compared.items()},
        " against ".join(names) if compared else "",
    )


def make_request(
    name: str, preset: str = "", data: str = "", encoder: str = "", **more: Any
) -> RunRequest:
    """Request the runs of a table.

    The preset names data set and encoder, ``data`` and ``encoder`` are their folders.
    """
    if name == "table2" and not data:
        raise MissingDataError(
            "BoolQuestions is missing: name a folder in BEIR's format with its training and "
            "test questions by --data (docs/reproduction.md says how)"
        )
    values, known = read_preset(preset or "demo"), registry()
    catalog = values.get("data", {}).get("name")
    # The last of BEIR's format is any folder, not BoolQuestions.
    fitting = {d.catalog: d.name for d in known.datasets.values()}
    dataset = "boolquestions" if name == "table2" else fitting.get(catalog, "")
    if not dataset:
        raise ConfigError(f"preset {preset} is for {catalog!r}, which has no table")
    source = str(values.get("model", {}).get("encoder", "minilm"))
    owner = next((e.name for e in known.encoders.values() if e.source == source), "")
    folder, owner = encoder or ("" if owner else source), owner or "minilm"
    return RunRequest(
        systems=targets()[name].systems,
        datasets=[dataset],
        encoders=[owner],
        data={dataset: Path(data)} if data else {},
        preset=preset or "demo",
        sources={owner: folder} if folder else {},
        **more,
    )


def _rows_table(target: Target, rows: Sequence[Reported]) -> str:
    heads = [metric.replace("recall@", "R@").replace("mrr@10 ", "") for metric in target.metrics]
    cells = [
        [row.label, row.who, *map(row.cell, target.metrics), row.note or target.on] for row in rows
    ]
    return markdown(["system", "source", *heads, "on"], cells)


def _by_template(table: LineTable) -> str:
    rows = [
        [line.label, line.gate, split, f"`{name}`", str(group.n), short(group.means["recall@100"])]
        for line in table.lines
        for split in line.rows
        for name, group in line.averaged(split).by("template").items()
    ]
    columns = ["system", "operator labels", "queries", "template", "n", "Recall@100"]
    return markdown(columns, rows)


def _note(target: Target, table: LineTable, ours: Sequence[Reported]) -> str:
    note = f"The paper's rows are for {target.on}."
    if table.dataset.name not in ("quest", "boolquestions"):
        note += f" Ours are for {table.dataset.label} and must not be compared with them: "
        note += "only rows of one data set can be."
    pairs = "; ".join(dict.fromkeys(row.tested for row in ours if row.tested))
    test = "paired randomisation test over queries, values averaged over the seeds of both"
    return note + (f" † p < .05, ‡ p < .001 ({test}): {pairs}." if pairs else "")
