"""What an index holds, for people who do not know it: facets of its metadata, example queries.

Both are the same for the same documents, and read a bounded number of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

from boolattn.errors import QueryError
from boolattn.kinds.lexicon import load_kinds
from boolattn.query.tree import And, Atom, Not, Or, QueryTree
from boolattn.stores.analysis import terms_of
from boolattn.stores.filters import Field, Filter, number_ranges, parse_filters
from boolattn.stores.values import ValueCounts, count_values, is_number, items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from boolattn.data.records import Document
    from boolattn.stores.base import Reader

#: Most fields looked at, fields and values returned, different values of a field that is a facet.
_LOOKED, _FIELDS, _VALUES, _DIFFERENT = 60, 8, 12, 500
_MAX_VALUE = 60  # characters; a longer text is no category
#: Documents from which examples are taken, and characters of each.
_SAMPLE, _CHARACTERS = 1000, 1500
#: Topics that are combined; share of the sample that may have one, and documents that must.
_TOPICS, _MAX_SHARE, _LEAST = 16, 0.4, 3
_SHORTEST = 3  # letters of a topic
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")


@dataclass(frozen=True)
class FacetValue:
    """A value, its documents, and the filter that selects them."""

    value: Any
    documents: int
    filter: str


@dataclass(frozen=True)
class Facet:
    """A field of the metadata with few different values, or with numbers."""

    field: str
    documents: int  # that have a value
    different: int  # values
    values: tuple[FacetValue, ...]  # the most frequent; none where numbers have a range
    is_exact: bool = True  # or counted in a sample
    low: float | None = None  # the least number of the field in the whole index, or year of a date
    high: float | None = None
    is_date: bool = False  # whether low and high are years of dates


@dataclass(frozen=True)
class Example:
    """A query that fits the documents, in plain language and as a tree."""

    text: str
    tree: QueryTree


def find_facets(reader: Reader) -> tuple[Facet, ...]:
    """Return the fields that divide the documents, those that most documents have first."""
    fields = reader.fields()
    names = sorted(fields)[:_LOOKED]
    return _facets({name: reader.value_counts(name, _VALUES) for name in names}, fields, 2)


def count_facets(
    documents: Sequence[Document], fields: Mapping[str, Field], *, is_exact: bool
) -> tuple[Facet, ...]:
    """Return the fields that divide some documents; ``is_exact`` if there are no others."""
    rows = [document.metadata for document in documents]
    names = sorted({name for row in rows for name in row})[:_LOOKED]
    counts = {name: count_values(rows, name, _VALUES, is_exact=is_exact) for name in names}
    return _facets(counts, fields, 1)


def _facets(
    counts: Mapping[str, ValueCounts], fields: Mapping[str, Field], least: int
) -> tuple[Facet, ...]:
    """Return the fields whose values have at least so many documents, on average."""
    facets, ranges = [], number_ranges(fields)
    for name, (n_documents, n_different, frequent, is_exact) in counts.items():
        low, high = ranges.get(name, (0.0, 0.0))[:2]
        is_range = low < high and n_different > min(len(frequent), n_documents / least)
        if is_range and _filter_text(name, 1):
            is_date = not fields[name].numbers
            facets.append(Facet(name, n_documents, n_different, (), is_exact, low, high, is_date))
            continue
        if not 1 < n_different <= min(_DIFFERENT, n_documents / least):
            continue
        values = [
            FacetValue(value, n, text)
            for value, n in frequent
            if (text := _filter_text(name, value)) and len(str(value)) <= _MAX_VALUE
        ]
        if all(is_number(counted.value) for counted in values):
            values.sort(key=lambda counted: counted.value)
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


def absent_values(reader: Reader, where: Filter) -> tuple[str, ...]:
    """Name the values of conditions that no document has, with those that there are."""
    lines = []
    for condition in where.conditions:
        if condition.kind == "in" and not reader.count(Filter((condition,))):
            values = [str(value) for value, _ in reader.value_counts(condition.name, _VALUES)[2]]
            asked = f"{condition.name}={' or '.join(dict.fromkeys(map(str, condition.values)))}"
            held = [
                str(v) for v in condition.values if any(str(v).lower() in t.lower() for t in values)
            ]
            hint = f"; {condition.name}~{held[0]} finds values that contain it" if held else ""
            lines.append(f"no document has {asked}; there are {', '.join(values) or 'none'}{hint}")
    return tuple(lines)


def find_examples(reader: Reader) -> tuple[Example, ...]:
    """Return a plain query, one with NOT, one with AND and one with OR, where there are any.

    Their operands are names of things, words of titles and values of metadata that several
    documents hold. In the sample some have what each query asks for, others only a part of it.
    """
    fields = [facet.field for facet in find_facets(reader)]
    topics = _topics(reader.sample(_SAMPLE), fields)
    stems = {name: set(terms_of(name)) for name in topics}
    pairs = [(a, b) for a, b in permutations(topics, 2) if stems[a].isdisjoint(stems[b])]
    plain = max(topics, key=lambda name: (" " in name) * len(topics[name]), default="")
    examples = [Example(plain, Atom(plain))] if plain else []
    used = {plain}
    order = {name: rank for rank, name in enumerate(topics, start=1)}
    for words, join, score in _KINDS:
        scores = {
            (a, b): score(len(topics[a]), len(topics[b]), len(topics[a] & topics[b])) / order[a]
            for a, b in pairs
        }
        fitting = (pair for pair in pairs if scores[pair] > 0)
        # Topics that no example has yet come first.
        if best := max(fitting, key=lambda p: (used.isdisjoint(p), scores[p]), default=()):
            used |= set(best)
            examples.append(Example(f" {words} ".join(best), join(*map(Atom, best))))
    return tuple(examples)


#: Words of an operator, its tree, and how well two topics fit it, by how many documents the first
#: has, the second, and both.
_KINDS: tuple[tuple[str, Callable[[Atom, Atom], QueryTree], Callable[..., float]], ...] = (
    # It excludes about half of the first one's documents, and few besides.
    ("but not", lambda a, b: And((a, Not(b))), lambda a, b, both: min(both, a - both) * both / b),
    # Together they are in many documents, and more than by chance.
    ("and", lambda a, b: And((a, b)), lambda a, b, both: both**2 / max(a, b) * (both < min(a, b))),
    ("or", lambda a, b: Or((a, b)), lambda a, b, both: min(a, b) - 3 * both),
)


def _topics(documents: Sequence[Document], fields: Sequence[str]) -> dict[str, set[int]]:
    """Return likely topics, best first, with the documents of each.

    A topic is in several documents but not in most. It counts more if it is in titles or is a value
    of the metadata, or has several words.
    """
    holders: dict[str, set[int]] = {}
    shown: dict[str, Counter[str]] = {}
    marked: Counter[str] = Counter()
    for number, document in enumerate(documents):
        values = [v for name in fields for v in items(document.metadata.get(name))]
        labels = [*_WORD.findall(document.title), *(v for v in values if isinstance(v, str))]
        marked.update({_key(label) for label in labels})
        text = document.text[:_CHARACTERS]
        things = (text[m.start : m.end] for m in load_kinds().mentions(text))
        for label in (*labels, *things):
            if key := _key(label):
                holders.setdefault(key, set()).add(number)
                shown.setdefault(key, Counter())[label] += 1
    weights = {
        key: marked[key] + len(numbers) * (0.2 + 0.3 * (" " in key))
        for key, numbers in holders.items()
        if _LEAST <= len(numbers) <= max(_LEAST, _MAX_SHARE * len(documents))
    }
    best = sorted(weights, key=lambda key: (-weights[key], key))[:_TOPICS]
    return {shown[key].most_common(1)[0][0]: holders[key] for key in best}


def _key(label: str) -> str:
    """Return the stems of a label, whatever its case and number; empty if it is not a topic."""
    is_name = _SHORTEST <= len(label) <= _MAX_VALUE and label[0].isalpha()
    is_name &= label.lower() not in ("yes", "true", "false", "none")
    return " ".join(terms_of(label)) if is_name else ""
