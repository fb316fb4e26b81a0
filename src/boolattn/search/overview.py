"""What an index holds, for people who do not know it: facets of its metadata, example queries.

Both are the same for the same documents, and read a bounded number of them.
"""

from __future__ import annotations

import math
import re
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from boolattn.errors import QueryError
from boolattn.query.tree import And, Atom, Not, Or
from boolattn.stores.analysis import terms_of
from boolattn.stores.filters import Filter, parse_filters
from boolattn.stores.values import count_values, is_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.query.tree import QueryTree
    from boolattn.stores.base import Reader
    from boolattn.stores.values import ValueCounts

    _Score = Callable[[set[int], set[int], int], float]

#: Most fields looked at, fields and values returned, different values of a field that is a facet.
_LOOKED, _FIELDS, _VALUES, _DIFFERENT = 60, 8, 12, 500
_MAX_VALUE = 60  # characters; a longer text is no category
#: Documents from which examples are taken, and characters of each.
_SAMPLE, _CHARACTERS = 1000, 1500
#: Topics that are combined; share of the sample that may have one, and documents that must.
_TOPICS, _MAX_SHARE, _LEAST = 40, 0.4, 3
_STICKY = 0.5  # of the documents with a phrase's rarer word, the share that has the phrase
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*|[.,;:!?()\[\]|\n]")
#: Frequent words that are no topics and that the lexical index keeps.
_COMMON = frozenset(
    (  # noqa: SIM905 - one word a line
        "about above after all also although among any because been before being between both "
        "called can commonly could did does done each either etc first found from had has have "
        "having her here his how however including into its just known like made make many may "
        "might more most much must name named new non often one only other our out over own part "
        "per same see several she should since some such than them then there these they those "
        "three through two under until use used using usually very was well were what when where "
        "which while who whose within without would you your "
    ).split()
)


class FacetValue(NamedTuple):
    """A value, its documents, and the filter that selects them."""

    value: Any
    documents: int
    filter: str


@dataclass(frozen=True)
class Facet:
    """A field of the metadata with few different values."""

    field: str
    documents: int  # that have a value
    different: int  # values
    values: tuple[FacetValue, ...]  # the most frequent
    is_exact: bool = True  # or counted in a sample


@dataclass(frozen=True)
class Example:
    """A query that fits the documents, in plain language and as a tree."""

    text: str
    tree: QueryTree


class Overview:
    """Facets and examples, found once for each state of a store.

    A state is a reader and its number of documents: the reader of a server is always the same.
    """

    def __init__(self) -> None:
        self._state: object = None
        self._known: dict[str, Any] = {}

    def facets(self, reader: Reader) -> tuple[Facet, ...]:
        """Return the facets of the present state."""
        known = self._known_of(reader)
        if "facets" not in known:
            known["facets"] = find_facets(reader)
        facets: tuple[Facet, ...] = known["facets"]
        return facets

    def examples(self, reader: Reader) -> tuple[Example, ...]:
        """Return the examples of the present state."""
        known = self._known_of(reader)
        if "examples" not in known:
            known["examples"] = find_examples(reader, self.facets(reader))
        examples: tuple[Example, ...] = known["examples"]
        return examples

    def _known_of(self, reader: Reader) -> dict[str, Any]:
        """Return what is known of the present state; another thread may see another one."""
        # A weak reference: the reader of an old state may hold much memory.
        state = (weakref.ref(reader), reader.count(Filter()))
        if state != self._state:
            self._state, self._known = state, {}
        return self._known


def find_facets(reader: Reader) -> tuple[Facet, ...]:
    """Return the fields that divide the documents, those that most documents have first."""
    names = sorted(reader.fields())[:_LOOKED]
    return _facets({name: reader.value_counts(name, _VALUES) for name in names})


def count_facets(documents: Sequence[Document], *, is_exact: bool) -> tuple[Facet, ...]:
    """Return the fields that divide some documents; ``is_exact`` if there are no others."""
    rows = [document.metadata for document in documents]
    names = sorted({name for row in rows for name in row})[:_LOOKED]
    counts = {name: count_values(rows, name, _VALUES) for name in names}
    return _facets({name: c._replace(is_exact=is_exact) for name, c in counts.items()})


def _facets(counts: Mapping[str, ValueCounts]) -> tuple[Facet, ...]:
    facets = []
    for name, (n_documents, n_different, frequent, is_exact) in counts.items():
        if not 1 < n_different <= min(_DIFFERENT, n_documents / 2):
            continue
        values = [
            FacetValue(value, n, text)
            for value, n in frequent
            if (text := _filter_text(name, value)) and len(str(value)) <= _MAX_VALUE
        ]
        if all(is_number(value) for value, _, _ in values):
            values.sort()
        if len(values) > 1:
            facets.append(Facet(name, n_documents, n_different, tuple(values), is_exact))
    facets.sort(key=lambda facet: (-facet.documents, facet.different, facet.field))
    return tuple(facets[:_FIELDS])


def _filter_text(name: str, value: Any) -> str:  # noqa: ANN401 - of metadata
    """Return the filter for a value, empty if the language of filters cannot express it."""
    text = f"{name}={str(value).lower() if isinstance(value, bool) else value}"
    try:
        chosen = parse_filters([text]).get(name, {}).get("in", [])
    except QueryError:
        return ""
    return text if value in chosen else ""


def find_examples(reader: Reader, facets: Sequence[Facet]) -> tuple[Example, ...]:
    """Return a plain query, one with NOT, one with AND and one with OR, where there are any.

    Their operands are phrases, words and values of metadata that several documents hold. In the
    sample some documents have what each query asks for, and others only a part of it.
    """
    documents = reader.sample(_SAMPLE)
    topics = _topics(documents, [str(value) for facet in facets for value, _, _ in facet.values])
    stems = {name: set(terms_of(name)) for name in topics}
    pairs = [(a, b) for a, b in permutations(topics, 2) if stems[a].isdisjoint(stems[b])]
    plain = max(topics, key=lambda name: (" " in name) * len(topics[name]), default="")
    examples = [Example(plain, Atom(plain))] if plain else []
    used = {plain}
    for score, words, join in _KINDS:
        scores = {pair: score(topics[pair[0]], topics[pair[1]], len(documents)) for pair in pairs}
        fitting = [pair for pair in pairs if scores[pair] > 0]
        # Topics that no example has yet come first.
        best = max(fitting, key=lambda p: (used.isdisjoint(p), scores[p]), default=None)
        if best is not None:
            used |= set(best)
            first, second = best
            examples.append(Example(f"{first} {words} {second}", join(Atom(first), Atom(second))))
    return tuple(examples)


def _not_score(a: set[int], b: set[int], _n: int) -> float:
    """Prefer an operand that excludes about half of the other's documents, and few besides."""
    n_both = len(a & b)
    return min(n_both, len(a) - n_both) * n_both / len(b) if n_both > 1 else 0.0


def _and_score(a: set[int], b: set[int], n: int) -> float:
    """Prefer operands that are together in many documents, and more than by chance."""
    n_both = len(a & b)
    is_stricter = 1 < n_both < min(len(a), len(b))
    return n_both * math.log1p(n * n_both / (len(a) * len(b))) if is_stricter else 0.0


def _or_score(a: set[int], b: set[int], _n: int) -> float:
    """Prefer frequent operands that are rarely together."""
    return min(len(a), len(b)) - 3.0 * len(a & b)


_KINDS: tuple[tuple[_Score, str, Callable[[Atom, Atom], QueryTree]], ...] = (
    (_not_score, "but not", lambda a, b: And((a, Not(b)))),
    (_and_score, "and", lambda a, b: And((a, b))),
    (_or_score, "or", lambda a, b: Or((a, b))),
)


def _topics(documents: Sequence[Document], values: Sequence[str]) -> dict[str, set[int]]:
    """Return words and phrases that are likely topics, best first, with the documents of each.

    A topic is in several documents but not in most. It counts more if it is repeated in a text, is
    in titles, is a value of the metadata, or is a phrase whose words are usually together.
    """
    total: Counter[str] = Counter()
    titled: Counter[str] = Counter()
    holders: dict[str, set[int]] = {}
    shown: dict[str, Counter[str]] = {}
    inside: set[str] = set()
    for number, document in enumerate(documents):
        titled.update({text.lower() for text in _phrases(document.title)})
        for text in _phrases(f"{document.title}\n{document.text[:_CHARACTERS]}"):
            key = text.lower()
            total[key] += 1
            holders.setdefault(key, set()).add(number)
            shown.setdefault(key, Counter())[text] += 1
    known = {value.lower() for value in values}
    most = max(_LEAST, _MAX_SHARE * len(documents))
    weights: dict[str, float] = {}
    for key in sorted(holders, key=lambda key: -key.count(" ")):
        numbers, words = holders[key], key.split(" ")
        if not _LEAST <= len(numbers) <= most:
            continue
        if len(words) > 1:
            sizes = [len(holders[word]) for word in words]
            if max(sizes) > most or len(numbers) < _STICKY * min(sizes):
                continue
            inside.update({word for word in words if len(numbers) > _STICKY * len(holders[word])})
        elif key in inside:  # "States" says less than "United States"
            continue
        salience = (total[key] - len(numbers) + titled[key]) / len(numbers) + (key in known)
        weights[key] = len(numbers) * (salience + (len(words) > 1))
    best = sorted(weights, key=lambda key: (-weights[key], key))[:_TOPICS]
    return {shown[key].most_common(1)[0][0]: holders[key] for key in best if weights[key] > 0}


def _phrases(text: str) -> Iterator[str]:
    """Return the words of a text that may be topics, and pairs of two such words in a row."""
    last = ""
    for word in _WORD.findall(text):
        if not _is_content(word.lower()):
            last = ""
            continue
        yield word
        if last and last != word:
            yield f"{last} {word}"
        last = word


@lru_cache(maxsize=1 << 16)
def _is_content(word: str) -> bool:
    return len(word) > 2 and word[0].isalpha() and word not in _COMMON and bool(terms_of(word))
