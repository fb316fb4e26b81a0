"""Tables in Markdown, from finished runs.

May import: boolattn.reproduction, boolattn.evaluation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.reproduction.systems import ASKS, known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from boolattn.reproduction.runs import Row, Run
    from boolattn.reproduction.systems import Suite

    Floats = NDArray[np.float64]

#: Metrics of the overview, and how tables head them.
SHOWN: Mapping[str, str] = {
    "r_precision": "R-precision",
    "leak": "leak",
    "recall@100": "Recall@100",
    "structure": "structure",
}


#: NegBERT (Khandelwal and Sawant, LREC 2020): token F1, its scope given the true cue, each negation
#: by itself, and on SFU its own split. ``None``: we found no published figure.
PUBLISHED: Mapping[str, Mapping[str, float | None]] = {
    "cd-sco": {"cue": 0.9294, "scope": 0.9236},
    "sfu": {"cue": None, "scope": 0.9095},
}
_NEGATION = ("cue_f1", "scope_f1", "scope_f1_plain")
_HEADS: Mapping[str, str] = {
    "held_out_cue_f1": "cue F1, known wordings",
    "unseen_cue_f1": "unseen",
    "held_out_scope_f1": "scope F1, known wordings",
    "unseen_scope_f1": "unseen",
    "held_out_gate_accuracy": "gate right, known wordings",
    "unseen_gate_accuracy": "unseen",
}


@dataclass(frozen=True)
class Line:
    """One system, asked in one way, over its seeds.

    Attributes:
        system: Its name.
        ask: How it was asked.
        gate: Who opened the gates.
        rows: For each split the rows, one a seed.
    """

    system: str
    ask: str
    gate: str
    rows: Mapping[str, Sequence[tuple[int, Row]]]

    @property
    def label(self) -> str:
        """What tables call it."""
        system = known().systems.get(self.system)
        name = system.label if system else self.system
        words = "" if self.ask in ("own", "label") and not self._composes else f", {ASKS[self.ask]}"
        return name + words

    @property
    def _composes(self) -> bool:
        system = known().systems.get(self.system)
        return bool(system and "read" in system.asks)

    @property
    def has_seeds(self) -> bool:
        """Whether it was trained, so that seeds mean something."""
        system = known().systems.get(self.system)
        return system is None or system.has_seeds

    def seeds(self, split: str) -> set[int]:
        """Those it was measured with on a split."""
        return {seed for seed, _ in self.rows.get(split, ())}

    @property
    def n_seeds(self) -> int:
        """Of the split that has the most."""
        return max(len(rows) for rows in self.rows.values())

    def means(self, split: str, metric: str) -> list[float]:
        """Return the mean of each seed."""
        found = []
        for _, row in self.rows.get(split, ()):
            values = row.values.get(metric)
            if values is not None and not np.isnan(values).all():
                found.append(float(np.nanmean(values)))
        return found


def lines(runs: Iterable[Run]) -> dict[tuple[str, str], list[Line]]:
    """Sort the rows of runs by data set and encoder, then by system and way of asking."""
    found: dict[tuple[str, str], dict[tuple[str, str, str], dict[str, list[tuple[int, Row]]]]] = {}
    for run in runs:
        table = found.setdefault((run.key.dataset, run.key.encoder), {})
        for row in run.rows:
            own = table.setdefault((run.key.system, row.ask, row.gate), {})
            own.setdefault(row.split, []).append((run.key.seed, row))
    return {
        key: [Line(*names, rows) for names, rows in table.items()] for key, table in found.items()
    }


def overview(runs: Sequence[Run]) -> str:
    """Lay out every run's main numbers."""
    parts = []
    for (dataset, encoder), table in lines(runs).items():
        splits = list(dict.fromkeys(split for line in table for split in line.rows))
        text = overview_table(table, splits, known().suites.get(dataset))
        parts.append(f"**{dataset}, {encoder}**\n\n{text}")
    return "\n\n".join(parts)


def overview_table(table: Sequence[Line], splits: Sequence[str], suite: Suite | None) -> str:
    """Lay out the main numbers of some lines, splits beside each other."""
    heads = " / ".join(suite.splits.get(split, split) if suite else split for split in splits)
    metrics = [m for m in SHOWN if any(line.means(s, m) for line in table for s in splits)]
    columns = ["system", "gate", "seeds", *(f"{SHOWN[m]}, {heads}" for m in metrics)]
    rows = [
        [
            line.label,
            line.gate,
            str(line.n_seeds),
            *(" / ".join(spread(line.means(s, m)) for s in splits) for m in metrics),
        ]
        for line in table
    ]
    return markdown(columns, rows)


def negation_table(folder: Path) -> str:
    """Lay out F1 of cue and scope beside NegBERT's published figures."""
    found: dict[tuple[str, str, bool], list[dict[str, float]]] = {}
    for path in sorted(folder.glob("*/*/*.json")):
        one = json.loads(path.read_text("utf-8"))
        key = (one["corpus"], one["encoder"], one["settings"]["is_frozen"])
        found.setdefault(key, []).append(one["test"])
    rows = []
    for corpus, published in PUBLISHED.items():
        own = {key: tests for key, tests in found.items() if key[0] == corpus}
        for (_, name, is_frozen), tests in own.items():
            encoder = known().encoders.get(name)
            label = (encoder.label if encoder else name) + (", frozen" if is_frozen else "")
            cells = [spread([test[m] for test in tests]) for m in _NEGATION]
            rows.append([corpus, f"BoolAttn, {label}", str(len(tests)), *cells])
        if own:
            cells = [
                "not found"
                if (value := published[name]) is None
                else f"{short(value, 4)} (published)"
                for name in ("cue", "scope")
            ]
            rows.append([corpus, "NegBERT", "", *cells, "–"])
    heads = ["corpus", "heads", "seeds", "cue F1", "scope F1", "scope F1, from text alone"]
    return markdown(heads, rows) if rows else ""


def heads_table(runs: Iterable[Run]) -> str:
    """Lay out what the heads can do on our own sentences, in known and in unseen wordings."""
    found: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
    for run in runs:
        if heads := run.details.get("heads"):
            plugin = run.details["settings"]["plugin"]
            size = "rank " + str(plugin["rank"]) if plugin["rank"] else "full"
            key = (run.key.encoder, plugin["variant"], plugin["gate"], size)
            found.setdefault(key, {})[run.key.seed] = heads
    rows = [
        [*key, str(len(seeds)), *(spread([h[m] for h in seeds.values() if m in h]) for m in _HEADS)]
        for key, seeds in sorted(found.items())
    ]
    return markdown(["encoder", "variant", "gate", "size", "seeds", *_HEADS.values()], rows)


def reading_table(runs: Iterable[Run]) -> str:
    """Lay out how sure and how right systems are that read; empty where none was measured."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if "names" in run.details:
            found.setdefault(run.key.system, []).append(run.details)
    rows = []
    for name, own in found.items():
        system = known().systems.get(name)
        curves = [one.get("reliability", {}) for one in own]
        errors = [
            " / ".join(
                spread([curve[kind][error] for curve in curves if kind in curve])
                for kind in ("kept", "excluded")
            )
            for error in ("error", "bin_error")
        ]
        misread = spread([one["names"]["misread"] for one in own], 1)
        row = [system.label if system else name, str(len(own)), *errors]
        fresh = [one["fresh"] for one in own if "fresh" in one]
        taxa = [one["domains"]["taxa"] for one in fresh]
        others = [one["elsewhere"] for one in fresh]
        shares = [
            " / ".join(spread([one[share] for one in part]) for part in (taxa, others))
            for share in ("structure", "word_f1")
        ]
        rows.append([*row, f"{misread} of {own[0]['names']['n']}", *shares])
    heads = [
        "system",
        "seeds",
        "calibration error, kept / excluded",
        "mean over bins, kept / excluded",
        "names taken apart",
        "fresh queries: structure, taxa / others",
        "word F1, taxa / others",
    ]
    return markdown(heads, rows) if rows else ""


def spread(means: Sequence[float], digits: int = 3) -> str:
    """Write a mean over seeds, with its standard deviation where there are several.

    >>> spread([0.5, 0.52]), spread([0.5]), spread([])
    ('.510 ±.014', '.500', '–')
    """
    if not means:
        return "–"
    text = short(float(np.mean(means)), digits)
    return f"{text} ±{short(float(np.std(means, ddof=1)), digits)}" if len(means) > 1 else text


def short(value: float, digits: int = 3) -> str:
    """Write a number without the zero before its point.

    >>> short(0.1234), short(-0.5), short(1.0), short(float("nan"))
    ('.123', '-.500', '1.000', '–')
    """
    if np.isnan(value):
        return "–"
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table."""
    table = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)
