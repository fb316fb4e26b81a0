"""Documents of a source with the facets they have, and which facets their texts decide.

A facet holds ("yes"), does not hold, or is undecided. Two policies: ``closed`` (the text lists
every value that holds) and ``named`` (a label of the source counts where the text names the value;
a label without the name, or the name without the label, is undecided).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    Name = tuple[str, ...]  # the stems of its words
    Names = Mapping[Name, Sequence["Value"]]
    Kinds = Mapping[str, Mapping[str, Any]]

#: Words of a document; short enough for encoders of 256 tokens.
MAX_WORDS = 180
_MIN_LABELS, _LONGEST, _ENOUGH = 5, 5, 4
_WORD = re.compile(r"[^\W_]+[+#]*")


class Value(NamedTuple):
    """One facet value: its kind, and its name as a person writes it."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """One document with its labels by kind; ``undecided`` labels may or may not be in the text.

    ``wider`` has what holds by the hierarchy of the source where the text names narrower things.
    """

    id: str
    title: str
    text: str
    labels: Mapping[str, Iterable[str]] = field(default_factory=dict)
    undecided: Mapping[str, Iterable[str]] = field(default_factory=dict)
    wider: Mapping[str, Iterable[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decided:
    """One document with the values that hold and those that cannot be decided."""

    item: Item
    yes: frozenset[Value]
    maybe: frozenset[Value]


def stems(text: str) -> list[str]:
    """Return the words of a text in lower case, without the s of a plural.

    >>> stems("Allergies and U.S. tomatoes")
    ['allergy', 'and', 'u', 's', 'tomato']
    """
    return [_stem(word) for word in _WORD.findall(text.lower())]


def _stem(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-2] if word.endswith(("oes", "ches", "shes", "xes", "sses")) else word[:-1]


def cut(text: str, n_words: int = MAX_WORDS) -> str:
    """Shorten a text to whole sentences of at most so many words together, at least one."""
    words = text.split()
    if len(words) <= n_words:
        return " ".join(words)
    ends = [at for at in range(n_words) if words[at].endswith((".", "!", "?"))]
    return " ".join(words[: ends[-1] + 1 if ends else n_words])


def decide(items: Iterable[Item], kinds: Kinds, domain: str = "") -> list[Decided]:
    """Decide the facets of all documents; ``kinds`` has the policy of each kind.

    Of several items with one id, the first counts.
    """
    first: dict[str, Item] = {}
    for item in items:
        first.setdefault(item.id, replace(item, id=f"{domain}:{item.id}", text=cut(item.text)))
    read = list(first.values())
    counts = Counter(v for item in read for v in _values(item.labels, kinds))
    known = {value for value, n in counts.items() if n >= _MIN_LABELS}
    names = defaultdict(list)
    for value in sorted(known):
        if kinds[value.kind]["policy"] != "closed":
            for name in kinds[value.kind].get("variants", {}).get(value.name, [value.name]):
                names[tuple(stems(name))].append(value)
    return [_decide(item, known, names, kinds) for item in read]


def _decide(item: Item, known: set[Value], names: Names, kinds: Kinds) -> Decided:
    labels = known.intersection(_values(item.labels, kinds))
    maybe = known.intersection(_values(item.undecided, kinds))
    named = set(named_values(item.text, names))
    yes = {v for v in labels if kinds[v.kind]["policy"] == "closed" or v in named}
    return Decided(item, frozenset(yes), frozenset((labels | named | maybe) - yes))


def _values(labels: Mapping[str, Iterable[str]], kinds: Kinds) -> Iterator[Value]:
    for kind, names in labels.items():
        left_out = kinds[kind].get("leave_out", ())
        yield from (Value(kind, name) for name in names if name not in left_out)


def longest_names(words: Sequence[str], names: Container[Name]) -> Iterator[Name]:
    """Find names, the longest at each word."""
    at = 0
    while at < len(words):
        for end in range(min(at + _LONGEST, len(words)), at, -1):
            if (name := tuple(words[at:end])) in names:
                yield name
                at = end - 1
                break
        at += 1


def named_values(text: str, names: Names) -> Iterator[Value]:
    """Find the values that a text names."""
    words = stems(text)
    for start in range(len(words)):
        for end in range(start + 1, min(start + _LONGEST, len(words)) + 1):
            yield from names.get(tuple(words[start:end]), ())


def choose(decided: Sequence[Decided], n_documents: int) -> list[Decided]:
    """Choose documents, those with several useful facets first, then by a hash of their ids."""
    counts = Counter(value for document in decided for value in document.yes)
    useful = {value for value, n in counts.items() if n <= n_documents / 4}

    def key(document: Decided) -> tuple[int, bytes]:
        n_useful = min(_ENOUGH, len(document.yes & useful))
        return -n_useful, hashlib.sha256(document.item.id.encode()).digest()

    chosen = sorted((document for document in decided if document.yes), key=key)[:n_documents]
    return sorted(chosen, key=lambda document: document.item.id)


def ancestors(term: Hashable, parents: Mapping[Any, Sequence[Any]]) -> set[Any]:
    """Return a term with all that are above it."""
    values: set[Any] = set()
    waiting = [term]
    while waiting:
        if (up := waiting.pop()) not in values:
            values.add(up)
            waiting += parents.get(up, ())
    return values
