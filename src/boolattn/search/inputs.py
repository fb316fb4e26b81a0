"""What callers give: options, settings of a store, documents; and queries, read for a store.

The titles, numbers and words of the store decide what a query means. Words that no document has are
searched as the corpus spells them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from numbers import Integral
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.errors import ConfigError, DataError, QueryError
from boolattn.kinds.lexicon import load_kinds
from boolattn.query.fields import share_word, words_of
from boolattn.query.numbers import NumberPhrase, find_numbers, without_numbers
from boolattn.query.reading import QueryReader
from boolattn.query.syntax import unparse
from boolattn.query.tokens import FIELD_NAME, QUOTED, find_cues, tokens_of
from boolattn.query.tree import Not, Where, atoms, map_words
from boolattn.settings import build, check_types, limited
from boolattn.stores.analysis import terms_of
from boolattn.stores.filters import Field, Filter, number_ranges

if TYPE_CHECKING:
    from boolattn.query.plan import Plan
    from boolattn.stores.base import Reader

#: A text; a mapping with ``text`` and, if there are any, ``id``, ``title`` and metadata.
DocumentLike = str | Mapping[str, Any] | Document
#: "books I have not read yet".
_DONE = re.compile(
    r"(?<!\w)(?:(?:that|which)\s+)?(?:i|we)(?:['\u2019]ve|\s+(?:have|had|did))?"
    r"(?P<negation>\s+(?:not|never)|n['\u2019]?t)?\s+(?P<verb>[^\W\d_]+)"
    r"(?:\s+(?:yet|before(?!\s+\d)))?(?!\w)",
    re.IGNORECASE,
)
#: Most values of a field that says yes or no.
_FEW, _YES = 4, ("yes", "y", "true", "x", "1")
#: Share of the documents that must be of the kinds that a word such as "vegan" excludes.
_SHARE = 0.1
_WORD = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")
_SHORTEST, _LONG = 4, 8  # letters of a word that is corrected, and of one with two errors


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search."""

    #: Plain language, explicit syntax, or what the query uses.
    mode: str = limited("auto", choices=("auto", "plain", "explicit"))
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
    rerank: int = limited(100, least=0)  # first results that a reranker sorts
    exhaustive: bool = False  # whether every document is scored, instead of candidates
    verdicts: bool = True  # whether each result is explained; costs time in long rankings
    offset: int = limited(0, least=0)  # better documents to pass over, for the next page
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
    passages: int | None = limited(None, least=0)
    #: Documents written at once: the most that a killed build loses.
    segment_size: int | None = limited(None, least=1)
    batch_size: int | None = limited(None, least=1)  # documents encoded at once
    replace: bool = False  # whether to replace a store that is there
    resume: bool = False  # whether to go on with a build that was stopped

    def __post_init__(self) -> None:
        check_types(self)
        for name, things in (self.kinds or {}).items():
            if not isinstance(things, list | tuple) or not all(isinstance(t, str) for t in things):
                raise ConfigError(f"kinds: {name!r} must be a list of names, got {things!r}")


def read_options(queries: object, options: Mapping[str, Any], k: int) -> SearchOptions:
    """Return the options of a search for ``k`` results; refuse what cannot be."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise QueryError(f"queries are a list of texts, not {type(queries).__name__}")
    for query in queries:
        if not isinstance(query, str):
            raise QueryError(f"a query is text, not {type(query).__name__}")
    if name := next((name for name in ("limit", "n", "top", "top_k") if name in options), ""):
        raise ConfigError(f"search has no {name!r}; the number of results is k, as in k=10")
    chosen = build(SearchOptions, options, source="search")
    check_types(chosen)
    if not isinstance(k, Integral) or isinstance(k, bool):
        raise QueryError(f"k must be an int, got {k!r}")
    if k < 1:
        raise QueryError(f"k must be at least 1, got {k}")
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


@dataclass(frozen=True)
class StoreQueryReader(QueryReader):
    """Reads queries for a store; the notes of a plan have what a user may want to undo."""

    reader: Reader

    @cached_property
    def _fields(self) -> Mapping[str, Field]:
        """The fields of the metadata; a database is asked for them, so they are read once."""
        return self.reader.fields()

    def read(self, text: str) -> Plan:
        """Read a query; a text in plain language that is a document's title stays one operand."""
        if not self.compose:
            return super().read(text)
        unclear: list[str] = []
        phrases = self._numbers(text, unclear) if not self.uses_syntax(text) else []
        plan = super().read(without_numbers(text, phrases))
        plan = self.with_conditions(plan, text, phrases) if phrases else plan
        if self.may_be_title(plan) and self.reader.has_title(plan.text):
            plan = self.as_phrase(plan, "a document has this title")
        words = self._spelling(plan)
        tree = map_words(plan.tree, lambda text: _corrected(text, words))
        notes = [
            f"{text[phrase.start : phrase.end].strip()!r} was read as {unparse(phrase.tree)}; "
            "between quotes it is text"
            for phrase in phrases
        ]
        better = ", ".join(f"{name!r} instead of {word!r}" for word, name in words.items())
        notes = [*notes, *unclear, *([f"searched for {better}"] if better else [])]
        wording = _corrected(plan.wording, words)
        return replace(plan, tree=tree, wording=wording, notes=tuple(notes))

    def uses_syntax(self, text: str) -> bool:
        """Whether a text is in explicit syntax: ``field:value`` of a known field without cues.

        In "shoes < 100", without a field of that name, the sign is a word.
        """
        conditions = [c for token in tokens_of(text) or () for c in token.conditions]
        names = (FIELD_NAME.match(condition) for condition in conditions)
        is_known = self.mode == "auto" and any(n and n[0] in self._fields for n in names)
        is_sign = self.mode == "auto" and conditions and not (is_known or '"' in text)
        if is_sign and self._numbers(text, []):
            return False
        return (is_known and not find_cues(text)) or super().uses_syntax(text)

    def may_exclude(self, names: Sequence[str]) -> bool:
        """Tell whether the corpus has things of some kinds: a "vegan jacket" excludes no honey."""
        if (kinds := self.reader.settings.known_kinds) is None or not self.reader.has_words:
            return True
        tags = [tag for name in names for senses in kinds.senses(name)[:1] for tag in senses]
        return bool(sum(self.reader.frequencies(tags)) >= _SHARE * self.reader.count(Filter()))

    def _numbers(self, text: str, unclear: list[str]) -> list[NumberPhrase]:
        """Find numbers in a text that are conditions on the metadata, and what somebody did."""
        phrases = self._done(text)
        remaining = without_numbers(text, phrases)
        numbers = find_numbers(remaining, lambda: number_ranges(self._fields), unclear)
        phrases = sorted([*phrases, *numbers])
        return [] if phrases and self.reader.has_title(text) else phrases

    def _done(self, text: str) -> list[NumberPhrase]:
        """Find what somebody has done, or has not, where a field with yes or no says so."""
        for match in _DONE.finditer(text):
            for name in self._fields:
                if share_word({match["verb"].lower()}, words_of(name)):
                    values = [value for value, _ in self.reader.value_counts(name, _FEW).frequent]
                    yes = [Where(f"{name}={v}") for v in values if str(v).lower() in _YES]
                    if len(yes) == 1:
                        tree = Not(yes[0]) if match["negation"] else yes[0]
                        return [NumberPhrase(*match.span(), tree)]
        return []

    def _is_word(self, word: str) -> bool:
        is_common = getattr(self.parser, "is_word", lambda _: False)  # a parser of the user's
        return bool(is_common(word)) or load_kinds().is_word(word)

    def _spelling(self, plan: Plan) -> dict[str, str]:
        """Return words of operands that are neither known nor in the corpus, with similar ones.

        What stands between quotes stays as it is.
        """
        is_known = self.reader.has_words and self.reader.counts  # the corpus' vocabulary
        if self.parser is None or not is_known:
            return {}
        names = {word for atom in atoms(plan.tree) for word in _WORD.findall(atom.words)}
        names -= set(_WORD.findall(" ".join(QUOTED.findall(plan.text))))
        unknown = sorted(w for w in names if len(w) >= _SHORTEST and not self._is_word(w.lower()))
        terms = [next(iter(terms_of(word)), "") for word in unknown]
        counts = self.reader.frequencies(terms) if unknown else []
        missing = [w for w, term, n in zip(unknown, terms, counts, strict=True) if term and not n]
        # The name of a field is no error.
        missing = [w for w in missing if not any(w.lower() in words_of(f) for f in self._fields)]
        better = {word: self._swapped(word) or self._nearest(word) for word in missing}
        return {word: name for word, name in better.items() if name}

    def _swapped(self, word: str) -> str:
        """Return the word with two letters in the other order, if only one such word is known.

        That is the likelier error: "asain" is "asian", whether a document says so or not.
        """
        pairs = range(1, len(word) - 1)  # the first letter is right as a rule
        swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in pairs}
        known = [text for text in swapped if self._is_word(text.lower())]
        return known[0] if len(known) == 1 else ""

    def _nearest(self, word: str) -> str:
        """Return the most frequent similar word of documents with one."""
        lowered, n_errors = word.lower(), 2 if len(word) >= _LONG else 1
        counts: Counter[str] = Counter()
        for text in self.reader.texts_like(lowered, n_errors):
            counts.update({name.lower() for name in _WORD.findall(text)})
        near = [
            (n, sorted(name) != sorted(lowered), name[-1] != lowered[-1], -count, name)
            for name, count in counts.items()
            if name[0] == lowered[0] and abs(len(name) - len(lowered)) <= n_errors
            if (n := distance(lowered, name)) <= n_errors
        ]
        better = min(near)[-1] if near else ""
        # A capital letter tells the island of Java from coffee.
        return better.capitalize() if word[0].isupper() else better


def _corrected(text: str, replaced: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: replaced.get(match[0], match[0]), text)


def distance(first: str, second: str) -> int:
    """Return the number of letters to insert, delete, replace or swap with the next one.

    >>> distance("asain", "asian"), distance("chiken", "chicken"), distance("soup", "salad")
    (1, 1, 4)
    """
    rows = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, 1):
        row = [i]
        for j, other in enumerate(second, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, first[i - 2]) == (second[j - 2], other):
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
