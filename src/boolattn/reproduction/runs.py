"""Systems of ``systems.toml``, files of their finished runs, and the lines of tables made of them.

A run's file has the values of every query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from boolattn.errors import ConfigError, DataError
from boolattn.evaluation.results import Comparison, Results, average, compare_results
from boolattn.evaluation.tables import short
from boolattn.files import package_table
from boolattn.jsonl import read_jsonl, write_jsonl
from boolattn.settings import build

T = TypeVar("T")

ENDING, FORMAT = ".jsonl.xz", "boolattn-run-2"  # Of the files of runs
NO_ENCODER = "none"  # Name of the encoder in runs of systems that have none


@dataclass(frozen=True, kw_only=True)
class SystemSpec:
    """One system; ``systems.toml`` explains the fields."""

    name: str
    label: str
    base: str = ""
    kind: str = "trained"
    set: tuple[str, ...] = ()
    pretrain: bool = False
    query_modes: tuple[str, ...] = ("plain_text",)
    datasets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """An encoder; ``systems.toml`` explains the fields."""

    name: str
    label: str
    source: str
    presets: Mapping[str, str] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    query_prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """A data set and the splits that are reported; ``systems.toml`` explains the fields."""

    name: str
    label: str
    catalog: str
    splits: Mapping[str, str]
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, order=True)
class RunKey:
    """Identifies a run."""

    dataset: str
    encoder: str
    system: str
    seed: int

    @property
    def path(self) -> Path:
        """File of the run, below the folder of all runs."""
        return Path(self.dataset, self.encoder, f"{self.system}-{self.seed}{ENDING}")

    def __str__(self) -> str:
        return f"{self.dataset} {self.encoder} {self.system} {self.seed}"


class Table(dict[str, T]):
    """Systems, encoders or data sets by name; an unknown name is a user's error."""

    def __init__(self, kind: type[T], rows: Mapping[str, Mapping[str, Any]]) -> None:
        self.kind = kind.__name__.removesuffix("Spec").lower()
        for name, values in rows.items():
            self[name] = build(kind, {"name": name, **values}, source=f"systems.toml [{name}]")

    def __missing__(self, name: str) -> T:
        raise ConfigError(f"no {self.kind} {name!r}; there are {', '.join(self)}")


class Registry(NamedTuple):
    """All systems, encoders and data sets."""

    systems: Table[SystemSpec]
    encoders: Table[EncoderSpec]
    datasets: Table[DatasetSpec]


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Return what ``systems.toml`` defines."""
    tables = package_table("boolattn.reproduction", "systems.toml")
    systems: dict[str, dict[str, Any]] = {}
    for name, row in tables["system"].items():
        base = systems[row["base"]] if "base" in row else {}
        # The changes of the base come first.
        systems[name] = {**base, **row, "set": [*base.get("set", ()), *row.get("set", ())]}
    return Registry(
        Table(SystemSpec, systems),
        Table(EncoderSpec, tables["encoder"]),
        Table(DatasetSpec, tables["dataset"]),
    )


@dataclass(frozen=True)
class Run:
    """A finished run: its results on each split in each query mode.

    The gate of a result names the source of the operator labels: "oracle", "lexicon", "learned" or
    "none". Its detail ``query_mode`` is "plain_text" or "oracle_operators".
    """

    key: RunKey
    results: Sequence[Results]
    details: Mapping[str, Any]  # Settings, versions, seconds, metrics of (pre)training

    def save(self, folder: Path) -> None:
        """Write the run below the folder of all runs, atomically."""
        head = {"format": FORMAT, **asdict(self.key), "details": dict(self.details)}
        rows = (results.to_dict() for results in self.results)
        write_jsonl(folder / self.key.path, [head, *rows])

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read a run file."""
        rows = [row for _, row in read_jsonl(path)] or [{}]
        details = rows[0].get("details")
        if rows[0].get("format") != FORMAT or details is None:
            raise DataError(f"{path} is no run file of format {FORMAT}; remove it and run again")
        results = [Results.from_dict(row, path) for row in rows[1:]]
        return cls(RunKey(*(rows[0][item.name] for item in fields(RunKey))), results, details)


@dataclass(frozen=True)
class Line:
    """One system in one query mode with one source of operator labels, over its seeds."""

    system: str
    query_mode: str
    gate: str  # Source of the operator labels
    rows: dict[str, dict[int, Results]]  # By split and seed

    @property
    def label(self) -> str:
        """Name in tables."""
        return registry().systems[self.system].label

    def means(self, split: str, metric: str) -> list[float]:
        """Return the mean of each seed; those without a value are left out.

        ``mrr@10 not`` is over the queries with NOT.
        """
        name, _, operator = metric.partition(" ")
        means = []
        for results in self.rows.get(split, {}).values():
            groups = results.by("operator") if operator else {"": results}
            means += [groups[operator].means.get(name, np.nan)] if operator in groups else []
        return [value for value in means if not np.isnan(value)]

    def averaged(self, split: str, seeds: Iterable[int] | None = None) -> Results:
        """Average every query's values over seeds; default: all."""
        rows = self.rows[split]
        chosen = rows if seeds is None else sorted(seeds)
        return average([replace(rows[seed], system=self.label) for seed in chosen])

    def compare(
        self, other: Line | None, split: str, metrics: Sequence[str]
    ) -> dict[str, Comparison]:
        """Compare with another line on a split, by metric, over the seeds both have."""
        seeds = self.rows.get(split, {}).keys() & (other.rows.get(split, {}) if other else ())
        if other is None or other is self or not seeds or not metrics:
            return {}
        pair = (other.averaged(split, seeds), self.averaged(split, seeds))
        return compare_results(*pair, metrics=metrics)


@dataclass(frozen=True)
class LineTable:
    """All lines of one data set and encoder."""

    dataset: DatasetSpec
    encoder: str  # Name of the encoder
    lines: Sequence[Line]

    @property
    def encoder_label(self) -> str:
        """Name of the encoder in tables; empty where every system does without."""
        spec = registry().encoders.get(self.encoder)
        return spec.label if spec else ""

    @property
    def splits(self) -> list[str]:
        """Measured splits, in the order of the data set's."""
        measured = {split for line in self.lines for split in line.rows}
        return [split for split in self.dataset.splits if split in measured]

    def find(self, system: str, query_mode: str = "") -> Line | None:
        """Find a line; without a query mode, the first of the system."""
        lines = (line for line in self.lines if line.system == system)
        return next((x for x in lines if query_mode in ("", x.query_mode)), None)


def make_tables(runs: Iterable[Run]) -> list[LineTable]:
    """Lay out finished runs, in the order of the lines.

    Systems without an encoder come first in the table of every encoder of the data set.
    """
    lines: dict[tuple[str, str], dict[tuple[str, str, str], Line]] = {}
    for run in runs:
        table = lines.setdefault((run.key.dataset, run.key.encoder), {})
        for results in run.results:
            names = (run.key.system, results.details["query_mode"], results.gate)
            line = table.setdefault(names, Line(*names, {}))
            line.rows.setdefault(results.split, {})[run.key.seed] = results
    tables = []
    for (dataset, encoder), encoder_lines in lines.items():
        if encoder != NO_ENCODER or all(d != dataset or e == NO_ENCODER for d, e in lines):
            every = lines.get((dataset, NO_ENCODER), {}) | encoder_lines
            tables.append(LineTable(registry().datasets[dataset], encoder, [*every.values()]))
    return tables


def mean_and_deviation(means: Sequence[float]) -> str:
    """Write a mean over seeds, with its standard deviation where there are several.

    >>> mean_and_deviation([0.5, 0.52]), mean_and_deviation([0.5]), mean_and_deviation([])
    ('.510 ±.014', '.500', '–')
    """
    if not means:
        return "–"
    text = short(float(np.mean(means)))
    return f"{text} ±{short(float(np.std(means, ddof=1)))}" if len(means) > 1 else text


def parse_seeds(text: str) -> list[int]:
    """Parse seeds separated by commas; one that comes twice counts once."""
    try:
        return list(dict.fromkeys(int(seed) for seed in text.split(",")))
    except ValueError:
        raise ConfigError(f"seeds are whole numbers separated by commas, got {text!r}") from None
