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
from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.errors import ServerError
from boolattn.stores.base import ServerStore
from boolattn.stores.settings import check_format, no_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from typing import Self

    from boolattn.stores.filters import Filter

    #: Format, settings, collection, mean length of documents, and fields of the metadata.
    State = dict[str, Any]
    Row = dict[str, Any]
    Matches = list[list["Match"]]  # of each vector

logger = logging.getLogger(__name__)

FORMAT = 3
#: The point with the state of the store; no document has its key, and it is no passage.
STATE, NO_PASSAGE = 0, -1
#: What is searched: vectors of passages, and words of heads.
VECTOR, WORDS = "vector", "words"
#: Fewest candidates of a graph; never fewer than the neighbours.
CANDIDATES = 128
#: What a point has beside its key, the key of its head (document), the number of its passage
#: (part; 0: the head) and the version. Numbers are by :func:`number_key`, asserted terms are the
#: most frequent ones first, and words are counts by :func:`term_index`. The body is JSON.
EMPTY: Row = {VECTOR: None, "tags": [], "numbers": {}, "asserted": [], "denied": [], WORDS: {}}
EMPTY |= {"id": "", "n_passages": 0, "body": "{}"}
#: Points and estimated bytes of one request; a server takes some 32 MB.
_MAX_POINTS, _MAX_BYTES = 250, 1 << 24


class Match(NamedTuple):
    """A point that a search found."""

    document: int
    score: float
    part: int = 0
    version: str = ""


class PointDatabase(ServerStore):
    """A collection of a vector database, which need not be there yet."""

    precisions: Sequence[str] = ("float32",)  # how vectors can be stored
    has_idf: bool = False  # whether the database itself multiplies weights of words by rarity
    is_exact: bool = False  # whether a search compares every point, whatever the settings say
    mean_length: float = 1.0  # of documents, where words are weighted when they are written

    def __init__(self, address: str) -> None:
        self.label = self.address = address
        #: The collection has another name than the store, or is named by it, its alias.
        self.name = self.collection = self.connect()

    @abstractmethod
    def connect(self) -> str:
        """Prepare a connection to the address; return the name of the store."""

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
    def create_collection(self) -> None:
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

    def create_index(self, _name: str) -> None:
        """Prepare to filter by a number, ``numbers.…``; by default there is nothing to do."""

    @abstractmethod
    def insert(self, points: list[Row]) -> None:
        """Write points, in place of those with the same keys."""

    @abstractmethod
    def get(self, keys: Iterable[int], *names: str) -> dict[int, Row]:
        """Return some values of points; unknown points are absent. The body is parsed."""

    @abstractmethod
    def search(self, field: str, vectors: Sequence[Any], n: int, where: Filter) -> Matches:
        """Return the ``n`` points of highest inner product, all vectors in one request.

        The field is ``VECTOR`` or ``WORDS``, whose vectors are weights of terms.
        """

    @abstractmethod
    def n_passages(self) -> int:
        """Return the number of points that are passages."""

    @abstractmethod
    def count(self, where: Filter, term: str = "") -> int:
        """Return the number of documents that pass a filter, and have a term."""

    @abstractmethod
    def select(self, where: Filter, n: int, keys: Sequence[int] | None = None) -> list[int]:
        """Return the ``n`` smallest keys of documents that pass a filter, or those among some."""

    @abstractmethod
    def remove(self, keys: Collection[int]) -> None:
        """Delete points, in one step."""

    @abstractmethod
    def remove_rest(self, documents: Collection[int], versions: Collection[str]) -> None:
        """Delete what documents have beside their heads, but for some versions."""

    def upsert(self, points: Iterable[Row]) -> None:
        """Write points in order, some of them at a time."""
        waiting, n_bytes = list[Any](), 0
        for point in points:
            waiting.append(point)
            n_bytes += 4 * len(point["body"]) + 16 * len(point["asserted"])
            n_bytes += 24 * self.settings.dimension
            if len(waiting) >= _MAX_POINTS or n_bytes > _MAX_BYTES:
                self.insert(waiting)
                waiting, n_bytes = [], 0
        if waiting:
            self.insert(waiting)

    def read_state(self) -> State:
        """Read what the store says of itself; refuse a state of another format."""
        state = self.state()
        known: State = state if isinstance(state, dict) else {}
        check_format(self.label, known.get("format"), FORMAT)
        return known

    def state(self) -> object:
        """Return what the store says of itself, by default in a point."""
        return self.get([STATE], "body").get(STATE, {}).get("body")

    def write_state(self, state: State) -> None:
        """Write what the store says of itself."""
        about = {"key": STATE, "document": STATE, "part": NO_PASSAGE, "version": ""}
        self.upsert([{**EMPTY, **about, "body": json.dumps(state)}])


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


def passage_keys(id: str, version: str, n_passages: int) -> list[int]:
    """Return the keys of a document's further passages."""
    return [key_of(id, version, part) for part in range(1, n_passages)]


def term_index(term: str) -> int:
    """Return the number of a term in sparse vectors, of 32 bits, neither the first nor the last."""
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
