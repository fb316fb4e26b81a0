"""Files of finished runs, with the values of every query, and of the queries of a data set."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import DataError
from boolattn.evaluation.benchmark import QueryInfo
from boolattn.evaluation.results import Results
from boolattn.files import atomic_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.evaluation.benchmark import Judgements

    Queries = tuple[QueryInfo, ...]

FORMAT = "boolattn-run-1"
ENDING = ".json.gz"
#: Name of the encoder in runs of systems that have none.
NO_ENCODER = "none"
#: Values are stored as multiples of 1/10,000: short, and exact enough for any test.
UNIT = 10_000
#: Names of query modes in older files.
_FORMER_MODES = {"own": "plain_text", "label": "oracle_operators"}
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError)


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

    @classmethod
    def of(cls, path: Path) -> RunKey:
        """Read the path of a run's file."""
        system, _, seed = path.name.removesuffix(ENDING).rpartition("-")
        return cls(path.parent.parent.name, path.parent.name, system, int(seed))

    def __str__(self) -> str:
        return f"{self.dataset} {self.encoder} {self.system} {self.seed}"


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
