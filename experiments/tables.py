"""Tables of all runs, in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.evaluation.metrics import mean
from boolattn.evaluation.tables import markdown, short
from experiments.lines import collect_lines
from experiments.registry import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.reproduction.runs import Run
    from boolattn.reproduction.systems import DatasetSpec
    from experiments.lines import Line

#: Metrics of the overview, and their names in tables.
SHOWN: Mapping[str, str] = {
    "r_precision": "R-precision",
    "leak": "leak",
    "recall@100": "Recall@100",
    "structure": "parse accuracy",
}
_PRETRAINING: Mapping[str, str] = {
    "held_out_cue_f1": "cue F1, seen wordings",
    "unseen_cue_f1": "unseen",
    "held_out_scope_f1": "scope F1, seen wordings",
    "unseen_scope_f1": "unseen",
    "held_out_gate_accuracy": "gate accuracy, seen wordings",
    "unseen_gate_accuracy": "unseen",
}


def mean_and_deviation(means: Sequence[float], digits: int = 3) -> str:
    """Write a mean over seeds, with its standard deviation where there are several.

    >>> mean_and_deviation([0.5, 0.52]), mean_and_deviation([0.5]), mean_and_deviation([])
    ('.510 ±.014', '.500', '–')
    """
    if not means:
        return "–"
    text = short(float(np.mean(means)), digits)
    return f"{text} ±{short(float(np.std(means, ddof=1)), digits)}" if len(means) > 1 else text


def seed_means(line: Line, split: str, metric: str) -> list[float]:
    """Return the mean of each seed."""
    rows = (row for _, row in line.rows.get(split, ()))
    means = (mean(row.values[metric]) for row in rows if metric in row.values)
    return [value for value in means if not np.isnan(value)]


def overview(runs: Sequence[Run]) -> str:
    """Lay out the main results of all runs."""
    parts = []
    for (dataset, encoder), lines in collect_lines(runs).items():
        splits = list(dict.fromkeys(split for line in lines for split in line.rows))
        text = overview_table(lines, splits, registry().dataset(dataset))
        parts.append(f"**{dataset}, {encoder}**\n\n{text}")
    return "\n\n".join(parts)


def overview_table(lines: Sequence[Line], splits: Sequence[str], dataset: DatasetSpec) -> str:
    """Lay out the main results of some lines, splits side by side."""
    heads = " / ".join(dataset.splits.get(split, split) for split in splits)
    metrics = [m for m in SHOWN if any(seed_means(line, s, m) for line in lines for s in splits)]
    columns = ["system", "operator labels", "seeds", *(f"{SHOWN[m]}, {heads}" for m in metrics)]
    rows = []
    for line in lines:
        n_seeds = max(len(rows) for rows in line.rows.values())
        values = ([seed_means(line, s, metric) for s in splits] for metric in metrics)
        cells = (" / ".join(map(mean_and_deviation, means)) for means in values)
        rows.append([line.label, line.gate, str(n_seeds), *cells])
    return markdown(columns, rows)


def pretraining_table(runs: Iterable[Run]) -> str:
    """Lay out the heads' accuracy on generated sentences, in seen and unseen wordings."""
    found: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
    for run in runs:
        if metrics := run.details.get("heads"):
            plugin = run.details["settings"]["plugin"]
            size = "rank " + str(plugin["rank"]) if plugin["rank"] else "full"
            gate = plugin["gate"].replace("label", "oracle")
            key = (run.key.encoder, plugin["variant"], gate, size)
            found.setdefault(key, {})[run.key.seed] = metrics
    rows = []
    for names, by_seed in sorted(found.items()):
        values = ([one[m] for one in by_seed.values() if m in one] for m in _PRETRAINING)
        rows.append([*names, str(len(by_seed)), *map(mean_and_deviation, values)])
    columns = ["encoder", "variant", "operator labels", "size", "seeds", *_PRETRAINING.values()]
    return markdown(columns, rows)


def parser_table(runs: Iterable[Run]) -> str:
    """Lay out parse accuracy; empty where no system has a parser."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if "names" in run.details:
            found.setdefault(run.key.system, []).append(run.details)
    rows = []
    for name, own in found.items():
        split_up = mean_and_deviation([one["names"]["misread"] for one in own], 1)
        unseen = [one["fresh"] for one in own if "fresh" in one]
        taxa = [one["domains"]["taxa"] for one in unseen]
        others = [one["elsewhere"] for one in unseen]
        shares = [
            " / ".join(mean_and_deviation([one[share] for one in part]) for part in (taxa, others))
            for share in ("structure", "word_f1")
        ]
        label = registry().known(name).full_label
        names = f"{split_up} of {own[0]['names']['n']}"
        rows.append([label, str(len(own)), names, *shares])
    heads = [
        "system",
        "seeds",
        "names split",
        "parse accuracy, taxa / unseen domains",
        "operand word F1, taxa / unseen domains",
    ]
    return markdown(heads, rows) if rows else ""
