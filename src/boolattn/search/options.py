"""What callers give: the options of a search, the settings of a new store, documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from numbers import Integral
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.errors import ConfigError, DataError, QueryError
from boolattn.settings import build, check_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    #: A text; a mapping with ``text`` and, if there are any, ``id``, ``title`` and metadata.
    DocumentLike = str | Mapping[str, Any] | Document


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    mode: str = "auto"  # or plain language, or explicit syntax
    positive: Sequence[str] = ()  # operands that every query has besides; ``like:ID`` is a document
    negative: Sequence[str] = ()  # negated ones
    filters: Mapping[str, Any] | None = None  # on metadata; see ``boolattn.stores.filters``
    #: Whether the words of operands count as much as their vectors. By default they do where the
    #: index has words and ``compose`` is on: the best setting for each kind of query.
    hybrid: bool | None = None
    compose: bool = True  # whether operands are scored one by one; if not, a query is one vector
    #: Whether a document that holds the distinguishing words of a negated operand is left out,
    #: whatever its vector says. It is by default; ``True`` also warns where nothing is negated.
    strict_not: bool | None = None
    #: Whether things of a negated kind count, as cream does for "without dairy".
    kinds: bool = True
    allow: Sequence[str] = ()  # words that name nothing of a negated kind, as "cream" above
    #: Least similarity of a result to the positive part of the query: 0.3 leaves out most of what
    #: the shipped model finds for words that have nothing to do with the documents.
    min_score: float | None = None
    rerank: int = 100  # first results that the searcher's reranker sorts anew, if it has one
    exhaustive: bool = False  # whether every document is scored, instead of candidates
    verdicts: bool = True  # whether each result is explained; costs time in long rankings
    offset: int = 0  # better documents to pass over, for the next page
    explain: bool = False  # whether to add the documents that composition ranks lower
    facets: bool = False  # whether to count values of the metadata among the best documents


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Settings of a new store."""

    model: str = ""  # what to load to search it, for the store to remember
    words: bool = True  # whether to index words too, for hybrid search
    vectors: str = ""  # how neighbours are searched: exact, hnsw; left out, the store's way
    precision: str = "float32"  # of stored vectors; or float16, int8
    kinds: Mapping[str, Any] | None = None  # lists of things by their kind, besides the known ones
    #: Maximum number of tokens of a passage; left out, what the model reads; 0: never cut.
    passages: int | None = None
    segment_size: int | None = None  # documents written at once: the most that a killed build loses
    batch_size: int | None = None  # documents encoded at once; left out, chosen for the device
    replace: bool = False  # whether to replace a store that is there
    resume: bool = False  # whether to go on with a build that was stopped

    def __post_init__(self) -> None:
        check_types(self)
        for name, least in {"segment_size": 1, "batch_size": 1, "passages": 0}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        for name, things in (self.kinds or {}).items():
            if not isinstance(things, list | tuple) or not all(isinstance(t, str) for t in things):
                raise ConfigError(f"kinds: {name!r} must be a list of names, got {things!r}")


def read_options(options: Mapping[str, Any], k: int) -> SearchOptions:
    """Return the options of a search for ``k`` results; refuse what cannot be."""
    if name := next((name for name in ("limit", "n", "top", "top_k") if name in options), ""):
        raise ConfigError(f"search has no {name!r}; the number of results is k, as in k=10")
    chosen = build(SearchOptions, options, source="search")
    check_types(chosen)
    if not isinstance(k, Integral) or isinstance(k, bool):
        raise QueryError(f"k must be an int, got {k!r}")
    limits = {"k": (k, 1), "offset": (chosen.offset, 0), "rerank": (chosen.rerank, 0)}
    for name, (value, least) in limits.items():
        if value < least:
            raise QueryError(f"{name} must be at least {least}, got {value}")
    return chosen


def as_documents(
    values: Iterable[DocumentLike], is_taken: Callable[[str], bool] = lambda _: False
) -> Iterator[Document]:
    """Make documents; what has no id is numbered, without the ids that are taken.

    >>> [document.id for document in as_documents(["moths", {"id": 7, "text": "ants"}])]
    ['0', '7']
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DataError(f"documents are a list of texts, not {type(values).__name__}")
    free = (name for name in map(str, count()) if not is_taken(name))
    return (
        value if isinstance(value, Document) else _document(position, value, free)
        for position, value in enumerate(values)
    )


def _document(position: int, value: str | Mapping[str, Any], free: Iterator[str]) -> Document:
    values = dict(value) if isinstance(value, Mapping) else {"text": value}
    if not isinstance(values.get("text"), str):
        shown = f"{values!r:.200}; rename the field with the text to 'text'"
        raise DataError(f"document {position} has no text under 'text': {shown}")
    name: Any = values.pop("id") if "id" in values else next(free)
    name = str(name) if isinstance(name, Integral) else name
    title, text = values.pop("title", ""), values.pop("text")
    return Document(id=name, text=text, title="" if title is None else title, metadata=values)
