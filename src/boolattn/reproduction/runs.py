"""Finished runs on disk: one small file each, with every query's values.

``runs/<data set>/<encoder>/<system>-<seed>.json.gz`` holds the values; what they are values of
stands once for a data set, in ``runs/<data set>/queries.json.gz``.
May import: boolattn.evaluation, boolattn.files, boolattn.errors.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import DataError
from boolattn.evaluation.judgements import QueryInfo
from boolattn.evaluation.results import Results
from boolattn.files import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.evaluation.judgements import Judgements

FORMAT = "boolattn-run-1"
ENDING = ".json.gz"
#: Values are kept as whole ten-thousandths: short, and exact enough for any test.
UNIT = 10_000


@dataclass(frozen=True, order=True)
class RunKey:
    """Which run."""

    dataset: str
    encoder: str
    system: str
    seed: int

    @property
    def path(self) -> Path:
        """Its file below the folder of all runs."""
        return Path(self.dataset, self.encoder, f"{self.system}-{self.seed}{ENDING}")

    def __str__(self) -> str:
        return f"{self.dataset} {self.encoder} {self.system} {self.seed}"


@dataclass(frozen=True)
class Row:
    """One way a model was asked, on one split.

    Attributes:
        ask: How.
        split: Which queries.
        gate: Who opened the gates, for tables.
        n_documents: How many were ranked.
        values: One number a query for each metric; nan where undefined.
    """

    ask: str
    split: str
    gate: str
    n_documents: int
    values: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        key: Which.
        rows: What was measured.
        details: Settings, versions, seconds, and what its heads can do.
    """

    key: RunKey
    rows: Sequence[Row]
    details: Mapping[str, Any]

    def save(self, folder: Path) -> Path:
        """Write it below the folder of all runs, whole or not at all."""
        plain = {
            "format": FORMAT,
            "dataset": self.key.dataset,
            "encoder": self.key.encoder,
            "system": self.key.system,
            "seed": self.key.seed,
            "details": self.details,
            "rows": [
                {
                    "ask": row.ask,
                    "split": row.split,
                    "gate": row.gate,
                    "n_documents": row.n_documents,
                    "means": {name: _mean(values) for name, values in row.values.items()},
                    "values": {name: _packed(values) for name, values in row.values.items()},
                }
                for row in self.rows
            ],
        }
        path = folder / self.key.path
        with atomic_file(path) as handle:
            handle.write(json.dumps(plain, ensure_ascii=False, separators=(",", ":")) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Run:
        """Read what :meth:`save` wrote."""
        plain = read_json(path)
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise DataError(f"{path} is no run in format {FORMAT}; remove it and run again")
        try:
            key = RunKey(plain["dataset"], plain["encoder"], plain["system"], plain["seed"])
            rows = [
                Row(
                    row["ask"],
                    row["split"],
                    row["gate"],
                    row["n_documents"],
                    {name: _unpacked(values) for name, values in row["values"].items()},
                )
                for row in plain["rows"]
            ]
            return cls(key, rows, plain["details"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is damaged ({error!r}); remove it and run again") from error


def save_queries(folder: Path, dataset: str, asked: Mapping[str, Judgements]) -> None:
    """Write what the values of a data set's runs are values of."""
    plain = {
        split: {
            "ids": list(judged.ids),
            "templates": [info.template for info in judged.infos],
            "operators": [list(names) for names in judged.operators],
            "domains": [info.domain for info in judged.infos],
            "wordings": [info.wording for info in judged.infos],
        }
        for split, judged in asked.items()
    }
    with atomic_file(_queries_path(folder, dataset)) as handle:
        handle.write(json.dumps(plain, ensure_ascii=False, separators=(",", ":")) + "\n")


def load_queries(folder: Path, dataset: str) -> dict[str, tuple[QueryInfo, ...]]:
    """Read what :func:`save_queries` wrote, by split."""
    path = _queries_path(folder, dataset)
    names = ("ids", "templates", "operators", "domains", "wordings")
    try:
        return {
            split: tuple(
                QueryInfo(qid, template, tuple(operators), domain, wording)
                for qid, template, operators, domain, wording in zip(
                    *(table[name] for name in names), strict=True
                )
            )
            for split, table in read_json(path).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged ({error!r}); run again") from error


def all_runs(folder: Path) -> Iterator[Path]:
    """Find the files of finished runs."""
    yield from sorted(folder.glob(f"*/*/*{ENDING}"))


def results(run: Run, row: Row, queries: Sequence[QueryInfo], label: str) -> Results:
    """Turn a row into results that can be compared."""
    return Results(
        system=label,
        dataset=run.key.dataset,
        split=row.split,
        n_documents=row.n_documents,
        queries=tuple(queries),
        values=row.values,
        gate=row.gate,
        seed=run.key.seed,
    )


def read_json(path: Path) -> Any:  # noqa: ANN401 - anything JSON has
    """Read a packed JSON file."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            return json.load(handle)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"cannot read {path} ({error}); remove it and run again") from error


def _queries_path(folder: Path, dataset: str) -> Path:
    return folder / dataset / f"queries{ENDING}"


def _packed(values: NDArray[np.float64]) -> list[int | None]:
    return [None if np.isnan(v) else round(v * UNIT) for v in values.tolist()]


def _unpacked(values: Sequence[int | None]) -> NDArray[np.float64]:
    return np.array([np.nan if v is None else v / UNIT for v in values], dtype=np.float64)


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 5) if len(known) else None
