"""Documents on their way into a store: batches of them, cut into passages, and what is stored.

Metadata are stored for filters as tags (a field's name with the hash of a value) and numbers, so
that filters mean the same in every store.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from boolattn.data.records import Document, checked_documents
from boolattn.errors import DataError
from boolattn.stores.analysis import asserted_terms, negated_spans, term_counts
from boolattn.stores.filters import NUMBERS
from boolattn.stores.values import filter_hash, flatten, is_number, items, moment_of, value_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from boolattn.kinds.lexicon import Kinds
    from boolattn.stores.filters import Condition
    from boolattn.stores.values import Metadata

    Spans = list[tuple[int, int]]

#: Maximum size of the text of one batch, which is in memory while it is encoded.
MAX_BYTES = 1 << 26
#: Maximum number of tags of a document; Milvus has such a limit.
MAX_TAGS = 1024
_SHORT = 60  # characters of a value of the metadata that is searched as words too
_EXISTS = 0  # in place of a hash: the field has a value
#: About a token: six letters of an alphabet, a character of another script, a sign.
_PIECE = re.compile(r"[0-9A-Za-z_\u00c0-\u04ff]{1,6}|\w|[^\w\s]")
_SENTENCE_ENDS = ("。", "！", "？", "\n", ". ", "! ", "? ", '." ', ".) ", ".\u201d ")
_WORD_ENDS = (" ", "\n", "\t")
#: Characters from which on a text is long, and tokens of its parts.
_LONG, _PART = 6000, 400
#: Passages are filled to this part, because tokens are only estimated.
_FILLED = 0.9


@dataclass
class Batch:
    """Documents before they are encoded, with plain metadata."""

    documents: list[Document] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)  # each document as JSON
    spans: list[Spans] = field(default_factory=list)  # of each document's passages
    n_bytes: int = 0

    def add(self, document: Document, spans: Spans) -> None:
        """Add a document, with the spans of its passages."""
        try:
            document = replace(document, metadata=flatten(document.metadata))
        except DataError as error:
            raise DataError(f"document {document.id!r}: {error}") from error
        self.documents.append(document)
        self.lines.append(_line(document))
        self.spans.append(spans)
        self.n_bytes += len(self.lines[-1])

    @property
    def versions(self) -> list[str]:
        """A hash of each document and its passages."""
        rows = zip(self.lines, self.spans, strict=True)
        return [hashlib.sha256(line + f"{spans}".encode()).hexdigest()[:32] for line, spans in rows]

    def digest(self, prefix: str) -> str:
        """Return a hash of the documents, their passages, and what else decides over them."""
        return hashlib.sha256("\n".join([prefix, *self.versions]).encode()).hexdigest()[:32]


def batches(documents: Iterable[Document], size: int, n_tokens: int) -> Iterator[Batch]:
    """Split a corpus into batches, and its documents into passages of so many tokens."""
    batch = Batch()
    seen: set[int] = set()  # hashes, which need less memory than ids
    for document in checked_documents(documents):
        if (key := value_hash(name := document.id)) in seen:
            raise DataError(f"the id {name!r} comes twice; every document needs its own")
        seen.add(key)
        batch.add(document, cut(document.text, n_tokens))
        if len(batch.lines) >= size or batch.n_bytes >= MAX_BYTES:
            yield batch
            batch = Batch()
    if batch.lines:
        yield batch


def cut(text: str, n_tokens: int) -> list[tuple[int, int]]:
    """Return spans of at most about ``n_tokens`` tokens, cut after sentences where there are any.

    A text that is short enough, and any text with 0 tokens, is one span.

    >>> text = "One two. Three four five. Six seven."
    >>> [text[start:end] for start, end in cut(text, 6)]
    ['One two.', 'Three four five.', 'Six seven.']
    """
    starts = [match.start() for match in _PIECE.finditer(text)] if n_tokens else []
    if len(starts) <= n_tokens:
        return [(0, len(text))]
    size, chosen = max(1, int(_FILLED * n_tokens)), [0]
    while len(starts) - chosen[-1] > size:
        first, last = chosen[-1], chosen[-1] + size
        # In the second half, so that passages do not become short.
        places = range(last, first + size // 2, -1)
        chosen.append(
            next((p for p in places if text.endswith(_SENTENCE_ENDS, 0, starts[p])), None)
            or next((p for p in places if text.endswith(_WORD_ENDS, 0, starts[p])), last)
        )
    edges = [*(starts[piece] for piece in chosen), len(text)]
    pairs = pairwise(edges)
    return [(start, start + len(text[start:end].rstrip())) for start, end in pairs]


def _line(document: Document) -> bytes:
    row = {name: getattr(document, name) for name in ("id", "title", "text", "metadata")}
    try:
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"
    except UnicodeEncodeError as error:
        raise DataError(f"document {document.id!a} holds half a character; correct it") from error
    except ValueError as error:
        raise DataError(f"document {document.id!r}: {error}; leave the value out") from error


class DocumentTerms(NamedTuple):
    """The words of a document, as they are indexed, and tags of the kinds of things it names."""

    counts: Counter[str]  # 0 for a kind
    asserted: list[str]
    denied: list[str]  # the text has these, but only negated or in passing


def indexed_text(document: Document) -> str:
    """Return what is indexed as words: title, text and short texts of the metadata."""
    values = (value for listed in document.metadata.values() for value in items(listed))
    short = [value for value in values if isinstance(value, str) and len(value) <= _SHORT]
    return "\n".join([document.title, document.text, *short])


def document_terms(document: Document, kinds: Kinds | None) -> DocumentTerms:
    """Analyse title and text of a document.

    A long text asserts what its beginning says, and what a third of its parts say; it has the rest
    in passing.
    """
    counts: Counter[str] = term_counts(indexed_text(document))
    spans = cut(document.text, _PART if len(document.text) > _LONG else 0)
    n_parts: Counter[str] = Counter()
    tags: set[str] = set()
    for number, span in enumerate(spans):
        text = indexed_text(replace(document, text=document.text[slice(*span)]))
        negated = list(negated_spans(text))
        asserted, denied = kinds.tags(text, negated) if kinds else ((), ())
        tags.update(asserted, denied)
        for term in {*asserted_terms(text, negated), *asserted}:
            n_parts[term] += len(spans) if number == 0 else 1
    about = {term for term, n in n_parts.items() if 3 * n >= len(spans)}
    words = DocumentTerms(
        counts,
        [*sorted(about & tags), *sorted(about - tags)],
        [*sorted(tags - about), *sorted(counts.keys() - about)],
    )
    # A kind is no word: it adds nothing to the length, and counts by its rarity alone.
    counts.update(dict.fromkeys(sorted(tags), 0))
    return words


def document_tags(metadata: Metadata) -> list[str]:
    """Return a tag for each field, and one for each of its values."""
    tags = [_tag(name, _EXISTS) for name in metadata]
    for name, value in metadata.items():
        tags += [_tag(name, filter_hash(item)) for item in items(value)]
    return list(dict.fromkeys(tags))[:MAX_TAGS]


def document_numbers(metadata: Metadata) -> dict[str, float]:
    """Return the largest and smallest number and the latest and earliest date of each field.

    >>> document_numbers({"year": [1990, 1985]})
    {'largest:year': 1990.0, 'smallest:year': 1985.0}
    """
    extremes = {}
    for name, value in metadata.items():
        numbers = [float(item) for item in items(value) if is_number(item)]
        dates = [moment.timestamp() for item in items(value) if (moment := moment_of(item))]
        for (least, most), values in zip(NUMBERS, (numbers, dates), strict=True):
            if values:
                extremes[f"{most}:{name}"] = max(values)
                extremes[f"{least}:{name}"] = min(values)
    return extremes


def tag_condition(condition: Condition) -> tuple[tuple[str, ...], bool]:
    """Return the tags of which a document must have one, or with false must have none.

    For conditions other than ranges and ``contains``.
    """
    hashes, is_wanted = condition.hashes, condition.kind != "not"
    if condition.kind == "exists":
        hashes, is_wanted = (_EXISTS,), bool(condition.values[0])
    # Without a value no document may match: nothing has an empty tag.
    tags = tuple(_tag(condition.name, value) for value in hashes) or ("",)
    return tags, is_wanted != condition.is_negated


def _tag(name: str, value: int) -> str:
    if len(name) >= 64 or not name.isprintable():
        name = hashlib.sha256(name.encode()).hexdigest()
    return f"{name}={value:016x}"
