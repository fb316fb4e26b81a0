"""The lexicon of kinds: which things are of which kind, and which places lie in which.

Its file has WordNet's concrete nouns, and cities. A dictionary would take longer than bisection.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from boolattn.errors import ConfigError
from boolattn.jsonl import read_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Spans = Iterable[tuple[int, int]]

_FILE = Path(__file__).with_name("wordnet.npz")  # written by experiments/kinds_lexicon.py
_ADDITIONS = Path(__file__).with_name("additions.txt")
#: Flags of an entry: the name of one thing; a thing of a kind whose name is not the kind's; written
#: with a capital letter; an adjective, which says that something has to do with the kind.
NAME, MEMBER, CAPITAL, RELATED = 1, 2, 4, 8
VALUE, SHIFT = "=", 4  # begins the tag of a value of the metadata; bits of the flags
_LONGEST, _LIST = 4, 6  # words of a phrase, and characters between those of a list
_FOOD, LAND = 10, (12, 14)  # classes: of food; of places, and of islands, mountains and lakes
_WORD = re.compile(r"[^\W_]+")
_GAP = re.compile(r"[ \t\u00a0'’‐‑-]?|'s |’s ")
_FREE = re.compile(r"(?:[-‐‑ ]free)?(?: (?!(?:and|but|for|in|or|with)\b)[\w-]+){0,2} ")
_PLURALS = (("ies", "y"), ("ches", "ch"), ("shes", "sh"), ("ses", "s"), ("xes", "x"), ("zes", "z"))
_SHORTENED = {"dairy": "dairy product", "alcoholic": "alcohol"}  # what people say, and mean


class _Wordnet(NamedTuple):
    """Names, their entries, and the parents of nodes; where each begins, and the last one ends."""

    names: bytes
    entries: NDArray[np.int32]
    parents: NDArray[np.int32]
    classes: bytes  # of each node
    starts: memoryview
    entry_starts: memoryview
    parent_starts: memoryview


@cache
def _wordnet() -> _Wordnet:
    with np.load(_FILE) as file:
        names = np.append(file["lemmas"], np.uint8(ord("\n")))
        lengths = np.diff(np.flatnonzero(names == ord("\n")), prepend=-1)
        counts = (lengths, file["counts"], file["n_parents"])
        starts = [np.append(0, np.cumsum(n, dtype=np.int64)).data for n in counts]
        parents, classes = file["parents"], file["classes"].tobytes()
        return _Wordnet(names.tobytes(), file["entries"], parents, classes, *starts)


@lru_cache(maxsize=1 << 17)
def _position(text: str) -> int | None:
    """Return the position of a name that, with its line's end, begins with a text."""
    line, names, starts = text.encode(), _wordnet().names, _wordnet().starts
    at = bisect_left(
        range(len(starts) - 1), line, key=lambda at: names[starts[at] : starts[at + 1]]
    )
    return at if names.startswith(line, starts[at]) else None


@lru_cache(maxsize=1 << 17)
def _entries(phrase: str) -> tuple[int, ...] | None:
    """Return WordNet's entries of a phrase: nodes and flags; ``None`` where it is not known."""
    if (at := _position(f"{phrase}\n")) is None:
        return None
    wordnet = _wordnet()
    return tuple(wordnet.entries[slice(*wordnet.entry_starts[at : at + 2])].tolist())


@cache
def _other_words() -> frozenset[str]:
    """Return WordNet's other words, which tell a typing error from a rare word."""
    with np.load(_FILE) as file:
        return frozenset(file["words"].tobytes().decode().split("\n"))


class Mention(NamedTuple):
    """A phrase of a text that names things of known kinds."""

    start: int
    end: int
    entries: tuple[int, ...]  # nodes and flags
    is_negated: bool = False


class Kinds:
    """What is a kind of what.

    ``members`` are names of things by the name of their kind, besides those that are known; a kind
    ``not NAME`` lists phrases that are of no kind though a word of them is.
    """

    def __init__(self, members: Mapping[str, Sequence[str]] | None = None) -> None:
        # In one order, on which the tags depend: files sort names.
        self.members = {name: list(names) for name, names in sorted((members or {}).items())}
        self._n_nodes = len(_wordnet().classes)
        self._added: dict[str, tuple[int, ...]] = {}
        self._wider: dict[int, tuple[int, ...]] = {}  # kinds of a node, besides WordNet's
        self._add(read_kinds(_ADDITIONS))
        self._add(self.members)
        self._first_words = {name.partition(" ")[0] for name in self._added if " " in name}
        self._lookup = lru_cache(maxsize=1 << 17)(self._find)
        self._ancestors: dict[int, tuple[str, ...]] = {}
        self._users = {plain_phrase(thing) for things in self.members.values() for thing in things}

    @cached_property
    def digest(self) -> str:
        """Identifies the tags: those of another lexicon mean something else."""
        content = _FILE.read_bytes() + _ADDITIONS.read_bytes() + repr(self.members).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    def _add(self, members: Mapping[str, Sequence[str]]) -> None:
        for name, names in members.items():
            phrases = {phrase: text for text in names if (phrase := plain_phrase(text))}
            if name.startswith("not "):
                self._added.update(dict.fromkeys(phrases, ()))
                continue
            node, self._n_nodes = self._n_nodes, self._n_nodes + 1
            self._wider[node] = tuple(entry >> SHIFT for entry in self._named(name)[:1])
            kind, entry = plain_phrase(name), node << SHIFT | NAME * name[0].isupper()
            self._added[kind] = (entry, *(self._known(kind) or ()))
            for phrase, text in phrases.items():
                entries, member = self._find(phrase) or (), node << SHIFT | MEMBER
                flags = (0, NAME) if text[0].isupper() else (0,)  # inside a sentence it is a name
                self._added[phrase] = (*(member | flag for flag in flags), *entries)
                for lower in (e >> SHIFT for e in entries if not e & (MEMBER | RELATED)):
                    self._wider[lower] = (*self._wider.get(lower, ()), node)
                    if lower < len(_wordnet().classes):  # its usual sense
                        break

    def is_word(self, word: str) -> bool:
        """Tell whether an English word, or a plural, is known, whatever it means."""
        return any(f in _other_words() or self._known(f) is not None for f in _singulars(word))

    def mentions(self, text: str, negated: Spans = ()) -> Iterator[Mention]:
        """Yield the phrases of a text that are in the lexicon; the longest wins, or a user's.

        A capitalised word inside a sentence is a name, and beside another one a part of a longer
        name: "Jordan Peele" is no country. In a line of capitalised words case says nothing.
        """
        spans, start = list(negated), 0
        for line in text.splitlines(keepends=True):
            for mention in self._in_line(text, start, start + len(line)):
                is_negated = any(first <= mention.start < last for first, last in spans)
                yield mention._replace(is_negated=True) if is_negated else mention
            start += len(line)

    def _in_line(self, text: str, start: int, stop: int) -> Iterator[Mention]:
        words = list(_WORD.finditer(text, start, stop))
        lowered = [word[0].lower() for word in words]
        capital = [word[0][0].isupper() for word in words]
        long = [word[0][0].isupper() for word in words if len(word[0]) > 3]
        is_title = len(long) > 1 and all(long)
        at, ends = 0, [word.end() for word in words]
        gaps = zip(ends, (word.start() for word in words[1:]), strict=False)
        joined = [False, *(bool(_GAP.fullmatch(text, *gap)) for gap in gaps), False]
        while at < len(words):
            length = 1
            for n in range(self._longest(lowered[at : at + _LONGEST]), 0, -1):
                phrase = " ".join(lowered[at : at + n]) if all(joined[at + 1 : at + n]) else ""
                if (entries := self._lookup(phrase)) is None:
                    continue
                length, end = n, at + n
                is_inside = (joined[at] and capital[at - 1]) or (joined[end] and capital[end])
                may_be_name = is_title or (all(capital[at:end]) and not is_inside)
                may_be = (is_title or not (capital[at] and joined[at]), capital[at])
                names = [entry for entry in entries if may_be_name and entry & NAME]
                nouns = [e for e in entries if not e & NAME and may_be[bool(e & CAPITAL)]]
                # A list of names has each without a capital too, which makes it no noun.
                common = [e for e in nouns if is_title and e | NAME not in entries]
                is_place = lowered[at - 1 : at] in (["from"], ["in"], ["near"], ["to"])
                chosen = (*common, *(names if is_place else ())) if common else names or nouns
                if joined[end] and self._is_land((self._lookup(lowered[end]) or (0,))[0]):
                    chosen = tuple(e & ~(RELATED * self._is_land(e)) for e in chosen)  # Greek isle
                if chosen:
                    yield Mention(words[at].start(), ends[end - 1], tuple(chosen))
                if n == 1 or not self._is_divided(lowered[at:end], chosen):
                    break
                length = 1
            at += length

    def _longest(self, words: Sequence[str]) -> int:
        """Return the most words that a phrase which begins with the first of these can have."""
        if words[0] in self._first_words:
            return len(words)
        starts = (" ".join([*words[:n], ""]) for n in range(1, len(words)))
        return next((n for n, s in enumerate(starts, 1) if _position(s) is None), len(words))

    def _is_divided(self, words: Sequence[str], entries: Iterable[int]) -> bool:
        """Tell whether its words count too: "beef stew"; "laser printer" for a user's printer."""
        if not self._dishes.isdisjoint(self._tags(entries)):
            return True
        is_listed = any(form in self._added for form in _singulars(" ".join(words)))
        return not is_listed and any(f in self._users for word in words for f in _singulars(word))

    def tags(self, text: str, negated: Spans = ()) -> tuple[frozenset[str], ...]:
        """Return tags: of kinds that a text asserts, only negates, and negates by their names."""
        end, lacked, asserted, denied, free_of = 0, *(set[str]() for _ in range(4))
        for mention in self.mentions(text, negated):
            tags = frozenset(self._tags(mention.entries))
            if mention.is_negated:
                itself = {_tag(e >> SHIFT) for e in mention.entries if not e & (MEMBER | RELATED)}
                lacked = itself | (lacked if mention.start - end < _LIST else set())
                end, denied, free_of = mention.end, denied | tags, free_of | itself
            else:  # an alcohol-free beer is no alcohol
                asserted |= tags - lacked if _FREE.fullmatch(text, end, mention.start) else tags
        return frozenset(asserted), frozenset(denied - asserted), frozenset(free_of)

    def senses(self, phrase: str) -> list[tuple[str, ...]]:
        """Return the tags of each kind that a phrase may name; the usual one first.

        Those of one class ("pasta" the dish and the dough) are one; a list of members is of each.
        """
        classes: dict[int, list[str]] = {}
        nodes = [entry >> SHIFT for entry in self._named(phrase)]
        listed = [_tag(node) for node in nodes if node >= len(_wordnet().classes)]
        for tag in (tag for tag in map(_tag, nodes) if tag not in listed):
            classes.setdefault(self.class_of(tag), []).append(tag)
        return [(*tags, *listed) for tags in [*classes.values()] or [[]] if tags or listed]

    def phrases(self, text: str) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        """Split the text of an operand into phrases; yield the senses of each."""
        words = text.split()
        while words:
            for n in range(min(_LONGEST, len(words)), 0, -1):
                phrase = " ".join(words[:n])
                if (senses := self.senses(phrase)) or n == 1:
                    yield phrase, senses
                    words = words[n:]
                    break

    def witnesses(self, text: str, tags: Iterable[str], negated: Spans = ()) -> list[str]:
        """Return the phrases of a text that name a thing of one of some kinds, and not a lack."""
        wanted, mentions = frozenset(tags), self.mentions(text, negated)
        named = (m for m in mentions if not wanted.isdisjoint(self._tags(m.entries)))
        return list(dict.fromkeys(text[m.start : m.end] for m in named if not m.is_negated))

    def _named(self, phrase: str) -> tuple[int, ...]:
        entries = tuple(e for e in self._find(plain_phrase(phrase)) or () if not e & MEMBER)
        return tuple(e for e in entries if bool(e & NAME) == phrase[:1].isupper()) or entries

    def is_name(self, phrase: str) -> bool:
        """Tell whether a phrase names nothing but one thing, as a country or a person."""
        return all(entry & NAME for entry in self._named(phrase))

    def _find(self, phrase: str) -> tuple[int, ...] | None:
        """Return the entries of a phrase that is known; plurals count as singulars."""
        *first, last = phrase.rsplit(" ", 1)
        forms = [" ".join([*first, form]) for form in _singulars(last)]
        known = map(self._known, sorted(forms, key=lambda form: form not in self._added))
        return next((entries for entries in known if entries is not None), None)

    def _known(self, phrase: str) -> tuple[int, ...] | None:
        phrase = _SHORTENED.get(phrase, phrase)
        return self._added[phrase] if phrase in self._added else _entries(phrase)

    def class_of(self, tag: str) -> int:
        """Return the number of WordNet's class of a kind: food, animal, and so on."""
        node, classes = int(tag[1:], 16), _wordnet().classes
        while node >= len(classes) and self._wider[node]:
            node = self._wider[node][0]
        return classes[node] if node < len(classes) else -1

    def _is_land(self, entry: int) -> bool:
        return self.class_of(_tag(entry >> SHIFT)) in LAND

    @cached_property
    def _dishes(self) -> frozenset[str]:
        """The tags of prepared food; a dish is also a bowl."""
        tags = (_tag(entry >> SHIFT) for entry in self._named("dish"))
        return frozenset(tag for tag in tags if self.class_of(tag) == _FOOD)

    def _tags(self, entries: Iterable[int]) -> Iterator[str]:
        for entry in entries:
            tags = self._closure(entry >> SHIFT)
            yield from map(related, tags) if entry & RELATED else tags

    def _closure(self, node: int) -> tuple[str, ...]:
        """Return the tags of a node and of all kinds that it is of."""
        if node not in self._ancestors:
            w, seen, stack = _wordnet(), set[int](), [node]
            while stack:
                if (lower := stack.pop()) not in seen:
                    seen.add(lower)
                    stack += self._wider.get(lower, ())
                    if lower < len(w.classes):
                        stack += w.parents[slice(*w.parent_starts[lower : lower + 2])].tolist()
            self._ancestors[node] = tuple(map(_tag, seen))
        return self._ancestors[node]


@lru_cache(maxsize=8)
def load_kinds(members: str = "{}") -> Kinds:
    """Return the kinds with further members, in JSON."""
    return Kinds(json.loads(members))


def read_kinds(path: Path) -> dict[str, list[str]]:
    """Read kinds from a file of lines such as ``dairy: butter, cream``; # begins a comment."""
    kinds: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        if not (content := line.split("#")[0].strip()):
            continue
        name, colon, names = content.partition(":")
        members = [part.strip() for part in names.split(",") if part.strip()]
        if not colon or not plain_phrase(name) or not members:
            raise ConfigError(f"{path}:{number}: not a kind, as 'dairy: butter, cream' is")
        kinds.setdefault(name.strip(), []).extend(members)
    return kinds


def plain_phrase(phrase: str) -> str:
    """Return a phrase as it is looked up."""
    return " ".join(_WORD.findall(phrase.lower()))


@lru_cache(maxsize=1 << 16)
def _singulars(word: str) -> tuple[str, ...]:
    """Return a word, and what it may be the plural of."""
    forms = (word, *(word[: -len(e)] + singular for e, singular in _PLURALS if word.endswith(e)))
    is_plural = word.endswith("s") and not word.endswith("ss") and len(word) > 3
    return (*forms, word[:-1]) if is_plural else forms


def is_tag(term: str) -> bool:
    """Tell the tag of a kind, or of a value, from a word."""
    return term.startswith(("#", "~", VALUE))


def related(tag: str) -> str:
    """Return the tag of what only has to do with a kind, as "Italian" has with Italy."""
    return "~" + tag[1:]


def _tag(node: int) -> str:
    return f"#{node:x}"
