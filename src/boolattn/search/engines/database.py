"""Engines whose vectors are in a database: an embedded one, or a server or cluster by its address.

The database finds neighbours, filters and deletes; documents, and the vectors of composed scores,
stay in the index's folder. Metadata are stored as tags (a field's name with the hash of its value)
and numbers, so that filters mean the same in every engine. Rows are written before the manifest
and deleted after it: what a killed writer left is masked, and removed by the next write. Keys and
passwords are read from the environment and never stored.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from itertools import product
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

import numpy as np

from boolattn.errors import BoolattnError, ConfigError, IndexFolderError
from boolattn.scoring.exact import Ranked
from boolattn.search.engines.tuning import TunedEngine
from boolattn.search.filters import RANGES, Condition
from boolattn.search.storage.manifest import read_manifest
from boolattn.search.storage.segments import COMPARED
from boolattn.search.storage.values import filter_hash, items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.search.engines.base import Engine, Job, Selection
    from boolattn.search.storage.manifest import FileEntry, Manifest
    from boolattn.search.storage.segments import Array, RowNumbers, Rows
    from boolattn.search.storage.values import Metadata

    #: Rows and inner products of each query.
    Answers = list[tuple[list[int], list[float]]]

_N_SAMPLE, _QUERIES, _MAX_TAGS = 50, 16, 1024
_FIRST_EFFORT, _MOST_EFFORT = 32, 4096
_EXISTS = 0  # in place of a hash: the field has a value


class Entry(NamedTuple):
    """A row as a database stores it."""

    row: int
    vector: Array
    tags: list[str]
    numbers: dict[str, float]

    @property
    def plain_numbers(self) -> dict[str, float]:
        """Numbers by plain names, whatever the fields are called."""
        return {_plain(name): value for name, value in self.numbers.items()}


class Collection(Protocol):
    """A collection or table, by its name: all that differs from one database to another."""

    label: str  # says in errors which it is
    default: ClassVar[str] = ""  # a path inside the index, where an address may be left out
    schemes: ClassVar[tuple[str, ...]] = ("http://", "https://")
    batch: ClassVar[int] = 1000  # most rows of one insertion
    limit: ClassVar[int | None] = None  # most results of one search
    is_exact: ClassVar[bool] = False  # whether it has no graph to tune

    def __init__(self, address: str, name: str) -> None:
        """Connect; the collection need not be there yet."""

    def names(self) -> list[str]:
        """Return the names of all collections."""

    def drop(self, name: str) -> None:
        """Remove a collection."""

    def create(self, dimension: int, max_tags: int) -> None:
        """Create the collection. Similarity is the inner product, for length 1 the cosine."""

    def insert(self, entries: Sequence[Entry]) -> None:
        """Add rows."""

    def finish(self, *, is_new: bool) -> None:
        """Wait until inserted rows are stored, and in the graph."""

    def delete(self, rows: Sequence[int]) -> None:
        """Delete rows."""

    def delete_from(self, row: int) -> None:
        """Delete a row and all after it."""

    def count(self) -> int:
        """Return the number of rows, ready to be searched."""

    def search(self, queries: Array, n: int, effort: int, selection: Selection) -> Answers:
        """Return rows that meet the selection's conditions, and their inner products."""


class DatabaseEngine(TunedEngine):
    """A collection opened for searching."""

    collection: ClassVar[type[Collection]]

    def __init__(self, own: Collection, rows: Rows, settings: Mapping[str, Any]) -> None:
        super().__init__(rows, settings)
        self._own, self.limit, found = own, own.limit, own.count()
        if found < rows.n_live:
            raise IndexFolderError(
                f"{own.label} holds {found} of the index's {rows.n_live} vectors; index again"
            )
        # A killed writer may have left rows, or not have deleted some yet.
        self._n_extra = found - rows.n_live

    def search(self, queries: Array, n: int, selection: Selection) -> Ranked:
        """Search the collection, with the filters in the database's own terms."""
        n = min(n, len(self._rows), self.limit or len(self._rows))
        most = min(n + self._n_extra, self.limit or n + self._n_extra)
        # Candidates of its graph; never fewer than the results.
        effort = most if self._own.is_exact else round(max(self.effort_for(n), most))
        queries = np.ascontiguousarray(queries, np.float32)
        rows = np.full((len(queries), n), -1, np.int64)
        scores = np.full((len(queries), n), -np.inf, np.float32)
        # Few at a time, so that many queries do not exceed the time of one call.
        for start in range(0, len(queries), _QUERIES):
            part = queries[start : start + _QUERIES]
            for place, answer in enumerate(self._own.search(part, most, effort, selection), start):
                own, values = np.array(answer[0], np.int64), np.array(answer[1], np.float32)
                if not np.isfinite(values).all():
                    raise IndexFolderError(f"{self._own.label} is damaged; index again")
                inside = own < len(self._rows)
                allowed = np.flatnonzero(inside & selection.allows(np.where(inside, own, -1)))
                # A graph may give them only nearly in order.
                chosen = allowed[np.argsort(-values[allowed], kind="stable")][:n]
                rows[place, : len(chosen)] = own[chosen]
                scores[place, : len(chosen)] = values[chosen]
        return Ranked(rows, scores)

    @classmethod
    def check_uri(cls, uri: str, engine: str) -> None:
        """Refuse an address that is missing, of another kind, or with a password."""
        kind = cls.collection
        wanted = " or ".join(f"{scheme}…" for scheme in kind.schemes)
        if "://" in uri:
            try:
                split = urlsplit(uri)
            except ValueError as error:
                raise ConfigError(f"{uri!r} is no address: {error}") from error
            if split.password or "password" in parse_qs(split.query):
                raise ConfigError("the index stores its uri; set the password in the environment")
            if not uri.startswith(kind.schemes):
                raise ConfigError(f"{engine} takes an address like {wanted}, not {uri!r}")
        elif not kind.default:
            raise ConfigError(f"{engine} needs the address of a server: --uri {wanted}")

    @classmethod
    def reach(cls, uri: str) -> None:
        """Raise if the server at an address does not answer."""
        if "://" in uri:
            cls.collection(uri, "").names()

    @classmethod
    def write(cls, job: Job) -> tuple[dict[str, Any], dict[str, FileEntry]]:
        """Create a collection, or add rows to an existing one."""
        rows, settings = job.rows, job.manifest.engine_settings
        # A name of its own: of a killed build, Milvus Lite keeps a folder that it does not list.
        new = f"{_prefix(job.folder)}_{job.manifest.generation}x{token_hex(4)}"
        uri, name = settings.get("uri", job.uri), settings.get("collection", new)
        own = cls.collection(cls._address(job.folder, uri), name)
        if not job.first_row:
            _drop_stale(own, job.folder)
            own.create(job.manifest.dimension, _MAX_TAGS)
        else:
            own.delete_from(job.first_row)  # rows of a killed writer
        for start in range(job.first_row, len(rows), own.batch):
            own.insert(_entries(rows, start, min(start + own.batch, len(rows))))
        own.finish(is_new=not job.first_row)
        engine, limits = cls(own, rows, {}), (_FIRST_EFFORT, _MOST_EFFORT)
        tuned = {} if own.is_exact else engine.tune(job.sample()[:_N_SAMPLE], *limits)
        return {"uri": uri, "collection": name, **tuned}, {}

    @classmethod
    def open(cls, folder: Path, manifest: Manifest, rows: Rows) -> Engine:
        """Open a collection."""
        return cls(cls._opened(folder, manifest), rows, manifest.engine_settings)

    @classmethod
    def delete_rows(cls, folder: Path, manifest: Manifest, rows: RowNumbers) -> None:
        """Delete rows of the collection."""
        own, numbers = cls._opened(folder, manifest), rows.tolist()
        for start in range(0, len(numbers), own.batch):
            own.delete(numbers[start : start + own.batch])
        own.finish(is_new=False)

    @classmethod
    def _opened(cls, folder: Path, manifest: Manifest) -> Collection:
        settings = manifest.engine_settings
        return cls.collection(cls._address(folder, settings["uri"]), settings["collection"])

    @classmethod
    def _address(cls, folder: Path, uri: str) -> str:
        """Return the address, or the path of an embedded database; left out, one in the index."""
        return uri if "://" in uri else str(folder.resolve() / (uri or cls.collection.default))


def stored_condition(condition: Condition) -> Condition:
    """Return a condition as one on what is stored: tags, or a number by a plain name."""
    kind, name = condition.kind, condition.name
    if kind in RANGES:
        column = _plain(number_name(condition.column, name))
        return Condition(f"numbers.{column}", kind, condition.values)
    hashes = (_EXISTS,) if kind == "exists" else condition.hashes
    is_negated = kind == "not" or (kind == "exists" and not condition.values[0])
    # Without a value no row may match: nothing has an empty tag.
    tags = tuple(_tag(name, one) for one in hashes) or ("",)
    return Condition("tags", "not" if is_negated else "in", tags)


def number_name(kind: str, name: str) -> str:
    """Return the name under which the numbers of a field are stored."""
    return f"{kind}:{name if name.isprintable() else _hash(name)}"


def _plain(column: str) -> str:
    return "n" + _hash(column)[:16]


def _entries(rows: Rows, start: int, end: int) -> list[Entry]:
    chosen = np.arange(start, end)
    vectors, columns = rows.vectors(chosen), {}
    for kind, name in product(COMPARED, rows.names()):
        if rows.has_column(f"{kind}:{name}"):
            columns[number_name(kind, name)] = rows.column(f"{kind}:{name}")
    numbers = np.searchsorted(rows.first_rows, chosen, side="right") - 1
    return [
        Entry(
            row,
            vectors[place],
            _tags(rows.document(number).metadata),
            # NaN, which is not equal to itself, is no value.
            {n: float(v[number]) for n, v in columns.items() if v[number] == v[number]},
        )
        for place, (row, number) in enumerate(zip(chosen.tolist(), numbers.tolist(), strict=True))
    ]


def _tags(metadata: Metadata) -> list[str]:
    """Return a tag for each field, and one for each of its values; Milvus has a limit."""
    found = [_tag(name, _EXISTS) for name in metadata]
    for name, value in metadata.items():
        found += [_tag(name, filter_hash(one)) for one in items(value)]
    return list(dict.fromkeys(found))[:_MAX_TAGS]


def _tag(name: str, value: int) -> str:
    is_plain = len(name) < 64 and name.isprintable()
    return f"{name if is_plain else _hash(name)}={value:016x}"


def _drop_stale(own: Collection, folder: Path) -> None:
    """Drop the collections of earlier builds, but for the one in use."""
    in_use = ""
    with suppress(BoolattnError):
        in_use = read_manifest(folder).engine_settings.get("collection", "")
    for name in own.names():
        if name.startswith(_prefix(folder) + "_") and name != in_use:
            own.drop(name)


def _prefix(folder: Path) -> str:
    return "boolattn_" + _hash(str(folder.resolve()))[:12]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
