"""Files of finished runs, with the values of every query, and the lines of tables made of them."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import DataError, MissingDataError
from boolattn.evaluation.benchmark import QueryInfo
from boolattn.evaluation.results import Results, average, compare_results
from boolattn.evaluation.tables import short
from boolattn.files import atomic_file
from boolattn.reproduction.systems import ENDING, NO_ENCODER, QUERY_MODES, RunKey, registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.benchmark import Judgements
    from boolattn.evaluation.results import Comparison
    from boolattn.reproduction.systems import DatasetSpec

    Queries = tuple[QueryInfo, ...]

FORMAT = "boolattn-run-1"
#: Values are stored as multiples of 1/10,000: short, and exact enough for any test.
UNIT = 10_000
#: Names of query modes in older files.
_FORMER_MODES = {"own": "plain_text", "label": "oracle_operators"}
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError)


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
        plain = {**asdict(self.key), "details": dict(self.details)}
        plain["rows"] = [_packed(results) for results in self.results]
        _write_json(folder / self.key.path, {"format": FORMAT, **plain})

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read a run file; the queries are in a file of the data set's folder."""
        plain, key = _read_json(path), RunKey.of(path)
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise DataError(f"{path} is no run file of format {FORMAT}; remove it and run again")
        try:
            queries = load_queries(path.parents[1]) if plain["rows"] else {}
            results = [_unpacked(row, key, queries[row["split"]]) for row in plain["rows"]]
            return cls(key, results, plain["details"])
        except _DAMAGE as error:
            raise DataError(f"{path} is damaged ({error!r}); remove it and run again") from error


#: Columns of the file of queries: the fields of QueryInfo in their order.
_COLUMNS = ("ids", "templates", "operators", "domains", "wordings", "kinds")


def save_queries(folder: Path, judged: Mapping[str, Judgements]) -> None:
    """Write the queries of a data set by split; refuse others than have been written."""
    path, names = folder / f"queries{ENDING}", [item.name for item in fields(QueryInfo)]
    plain = {
        split: {
            column: [getattr(info, name) for info in judgements.infos]
            for column, name in zip(_COLUMNS, names, strict=True)
        }
        for split, judgements in judged.items()
    }
    if not path.is_file():
        _write_json(path, plain)
    elif _read_json(path) != json.loads(json.dumps(plain)):
        raise DataError(f"{path} has other queries; name another --out for these")


@lru_cache(maxsize=4)
def load_queries(folder: Path) -> dict[str, Queries]:
    """Read the queries of a data set, by split."""
    path = folder / f"queries{ENDING}"
    queries: dict[str, Queries] = {}
    try:
        for split, table in _read_json(path).items():
            # Older files have no kinds.
            columns = [table[name] for name in _COLUMNS if name != "kinds" or name in table]
            columns[2] = map(tuple, columns[2])
            queries[split] = tuple(QueryInfo(*row) for row in zip(*columns, strict=True))
    except _DAMAGE as error:
        raise DataError(f"{path} is damaged ({error!r}); run again") from error
    return queries


def _packed(results: Results) -> dict[str, Any]:
    means = results.overall.means.items()
    return {
        "query_mode": results.details["query_mode"],
        **{name: getattr(results, name) for name in ("split", "gate", "n_documents")},
        "means": {name: None if np.isnan(value) else round(value, 5) for name, value in means},
        "values": {
            name: [None if np.isnan(value) else round(value * UNIT) for value in values.tolist()]
            for name, values in results.values.items()
        },
    }


def _unpacked(row: Mapping[str, Any], key: RunKey, queries: Queries) -> Results:
    """Read the results of one split in one query mode, of this version or an older one."""
    mode = row["query_mode"] if "query_mode" in row else row["ask"]
    return Results(
        system=key.system,
        dataset=key.dataset,
        split=row["split"],
        n_documents=row["n_documents"],
        queries=queries,
        # A null becomes nan.
        values={name: np.array(v, np.float64) / UNIT for name, v in row["values"].items()},
        # Oracle operator labels were called "label".
        gate=row["gate"].replace("label", "oracle", 1),
        seed=key.seed,
        details={"query_mode": _FORMER_MODES.get(mode, mode)},
    )


def _read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    try:
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {path} ({error}); remove it and run again") from error


def _write_json(path: Path, plain: Mapping[str, Any]) -> None:
    with atomic_file(path) as handle:
        handle.write(json.dumps(plain, ensure_ascii=False, separators=(",", ":")) + "\n")


@dataclass(frozen=True)
class Line:
    """One system in one query mode with one source of operator labels, over its seeds."""

    system: str
    query_mode: str
    gate: str  # Source of the operator labels
    rows: dict[str, dict[int, Results]]  # By split and seed

    @property
    def label(self) -> str:
        """Name in tables; of a system that is not defined any more, its name."""
        spec = registry().systems.get(self.system)
        mode = "" if self.query_mode in QUERY_MODES else f", {self.query_mode}"
        return (spec.label if spec else self.system) + mode

    def means(self, split: str, metric: str) -> list[float]:
        """Return the mean of each seed; those without a value are left out.

        ``mrr@10 not`` is over the queries with NOT.
        """
        name, _, operator = metric.partition(" ")
        means = []
        for results in self.rows.get(split, {}).values():
            groups = results.by("operator") if operator else {"": results.overall}
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
        order = [split for split in self.dataset.splits if split in measured]
        return order + sorted(measured - set(order))

    def split_label(self, split: str) -> str:
        """Name of a split in tables."""
        return self.dataset.splits.get(split, split)

    def find(self, system: str, query_mode: str = "") -> Line | None:
        """Find a line; without a query mode, the first of the system."""
        for line in self.lines:
            if line.system == system and query_mode in ("", line.query_mode):
                return line
        return None


def load_tables(files: Iterable[Path]) -> list[LineTable]:
    """Read files of finished runs, in the order of the lines.

    Systems without an encoder come first in the table of every encoder of the data set.
    """
    lines: dict[tuple[str, str], dict[tuple[str, str, str], Line]] = {}
    for run in map(Run.load, files):
        table = lines.setdefault((run.key.dataset, run.key.encoder), {})
        for results in run.results:
            names = (run.key.system, results.details["query_mode"], results.gate)
            line = table.setdefault(names, Line(*names, {}))
            line.rows.setdefault(results.split, {})[run.key.seed] = results
    tables = []
    for (dataset, encoder), encoder_lines in lines.items():
        others = lines.get((dataset, NO_ENCODER), {}) if encoder != NO_ENCODER else {}
        is_alone = all(d != dataset or e == NO_ENCODER for d, e in lines)
        if encoder != NO_ENCODER or is_alone:
            every = [*others.values(), *encoder_lines.values()]
            tables.append(LineTable(registry().datasets[dataset], encoder, every))
    return tables


def all_runs(folder: Path) -> list[Path]:
    """List the files of the runs below a folder, in the order of ``systems.toml``."""
    known = registry()
    orders = [list(table) for table in (known.datasets, known.encoders, known.systems)]

    def position(path: Path) -> tuple[int | str, ...]:
        key = RunKey.of(path)
        names = zip((key.dataset, key.encoder, key.system), orders, strict=True)
        numbers = (order.index(name) if name in order else len(order) for name, order in names)
        return (*numbers, key.system, key.seed)

    files = sorted(folder.glob(f"*/*/*{ENDING}"), key=position)
    if not files:
        raise MissingDataError(f"no finished run below {folder}; run some first")
    return files


def mean_and_deviation(means: Sequence[float], digits: int = 3) -> str:
    """Write a mean over seeds, with its standard deviation where there are several.

    >>> mean_and_deviation([0.5, 0.52]), mean_and_deviation([0.5]), mean_and_deviation([])
    ('.510 ±.014', '.500', '–')
    """
    if not means:
        return "–"
    text = short(float(np.mean(means)), digits)
    return f"{text} ±{short(float(np.std(means, ddof=1)), digits)}" if len(means) > 1 else text
