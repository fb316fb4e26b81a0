"""Files of finished runs, with the values of every query, and of the queries of a data set."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import DataError
from boolattn.evaluation.judgements import QueryInfo
from boolattn.evaluation.metrics import mean
from boolattn.evaluation.results import Results
from boolattn.files import atomic_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.evaluation.judgements import Judgements

    Queries = tuple[QueryInfo, ...]

FORMAT = "boolattn-run-1"
ENDING = ".json.gz"
#: Name of the encoder in runs of systems that have none.
NO_ENCODER = "none"
#: Values are stored as multiples of 1/10,000: short, and exact enough for any test.
UNIT = 10_000
#: Names of query modes in older files.
_FORMER_MODES = {"own": "plain_text", "label": "oracle_operators"}


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
class Row:
    """Results of one query mode on one split."""

    query_mode: str  # "plain_text" or "oracle_operators"; older files have others
    split: str
    gate: str  # Source of the operator labels: "oracle", "lexicon", "learned" or "none"
    n_documents: int
    values: Mapping[str, NDArray[np.float64]]  # One number a query; nan where undefined

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON stores them."""
        means = {name: mean(values) for name, values in self.values.items()}
        return {
            **{name: value for name, value in vars(self).items() if name != "values"},
            "means": {name: None if np.isnan(v) else round(v, 5) for name, v in means.items()},
            "values": {name: _packed(values) for name, values in self.values.items()},
        }

    def results(self, system: str, dataset: str, seed: int, queries: Queries) -> Results:
        """Return results that can be averaged, grouped and compared."""
        values = {name: value for name, value in vars(self).items() if name != "query_mode"}
        return Results(system=system, dataset=dataset, queries=queries, seed=seed, **values)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Row:
        """Read what :meth:`to_dict` returned, in this version or an older one."""
        mode = plain["query_mode"] if "query_mode" in plain else plain["ask"]
        mode = _FORMER_MODES.get(mode, mode)
        values = {name: _unpacked(values) for name, values in plain["values"].items()}
        # Oracle operator labels were called "label".
        gate = plain["gate"].replace("label", "oracle", 1)
        return cls(mode, plain["split"], gate, plain["n_documents"], values)


@dataclass(frozen=True)
class Run:
    """A finished run."""

    key: RunKey
    rows: Sequence[Row]
    details: Mapping[str, Any]  # Settings, versions, seconds, metrics of (pre)training

    def save(self, folder: Path) -> Path:
        """Write the run below the folder of all runs, atomically."""
        rows = [row.to_dict() for row in self.rows]
        plain = {**asdict(self.key), "details": dict(self.details), "rows": rows}
        _write_json(folder / self.key.path, {"format": FORMAT, **plain})
        return folder / self.key.path

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read a run file."""
        plain = _read_json(path)
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise DataError(f"{path} is no run file of format {FORMAT}; remove it and run again")
        try:
            rows = [Row.from_dict(row) for row in plain["rows"]]
            return cls(RunKey.of(path), rows, plain["details"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({error!r}); remove it and run again") from error


#: Columns of the file of queries: the fields of QueryInfo in their order.
_COLUMNS = ("ids", "templates", "operators", "domains", "wordings", "kinds")


def save_queries(folder: Path, dataset: str, judged: Mapping[str, Judgements]) -> None:
    """Write the queries of a data set by split; refuse others than have been written."""
    path, names = folder / dataset / f"queries{ENDING}", [item.name for item in fields(QueryInfo)]
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


def load_queries(folder: Path, dataset: str) -> dict[str, Queries]:
    """Read the queries of a data set, by split."""
    path = folder / dataset / f"queries{ENDING}"
    try:
        return {
            split: tuple(
                QueryInfo(qid, template, tuple(operators), *rest)
                for qid, template, operators, *rest in zip(
                    # Older files have no kinds.
                    *(table[name] for name in _COLUMNS if name != "kinds" or name in table),
                    strict=True,
                )
            )
            for split, table in _read_json(path).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error!r}); run again") from error


def _read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    try:
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {path} ({error}); remove it and run again") from error


def _write_json(path: Path, plain: Mapping[str, Any]) -> None:
    with atomic_file(path) as handle:
        handle.write(json.dumps(plain, ensure_ascii=False, separators=(",", ":")) + "\n")


def _packed(values: NDArray[np.float64]) -> list[int | None]:
    return [None if np.isnan(v) else round(v * UNIT) for v in values.tolist()]


def _unpacked(values: Sequence[int | None]) -> NDArray[np.float64]:
    return np.array([np.nan if v is None else v / UNIT for v in values], dtype=np.float64)
