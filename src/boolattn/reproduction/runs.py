"""Files of finished runs, with the values of every query.

``runs/<data set>/<encoder>/<system>-<seed>.json.gz`` holds the values of one run;
``runs/<data set>/queries.json.gz`` describes the queries of all runs on a data set.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Row:
    """Results of one query mode on one split.

    Attributes:
        query_mode: How the model was queried, by a name of ``systems.toml``.
        split: Split of the data set.
        gate: Source of the operator labels: "oracle", "lexicon", "learned" or "none".
        n_documents: Number of ranked documents.
        values: For each metric one number a query; nan where undefined.
    """

    query_mode: str
    split: str
    gate: str
    n_documents: int
    values: Mapping[str, NDArray[np.float64]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON stores them."""
        return {
            "query_mode": self.query_mode,
            "split": self.split,
            "gate": self.gate,
            "n_documents": self.n_documents,
            "means": {name: _rounded_mean(values) for name, values in self.values.items()},
            "values": {name: _packed(values) for name, values in self.values.items()},
        }

    def results(self, system: str, dataset: str, seed: int, queries: Queries) -> Results:
        """Return results that can be averaged, grouped and compared."""
        return Results(
            system=system,
            dataset=dataset,
            split=self.split,
            n_documents=self.n_documents,
            queries=queries,
            values=self.values,
            gate=self.gate,
            seed=seed,
        )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Row:
        """Read what :meth:`to_dict` returned, in this version or an older one."""
        mode = plain["query_mode"] if "query_mode" in plain else plain["ask"]
        values = {name: _unpacked(values) for name, values in plain["values"].items()}
        # Oracle operator labels were called "label".
        gate = plain["gate"].replace("label", "oracle", 1)
        return cls(mode, plain["split"], gate, plain["n_documents"], values)


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        key: Identifies it.
        rows: Results.
        details: Settings, versions, seconds, and metrics of pretraining and training.
    """

    key: RunKey
    rows: Sequence[Row]
    details: Mapping[str, Any]

    def save(self, folder: Path) -> Path:
        """Write the run below the folder of all runs, atomically."""
        path = folder / self.key.path
        rows = [row.to_dict() for row in self.rows]
        key, details = asdict(self.key), dict(self.details)
        _write_json(path, {"format": FORMAT, **key, "details": details, "rows": rows})
        return path

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read a run file."""
        plain = _read_json(path)
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise DataError(f"{path} is no run file of format {FORMAT}; remove it and run again")
        try:
            key = RunKey(plain["dataset"], plain["encoder"], plain["system"], plain["seed"])
            return cls(key, [Row.from_dict(row) for row in plain["rows"]], plain["details"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({error!r}); remove it and run again") from error


#: Columns of the file of queries: fields of QueryInfo, in the plural but for one.
_COLUMNS = {
    "ids": "id",
    "templates": "template",
    "operators": "operators",
    "domains": "domain",
    "wordings": "wording",
}


def save_queries(folder: Path, dataset: str, judged: Mapping[str, Judgements]) -> None:
    """Write the queries of a data set by split, unless they have been written."""
    if _queries_path(folder, dataset).is_file():
        return
    plain = {
        split: {
            column: [getattr(info, name) for info in judgements.infos]
            for column, name in _COLUMNS.items()
        }
        for split, judgements in judged.items()
    }
    _write_json(_queries_path(folder, dataset), plain)


def load_queries(folder: Path, dataset: str) -> dict[str, Queries]:
    """Read the queries of a data set, by split."""
    path = _queries_path(folder, dataset)
    try:
        return {
            split: tuple(
                QueryInfo(qid, template, tuple(operators), domain, wording)
                for qid, template, operators, domain, wording in zip(
                    *(table[name] for name in _COLUMNS), strict=True
                )
            )
            for split, table in _read_json(path).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error!r}); run again") from error


def _queries_path(folder: Path, dataset: str) -> Path:
    return folder / dataset / f"queries{ENDING}"


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


def _rounded_mean(values: NDArray[np.float64]) -> float | None:
    found = mean(values)
    return None if np.isnan(found) else round(found, 5)
