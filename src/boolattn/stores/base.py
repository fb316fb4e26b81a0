"""The interface of a store, which holds documents, metadata, vectors and words.

A document has a key, a number of the store's own. A long document has several passages, each with
a vector; a document is as near as its nearest passage. Similarity is the inner product. Lists of
neighbours alone would not do for composed queries: a candidate of one operand would have an unknown
similarity to the others, so :meth:`Reader.similarities` compares given documents.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from boolattn.errors import ConfigError, DataError, IndexMismatchError, QueryError, ServerError
from boolattn.scoring.exact import Ranked
from boolattn.stores.analysis import document_terms, plain_title, terms_of
from boolattn.stores.filters import Condition, Field, Filter, resolve
from boolattn.stores.values import ValueCounts, count_values

if TYPE_CHECKING:
    from boolattn.data.records import Document
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Draft

Array = NDArray[np.float32]
Keys = NDArray[np.int64]
Mask = NDArray[np.bool_]
Claims = NDArray[np.int8]
#: The spans of a document's passages in its text, and their vectors.
Passages = tuple[Sequence[tuple[int, int]], Array]

logger = logging.getLogger(__name__)
#: Documents of highest BM25+ score among which a title is looked for.
_TITLES = 20
#: So few vectors are compared without BLAS, which starts threads that wait on a busy machine: eight
#: with 200,000 documents take 46 ms in place of 67, and 136 in place of 374 on a busy machine.
_FEW_QUERIES = 12
#: Documents in which values are counted, and words compared, where a store cannot do it.
_SAMPLE = 1000


class Claim(IntEnum):
    """What a document says of some terms."""

    ABSENT = 0  # it lacks one of them
    DENIED = 1  # it has them all, but one negated or in passing: "no licence needed"
    ASSERTED = 2  # it has them all


class Reader(ABC):
    """A store, or one state of it, opened for searching."""

    label: str  # names the store in errors
    settings: StoreSettings  # how it was made
    limit: int | None = None  # maximum number of results of one search, if the store has one
    words_note: str = ""  # says in results what another word index than ours means for them
    max_word_hits: int = 10_000  # documents whose BM25+ score is asked for; others have 0
    compares_all: bool = False  # whether a search compares every document anyway
    counts: bool = True  # whether documents are counted, and fields known; not of a foreign one
    #: Fewest candidates of each probe of a composed query, and how many for a result.
    candidates: tuple[int, float] = (500, 10)

    @property
    def has_words(self) -> bool:
        """Whether :meth:`words` is possible."""
        return self.settings.words

    def n_candidates(self, depth: int) -> int:
        """Return how many candidates each probe of a composed query finds for so many results."""
        fewest, per_result = self.candidates
        n = max(fewest, int(per_result * depth))
        return min(n, self.limit or n)

    def count(self, _where: Filter) -> int:
        """Return the number of documents that pass a filter; by default it is not known."""
        return 0

    @abstractmethod
    def nearest(self, vectors: Array, n: int, where: Filter) -> list[Ranked]:
        """Return the keys of the ``n`` nearest documents of each vector, best first."""

    @abstractmethod
    def similarities(self, vectors: Array, keys: Keys) -> Array:
        """Return the similarities of given documents. Shape ``(vectors, keys)``."""

    def scan(self, _vectors: Array, _where: Filter) -> tuple[Keys, Array]:
        """Return all documents that pass a filter, with their similarities."""
        raise ConfigError(f"{self.label} cannot compare every document: leave out exhaustive")

    @abstractmethod
    def words(self, queries: Sequence[Sequence[str]], n: int, where: Filter) -> list[Ranked]:
        """Return, for each list of terms, the ``n`` documents of highest BM25+ score."""

    def frequencies(self, terms: Sequence[str]) -> list[int]:
        """Return the number of documents with each term; by default it is not known."""
        return [0] * len(terms)

    def texts_like(self, _word: str, _n_errors: int) -> list[str]:
        """Return texts in which a word like this may be found; by default of a sample."""
        return [f"{document.title}\n{document.text}" for document in self.sample(_SAMPLE)]

    @abstractmethod
    def matching(self, condition: Condition, keys: Keys) -> Mask:
        """Return which of some documents meet a condition."""

    def claims(self, terms: Sequence[str], keys: Keys) -> Claims:
        """Return what each document says of some terms, as values of :class:`Claim`."""
        wanted, claims = frozenset(terms), np.zeros(len(keys), np.int8)
        for row, (asserted, denied) in enumerate(self._terms(keys) if wanted else ()):
            if wanted <= {*asserted, *denied}:
                claims[row] = Claim.ASSERTED if wanted.isdisjoint(denied) else Claim.DENIED
        return claims

    def _terms(self, keys: Keys) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield what each document asserts, and what it only denies; by default from its text."""
        kinds = self.settings.known_kinds
        for document in self.documents(keys):
            yield document_terms(document, kinds)[1:] if document else ((), ())

    @abstractmethod
    def find(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the keys of documents by id; unknown ids are absent."""

    @abstractmethod
    def documents(self, keys: Keys) -> list[Document | None]:
        """Return documents by key; ``None`` for one that is gone."""

    def passages(self, _keys: Keys) -> dict[int, Passages]:
        """Return the passages of documents by key; by default they are not known."""
        return {}

    def vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        """Return the vectors of documents by id; of several passages, their mean."""
        keys = self.find(ids)
        passages = self.passages(np.array([*keys.values()], np.int64))
        return {n: _mean(passages[key][1]) for n, key in keys.items() if key in passages}

    def best_passages(self, vector: Array, keys: Keys) -> list[tuple[int, int] | None]:
        """Return each document's passage nearest to a vector; ``None`` for the only one."""
        passages = self.passages(keys) if self.settings.passages else {}
        best = {
            key: spans[int((vectors @ vector).argmax())]
            for key, (spans, vectors) in passages.items()
            if len(spans) > 1
        }
        return [best.get(key) for key in keys.tolist()]

    def fields(self) -> Mapping[str, Field]:
        """Return the fields of the metadata; by default they are not known."""
        return {}

    def resolve(self, condition: Condition) -> Condition:
        """Return a condition with what depends on the store's fields; refuse an unknown field."""
        return resolve(condition, self.fields()) if self.counts else condition

    def check_conditions(self, texts: Sequence[str], where: Filter) -> None:  # noqa: B027
        """Refuse conditions of a query, by their texts, that the store cannot filter by."""

    def sample(self, _n: int) -> list[Document]:
        """Return at most ``n`` documents, spread over the store, always the same."""
        return []

    def value_counts(self, name: str, n: int) -> ValueCounts:
        """Count the ``n`` most frequent values of a field; by default in a sample."""
        rows = [document.metadata for document in self.sample(_SAMPLE)]
        return count_values(rows, name, n, is_exact=len(rows) < _SAMPLE)

    def has_title(self, text: str) -> bool:
        """Return whether a document has this title; without words it is not known."""
        wanted = plain_title(text)
        if not self.has_words or not wanted or not (terms := terms_of(text)):
            return False
        [ranked] = self.words([terms], _TITLES, Filter())
        return any(plain_title(d.title) == wanted for d in self.documents(ranked.rows) if d)

    def known_vectors(self, ids: Sequence[str]) -> dict[str, Array]:
        """Return the vectors of documents that are operands; an unknown id is an error."""
        vectors = self.vectors(ids) if ids else {}
        if missing := [name for name in ids if name not in vectors]:
            raise QueryError(f"like:{missing[0]}: no document has the id {missing[0]!r}")
        return vectors

    def no_words(self) -> ConfigError:
        """Return the error that words were not indexed."""
        return ConfigError(f"{self.label} has no words; leave out hybrid, or index words")

    def check_length(self, vectors: Array) -> None:
        """Refuse vectors of another length than the store's."""
        if (length := vectors.shape[1]) != self.settings.dimension:
            lengths = f"of length {self.settings.dimension}, and a query's has {length}"
            raise IndexMismatchError(f"{self.label} has vectors {lengths}; use its model")


class Store(ABC):
    """A store at an address; ``settings`` say how it was made.

    Its class has the class methods ``open(address, verify=False)`` and ``create(address, settings,
    replace=False, resume=False)``, a context that yields a :class:`Draft`; see ``address``.
    """

    label: str
    address: str
    settings: StoreSettings

    @abstractmethod
    def reading(self) -> AbstractContextManager[Reader]:
        """Open the store's present state for searching."""

    @abstractmethod
    def adding(self) -> AbstractContextManager[Draft]:
        """Add documents, in place of those with the same ids.

        With transactions they are visible when the context ends, and none is after an error.
        """

    @abstractmethod
    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents; with an unknown id nothing is deleted."""

    def check_known(self, ids: Sequence[str], known: Container[str]) -> None:
        """Refuse to delete unless all ids are known."""
        if missing := [name for name in ids if name not in known]:
            raise DataError(f"no document {missing[0]!r} in {self.label}; nothing was deleted")

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        with self.reading() as reader:
            return reader.count(Filter())

    def refresh(self) -> bool:
        """Read what another process changed; return whether anything did."""
        return False

    def info(self) -> dict[str, Any]:
        """Return what people may want to know of the store, by name; by default its settings."""
        names = ("model", "dimension", "similarity", "vectors", "precision", "words")
        return {name: getattr(self.settings, name) for name in names}


class ServerStore(Store, Reader):
    """A store that is always read in its present state."""

    def reading(self) -> AbstractContextManager[Reader]:
        return nullcontext(self)

    def resolve(self, condition: Condition) -> Condition:
        """Refuse to look for a part of a value, which databases do not compare alike."""
        if condition.kind == "contains":
            reason = f"{self.label} cannot filter by contains; use = or search for the word"
            raise QueryError(f"filter {condition.name!r}: {reason}")
        return super().resolve(condition)


def best_documents(hits: Iterable[tuple[int, float]], n: int) -> Ranked:
    """Return the ``n`` keys of highest scores, each once, best first; equal ones by key.

    >>> best_documents([(7, 0.1), (3, 0.2), (7, 0.2)], 5).rows.tolist()
    [3, 7]
    """
    best: dict[int, float] = {}
    for key, score in hits:
        best[key] = max(score, best.get(key, score))
    keys, scores = np.array([*best], np.int64), np.array([*best.values()], np.float32)
    order = np.lexsort((keys, -scores))[:n]
    return Ranked(keys[order], scores[order])


def _mean(vectors: Array) -> Array:
    """Return the mean of some vectors, as long as they are."""
    mean = vectors.mean(0)
    length = np.linalg.norm(vectors, axis=1).mean() / max(np.linalg.norm(mean), 1e-9)
    return np.asarray(mean * length, np.float32)


def similarities(queries: Array, vectors: Array, out: Array | None = None) -> Array:
    """Return inner products. Shape ``(queries, vectors)``."""
    if len(queries) > _FEW_QUERIES:
        return np.matmul(queries, vectors.T, out=out, dtype=np.float32)
    # Unlike a product of matrices this starts no threads, for which it would wait.
    return np.vecdot(vectors, queries[:, None], out=out, dtype=np.float32)


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


@contextmanager
def warned(message: str) -> Iterator[None]:
    """Make errors of cleaning up warnings: what mattered is done."""
    try:
        yield
    except ServerError as error:
        logger.warning("%s: %s", message, error)
