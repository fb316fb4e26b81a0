"""What a store needs of a vector database: points, and how they are found.

The first passage of a document is the point whose key is the document's, its head, and holds all of
the document; further passages are points of their own. A point names the version of its document, a
hash of it: one of another version than the head's does not count.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from boolattn.errors import ConfigError, ServerError
from boolattn.stores.settings import check_format, no_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from typing import Self

    from boolattn.stores.base import Array
    from boolattn.stores.filters import Filter
    from boolattn.stores.settings import StoreSettings

    #: Format, settings, collection, mean length of documents, and fields of the metadata.
    State = dict[str, Any]
    Row = dict[str, Any]

logger = logging.getLogger(__name__)

FORMAT = 2
#: The point with the state of the store; no document has its key.
STATE = 0
#: Parts of points that are no passages: the state, and what a database keeps for itself.
NO_PASSAGE = -1
#: What is searched: vectors of passages, and words of heads.
VECTOR, WORDS = "vector", "words"
#: Fewest candidates of a graph; never fewer than the neighbours.
CANDIDATES = 128
#: Points and estimated bytes of one request; a server takes some 32 MB.
_MAX_POINTS, _MAX_BYTES = 500, 1 << 24
#: Of a store.
_NAME = re.compile(r"[A-Za-z_][\w-]{0,200}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Point:
    """A passage of a document, or the state of the store."""

    key: int
    document: int  # key of its head
    part: int  # number of the passage; 0: the head
    version: str
    vector: Array | None = None
    tags: Sequence[str] = ()
    numbers: dict[str, float] = field(default_factory=dict)  # by :func:`number_key`
    asserted: Sequence[str] = ()  # terms, the most frequent ones first
    #: What only heads have.
    denied: Sequence[str] = ()
    words: dict[int, int] = field(default_factory=dict)  # counts by :func:`term_index`
    id: str = ""
    n_passages: int = 0
    body: str = "{}"  # JSON


class Match(NamedTuple):
    """A point that a search found."""

    document: int
    part: int
    version: str
    score: float


class PointDatabase(ABC):
    """A collection of a vector database, which need not be there yet."""

    label: str  # the address, which names it in errors
    name: str  # of the store, an alias of a collection
    collection: str  # the collection, or the alias
    settings: StoreSettings  # of the store, once they are known
    limit: int | None = None  # maximum number of results of one search
    has_idf: bool = False  # whether the database itself multiplies weights of words by rarity
    is_exact: bool = False  # whether a search compares every point, whatever the settings say
    has_contains: bool = False  # whether it can look for a part of a value
    mean_length: float = 1.0  # of documents, where words are weighted when they are written
    precisions: Sequence[str]  # how vectors can be stored

    @abstractmethod
    def __init__(self, address: str) -> None: ...

    def at(self, collection: str) -> Self:
        """Return the same database with another collection."""
        other = copy.copy(self)
        other.collection = collection
        return other

    @contextmanager
    def writing(self, *, is_build: bool = False) -> Iterator[Self]:
        """Yield the database to write to: all of it at once, where there are transactions.

        A build is written in several.
        """
        yield self

    @abstractmethod
    def target(self) -> str:
        """Return the collection that the store's name stands for; empty: there is none."""

    def known_target(self) -> str:
        """Return that collection; refuse a name that stands for none."""
        if target := self.target():
            return target
        raise no_index(self.label)

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all collections."""

    @abstractmethod
    def create(self) -> None:
        """Make the collection, for vectors as the settings say."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until the database has indexed all that was written."""

    @abstractmethod
    def switch(self, old: str) -> None:
        """Make the store's name stand for the collection, in place of an old one, in one step."""

    @abstractmethod
    def drop(self, collection: str) -> None:
        """Remove a collection."""

    @abstractmethod
    def dimension(self) -> int:
        """Return the length of vectors; 0 where they are not compared by inner product."""

    def create_index(self, _name: str) -> None:  # noqa: B027
        """Prepare to filter by a number, ``numbers.…``; by default there is nothing to do."""

    @abstractmethod
    def insert(self, points: list[Point]) -> None:
        """Write points, in place of those with the same keys."""

    @abstractmethod
    def get(
        self, keys: Iterable[int], names: list[str], *, with_vectors: bool = False
    ) -> dict[int, Row]:
        """Return some of id, version, n_passages, asserted, denied, body and vector of points.

        Unknown points are absent, and so is what a point does not have. The body is parsed.
        """

    @abstractmethod
    def search(
        self, field: str, vectors: Sequence[Any], n: int, where: Filter
    ) -> list[list[Match]]:
        """Return the ``n`` points of highest inner product, all vectors in one request.

        The field is ``VECTOR`` or ``WORDS``, whose vectors are weights of terms.
        """

    @abstractmethod
    def count(self, where: Filter | None, term: str = "") -> int:
        """Return the number of documents that pass a filter, and have a term.

        Without a filter it is the number of all passages.
        """

    @abstractmethod
    def passing(self, keys: Sequence[int], where: Filter) -> set[int]:
        """Return which of some documents pass a filter."""

    @abstractmethod
    def heads(self, start: int, n: int) -> list[int]:
        """Return the ``n`` smallest keys of documents from ``start`` on, in order."""

    @abstractmethod
    def delete(self, keys: Collection[int]) -> None:
        """Delete points, in one step."""

    @abstractmethod
    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
        """Delete what documents have beside their heads, but for some versions."""

    def upsert(self, points: Iterable[Point]) -> None:
        """Write points in order, some of them at a time."""
        waiting: list[Point] = []
        n_bytes = 0
        for point in points:
            size = 4 * len(point.body) + 16 * len(point.asserted) + 24 * self.settings.dimension
            if len(waiting) >= _MAX_POINTS or (waiting and n_bytes + size > _MAX_BYTES):
                self.insert(waiting)
                waiting, n_bytes = [], 0
            waiting.append(point)
            n_bytes += size
        if waiting:
            self.insert(waiting)

    def points(self, keys: Iterable[int]) -> dict[int, list[int]]:
        """Return the points of each document, in order."""
        if not self.settings.passages:
            return {key: [key] for key in keys}
        rows = self.get(keys, ["id", "version", "n_passages"])
        return {
            key: [key, *passage_keys(row["id"], row["version"], row["n_passages"])]
            for key, row in rows.items()
        }

    def similarities(self, vectors: Array, keys: Iterable[int]) -> dict[int, Array]:
        """Return the similarities of documents to vectors: those of their best points."""
        points = self.points(keys)
        scores = self.scores(vectors, [point for listed in points.values() for point in listed])
        known = {key: [scores[p] for p in listed if p in scores] for key, listed in points.items()}
        return {key: np.max(rows, axis=0) for key, rows in known.items() if rows}

    def scores(self, vectors: Array, keys: Iterable[int]) -> dict[int, Array]:
        """Return the similarities of points to vectors; by default the points are read."""
        rows = self.get(keys, [], with_vectors=True)
        known = [key for key, row in rows.items() if "vector" in row]
        if not known:
            return {}
        products = np.stack([rows[key]["vector"] for key in known]) @ vectors.T
        return dict(zip(known, products, strict=True))

    def read_state(self) -> State:
        """Read what the store says of itself."""
        return self.checked_state(self.get([STATE], ["body"]).get(STATE, {}).get("body"))

    def checked_state(self, state: object) -> State:
        """Refuse a state of another format."""
        known: State = state if isinstance(state, dict) else {}
        check_format(self.label, known.get("format"), FORMAT)
        return known

    def write_state(self, state: State) -> None:
        """Write what the store says of itself."""
        self.upsert(
            [Point(key=STATE, document=STATE, part=NO_PASSAGE, version="", body=json.dumps(state))]
        )


def parse_address(address: str, kind: str, secret: str) -> tuple[str, str]:
    """Return the URL of a server or the path of a folder or file, and the name of the store.

    >>> parse_address("qdrant+https://example.org:6333/recipes", "qdrant", "QDRANT_API_KEY")
    ('https://example.org:6333', 'recipes')
    >>> parse_address("milvus:data/notes.db/notes", "milvus", "MILVUS_TOKEN")
    ('data/notes.db', 'notes')
    """
    scheme, _, rest = address.partition(":")
    target, _, name = rest.rpartition("/")
    if rest.startswith("//"):
        if "@" in rest or "?" in rest:
            raise ConfigError(f"an address holds no key: set {secret} in the environment")
        try:
            url = urlsplit(f"{'https' if scheme.endswith('+https') else 'http'}:{target}")
            is_server = bool(url.hostname) and not url.path and url.port != 0
        except ValueError:
            is_server = False
        target = url.geturl() if is_server else ""
    if scheme not in (kind, f"{kind}+https") or not target or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{address!r} is no address of a store: write {kind}://HOST:PORT/NAME or "
            f"{kind}:PATH/NAME, with a name of letters, digits, - and _"
        )
    return target, name


@contextmanager
def one_line(label: str, errors: tuple[type[BaseException], ...]) -> Iterator[None]:
    """Turn errors of a client into one line."""
    try:
        yield
    except errors as error:
        text = getattr(error, "message", None) or getattr(error, "details", error.__str__)()
        text = getattr(getattr(error, "diag", None), "message_primary", None) or text  # of Postgres
        line = " ".join(str(text).split())[:300] or type(error).__name__
        raise ServerError(f"{label}: {line}") from error


def key_of(*names: object) -> int:
    """Return the key of a document by its id, or of what else some names stand for.

    It is 63 bits of a hash, and never 0.
    """
    text = "\n".join(map(str, (len(names), *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1 or 1


def passage_keys(name: str, version: str, n_passages: int) -> list[int]:
    """Return the keys of a document's further passages."""
    return [key_of(name, version, part) for part in range(1, n_passages)]


def term_index(term: str) -> int:
    """Return the number of a term in sparse vectors, of 32 bits, neither the first nor the last.

    >>> 0 < term_index("moth") < 2**32 - 1
    True
    """
    return int.from_bytes(hashlib.sha256(term.encode()).digest()[:8]) % (2**32 - 3) + 1


def number_key(name: str) -> str:
    """Return a name of numbers that is safe in a path."""
    return "n" + hashlib.sha256(name.encode()).hexdigest()[:16]


@contextmanager
def warned(message: str) -> Iterator[None]:
    """Make errors of cleaning up warnings: what mattered is done."""
    try:
        yield
    except ServerError as error:
        logger.warning("%s: %s", message, error)
