"""Writing documents: they are cut into passages, encoded, and written to a store in batches."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from boolattn.data.records import Document, checked_documents
from boolattn.encoders.callables import Array, Encoder, unit
from boolattn.errors import DataError
from boolattn.stores.analysis import cut
from boolattn.stores.values import flatten, value_hash

Spans = list[tuple[int, int]]
Batch = list["Entry"]
#: Encodes lists of texts, in order; a cluster may encode several at once.
Encode: TypeAlias = "Callable[[Iterable[list[str]]], Iterator[Array]]"
#: Maximum size of the text of one batch, which is in memory while it is encoded.
MAX_BYTES = 1 << 26
#: Maximum number of characters of a token: a text is cut at so many for each token that is read.
_CHARACTERS = 32
#: What the first passage adds to the vectors of the later ones; chosen over 183 READMEs.
_BEGINNING = 0.3
NO_DOCUMENTS = "the corpus holds no documents, so there is nothing to index"


@dataclass(frozen=True)
class Entry:
    """A document before it is encoded, with plain metadata."""

    document: Document
    spans: Spans  # of its passages
    line: bytes  # the document as JSON

    @classmethod
    def of(cls, document: Document, spans: Spans) -> Entry:
        """Prepare a document, with the spans of its passages."""
        name = document.id
        try:
            document = replace(document, metadata=flatten(document.metadata))
            row = {name: getattr(document, name) for name in ("id", "title", "text", "metadata")}
            text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return cls(document, spans, text.encode() + b"\n")
        except DataError as error:
            raise DataError(f"document {name!r}: {error}") from error
        except UnicodeEncodeError as error:
            raise DataError(f"document {name!a} holds half a character; correct it") from error
        except ValueError as error:
            raise DataError(f"document {name!r}: {error}; leave the value out") from error

    @property
    def version(self) -> str:
        """A hash of the document and its passages."""
        return hashlib.sha256(self.line + f"{self.spans}".encode()).hexdigest()[:32]


def batches(documents: Iterable[Document], size: int, n_tokens: int) -> Iterator[Batch]:
    """Split a corpus into batches, and its documents into passages of so many tokens."""
    batch: Batch = []
    n_bytes, seen = 0, set[int]()  # hashes, which need less memory than ids
    for document in checked_documents(documents):
        if (key := value_hash(name := document.id)) in seen:
            raise DataError(f"the id {name!r} comes twice; every document needs its own")
        seen.add(key)
        batch.append(Entry.of(document, cut(document.text, n_tokens)))
        n_bytes += len(batch[-1].line)
        if len(batch) >= size or n_bytes >= MAX_BYTES:
            yield batch
            batch, n_bytes = [], 0
    if batch:
        yield batch


def checked_vectors(values: Any, names: Sequence[str] = ()) -> Array:  # noqa: ANN401
    """Return vectors as an array of float32; refuse what is no finite vector for each document.

    Errors name documents, or count them from 0.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"vectors must be an array of numbers: {error}") from error
    if array.dtype.kind not in "iuf" or array.ndim != 2:
        got = f"got shape {array.shape} of type {array.dtype}"
        raise DataError(f"vectors must be an array of numbers with two dimensions, {got}")
    with np.errstate(over="ignore", invalid="ignore"):
        array = array.astype(np.float32, copy=False)
    if len(broken := np.flatnonzero(~np.isfinite(np.einsum("ij,ij->i", array, array)))):
        name = dict(enumerate(names)).get(int(broken[0]), int(broken[0]))
        raise DataError(f"the vector of document {name!r} is not finite in float32")
    return array


def encode_from(values: Any) -> Encode:  # noqa: ANN401 - anything like an array
    """Return what gives each document its vector from an array, in the order of the documents."""
    vectors = checked_vectors(values)

    def encode(lists: Iterable[list[str]]) -> Iterator[Array]:
        end = 0
        for texts in lists:
            start, end = end, end + len(texts)
            if end > len(vectors):
                raise DataError(f"only {len(vectors)} vectors for {end} or more documents")
            yield vectors[start:end]
        if end < len(vectors):
            raise DataError(f"there are {len(vectors)} vectors for {end} documents")

    return encode


class Draft(ABC):
    """Documents on their way into a store: all of them become visible when it is finished."""

    batch_size: int = 1000  # documents written at once

    @abstractmethod
    def known(self, ids: Sequence[str]) -> set[str]:
        """Return those of some ids that the store has already."""

    def has(self, _batch: Batch) -> bool:
        """Return whether an earlier, stopped build wrote a batch already."""
        return False

    @abstractmethod
    def write(self, batch: Batch, vectors: Array) -> None:
        """Write documents with the vectors of their passages."""


@dataclass(frozen=True, kw_only=True)
class Writer:
    """Encodes documents and writes them."""

    encoder: Encoder
    passages: int = 0  # maximum number of tokens of a passage; 0: documents are not cut
    batch_size: int | None = None  # documents encoded at once; left out, chosen for the device
    encode: Encode | None = None  # None: the encoder does
    progress: Callable[[int], None] = lambda _: None  # documents just encoded, or a batch of them
    reuses: bool = True  # whether batches of an earlier build are taken over

    def write(
        self,
        draft: Draft,
        documents: Iterable[Document],
        *,
        size: int | None = None,
        replace_old: bool = False,
    ) -> None:
        """Write documents in batches of a size, but for batches that an earlier build wrote.

        An id that the store has already is an error, unless old documents are replaced.
        """
        waiting: deque[Batch] = deque()
        is_last: deque[bool] = deque()  # of each passage to encode: whether a document ends there

        def texts() -> Iterator[list[str]]:
            for batch in batches(documents, size or draft.batch_size, self.passages):
                names = [entry.document.id for entry in batch]
                if not replace_old and (known := draft.known(names)):
                    reason = f"has the id {min(known)!r} already; boolattn update replaces it"
                    raise DataError(f"the index {reason}")
                if self.reuses and draft.has(batch):
                    self.progress(len(batch))
                    continue
                waiting.append(batch)
                is_last.extend(span is e.spans[-1] for e in batch for span in e.spans)
                yield [text for entry in batch for text in self._encodable(entry)]

        for vectors in (self.encode or partial(self._encode, is_last))(texts()):
            batch = waiting.popleft()
            draft.write(batch, self._checked(vectors, batch))
            if self.encode is not None:
                self.progress(len(batch))

    def _encode(self, is_last: deque[bool], lists: Iterable[list[str]]) -> Iterator[Array]:
        for texts in lists:
            blocks = []
            for block in self.encoder.encode_blocks(texts, self.batch_size):
                blocks.append(block)
                if n_documents := sum(is_last.popleft() for _ in block if is_last):
                    self.progress(n_documents)
            yield np.concatenate(blocks)

    def _encodable(self, entry: Entry) -> Iterator[str]:
        """Return the passages to encode, each after the title and cut where no encoder reads on."""
        document, spans = entry.document, entry.spans
        text = document.text if document.text.strip() else document.title
        if not text.strip():
            raise DataError(f"document {document.id!r} has no text; leave it out")
        for start, end in spans if len(spans) > 1 else [(0, len(text))]:
            passage = text[start : min(end, start + _CHARACTERS * self.encoder.max_tokens)]
            yield titled(document.title, passage)

    def _checked(self, vectors: Array, batch: Batch) -> Array:
        """Return the vectors of passages, the later ones with some of the first one's.

        The beginning says what a text is about; of many passages one or other is near any query.
        """
        names = [entry.document.id for entry in batch for _ in entry.spans]
        vectors = checked_vectors(vectors, names)
        if vectors.shape != (len(names), self.encoder.dimension):
            expected = f"{len(names)} passages and dimension {self.encoder.dimension}"
            raise DataError(f"the encoder gave vectors of shape {vectors.shape} for {expected}")
        scaled = unit if self.encoder.similarity == "cosine" else np.asarray
        lengths = [len(entry.spans) for entry in batch]
        first = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
        is_later = first != np.arange(len(vectors))
        mixed = np.array(scaled(vectors))
        mixed[is_later] += _BEGINNING * mixed[first[is_later]]
        mixed[is_later] /= 1 + _BEGINNING
        return scaled(mixed)


def titled(title: str, text: str) -> str:
    """Return a text after its title, unless it begins with it.

    >>> titled("Greek Salad", "Cut the cheese."), titled("Moths", "Moths are insects.")
    ('Greek Salad. Cut the cheese.', 'Moths are insects.')
    """
    title = " ".join(title.split())
    if not title or text.lstrip()[: len(title)].casefold() == title.casefold():
        return text
    return f"{title}. {text}"
