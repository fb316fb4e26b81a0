"""Tables and figures of the paper: do their runs, and show our rows beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation.tables import markdown, save_figure, short, template_figure
from boolattn.files import atomic_file, package_table
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.runs import Run, RunKey, make_tables, mean_and_deviation, registry
from boolattn.settings import build
from boolattn.training.settings import read_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from boolattn.reproduction.requests import Paths
    from boolattn.reproduction.runs import LineTable

    Progress = Callable[[str], None]

#: Marks of p values below a level.
_MARKS = {0.001: " ‡", 0.05: " †", 2.0: ""}


@dataclass(frozen=True)
class Target:
    """A table or figure of the paper: its columns and rows, and our systems for it."""

    title: str
    on: str
    metrics: Sequence[str]
    systems: Sequence[str]
    rows: Sequence[Mapping[str, Any]]  # label, who reports it, and a value for each metric
    against: Mapping[str, str] = field(default_factory=dict)  # what each of ours is tested against


def targets() -> dict[str, Target]:
    """Read ``paper.toml``."""
    tables = package_table("boolattn.reproduction", "paper.toml")
    return {name: build(Target, values, source="paper.toml") for name, values in tables.items()}


def reproduce(
    name: str, request: RunRequest, paths: Paths, progress: Progress, *, stored: Path | None = None
) -> str:
    """Do the runs of a table or figure that are not finished; return it in Markdown.

    With ``stored`` nothing is run: the finished runs below that folder are shown. Writes
    ``<name>.md`` and of a figure ``<name>.png`` beside the folder of runs.
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
    is_figure, target = name == "figure3", targets()[name]
    body = _by_template(table) if is_figure else _compared(target, table)
    text = f"**{target.title}**\n\n{body}\n\nThe paper's rows are for {target.on}."
    if table.dataset.name not in ("quest", "boolquestions"):
        text += f" Ours are for {table.dataset.label} and must not be compared with them: "
        text += "only rows of one data set can be."
    with atomic_file(out / f"{name}.md") as handle:
        handle.write(text + "\n")
    if is_figure:
        averaged = [line.averaged(table.splits[-1]) for line in table.lines]
        try:
            save_figure(template_figure(averaged), out / f"{name}.png")
        except MissingDataError as error:
            progress(str(error))
    keys, missing = set(map(RunKey.of, finished)), dict[str, list[str]]()
    for run in runs:
        if run.key not in keys:
            missing.setdefault(run.system.name, []).append(str(run.seed))
    names = [f"{system} (seed {', '.join(seeds)})" for system, seeds in missing.items()]
    return text + (f"\n\nNot run: {'; '.join(names)}." if names else "")


def _compared(target: Target, table: LineTable) -> str:
    """Lay out the paper's rows and ours, each tested over the seeds that both systems have."""
    rows = [[r["label"], r["who"], *map(short, r["values"]), target.on] for r in target.rows]
    pairs: dict[str, None] = {}
    for split in table.splits:
        for line in (line for line in table.lines if split in line.rows):
            base = table.find(target.against.get(line.system, ""))
            # A metric of some queries, like "mrr@10 not", is not tested.
            metrics = [metric for metric in target.metrics if " " not in metric]
            tests = line.compare(base, split, metrics)
            if base and tests:
                pairs[f"{line.label} ({line.gate}) against {base.label} ({base.gate})"] = None
            p_values = (tests[m].p_value if m in tests else 1.0 for m in target.metrics)
            marks = [next(_MARKS[level] for level in _MARKS if p < level) for p in p_values]
            cells = [mean_and_deviation(line.means(split, metric)) for metric in target.metrics]
            queries = f"{table.dataset.label}, {table.dataset.splits[split]}"
            seeds = ", ".join(map(str, line.rows[split]))
            note = f"{table.encoder_label}, {queries}; seeds {seeds}; operator labels: {line.gate}"
            marked = (cell + mark for cell, mark in zip(cells, marks, strict=True))
            rows.append([line.label, "ours", *marked, note])
    heads = [metric.replace("recall@", "R@").replace("mrr@10 ", "") for metric in target.metrics]
    text = markdown(["system", "source", *heads, "on"], rows)
    test = "paired randomisation test over queries, values averaged over the seeds of both"
    return text + (f"\n\n† p < .05, ‡ p < .001 ({test}): {'; '.join(pairs)}." if pairs else "")


def _by_template(table: LineTable) -> str:
    rows = [
        [line.label, line.gate, split, f"`{name}`", str(len(part)), short(part.means["recall@100"])]
        for line in table.lines
        for split in line.rows
        for name, part in line.averaged(split).by("template").items()
    ]
    columns = ["system", "operator labels", "queries", "template", "n", "Recall@100"]
    return markdown(columns, rows)


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
