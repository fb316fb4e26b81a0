"""Wordings by structure, and queries worded with exact spans.

Training wordings are in wordings.toml. The unseen ones in unseen.json were written by another
writer who saw none of these; half of the general ones belong to validation, half to the test.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import chain, product, zip_longest
from typing import TYPE_CHECKING, Any

from benchmark_data.domains.kinds import TABLE, groups
from benchmark_data.taxa.phrases import Builder
from boolattn.files import package_table
from boolattn.query.syntax import parse_with_spans, template_tree, unparse

if TYPE_CHECKING:
    import random

    from benchmark_data.domains.items import Value
    from boolattn.data.sentences import Span

_PACKAGE = "benchmark_data.domains"
_CHOICE = re.compile(r"\[([^\]]*)\]")
_SLOT = re.compile(r"\{(noun|[a-eA-E])\}")
#: Structure of a wording -> its template.
STRUCTURES: Mapping[str, str] = package_table(_PACKAGE, "wordings.toml")["structures"]


@dataclass(frozen=True)
class Wording:
    """One wording; its name tells who may train on it."""

    name: str  # "seen:not2/3"
    text: str

    @property
    def slots(self) -> frozenset[str]:
        """Its operands: small letters with their links, capitals bare."""
        return frozenset(_SLOT.findall(self.text)) - {"noun"}

    def fits(self, operands: Sequence[Value], bare: frozenset[str]) -> bool:
        """Say whether operands can be worded; ``bare`` are the kinds that can stand alone."""
        is_elided = any(map(str.islower, self.slots)) and any(map(str.isupper, self.slots))
        if is_elided:
            return len({value.kind for value in operands}) == 1
        return all(map(str.islower, self.slots)) or all(v.kind in bare for v in operands)


@dataclass(frozen=True)
class Worded:
    """A query's text, and for each operand its text and its spans."""

    text: str
    operands: tuple[str, ...]
    spans: tuple[tuple[Span, ...], ...]


@lru_cache(maxsize=1)
def _tables() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    unseen = json.loads(files(_PACKAGE).joinpath("unseen.json").read_text(encoding="utf-8"))
    return package_table(_PACKAGE, "wordings.toml"), unseen


def digest() -> str:
    """Return a hash of all wordings, kinds and questions."""
    tables = (*_tables(), TABLE, package_table(_PACKAGE, "single.toml"))
    return hashlib.sha256(json.dumps(tables, ensure_ascii=False).encode()).hexdigest()


@lru_cache(maxsize=64)
def wordings(domain: str, split: str) -> Mapping[str, tuple[tuple[Wording, ...], ...]]:
    """Return by structure the sets of wordings of a split: the general ones, and the domain's."""
    seen, unseen = _tables()
    if "unseen" not in split:
        return {name: (_named("seen", name, texts),) for name, texts in seen["general"].items()}
    part = int(not split.startswith("validation"))
    wordings = {}
    for name, texts in unseen["general"].items():
        special = _named("unseen", f"{domain}.{name}", unseen["domains"][domain].get(name, ()))
        if package_table(_PACKAGE, "domains.toml")[domain]["role"] == "train":
            special = special[part::2]
        general = _named("unseen", name, texts)[part::2]
        # Two writers may hit upon the same words: then they are not unseen.
        trained = {expanded for text in seen["general"][name] for expanded in _expanded(text)}
        fresh = (tuple(w for w in group if w.text not in trained) for group in (general, special))
        wordings[name] = tuple(filter(None, fresh))
    return wordings


def _named(exposure: str, name: str, texts: Sequence[str]) -> tuple[Wording, ...]:
    return tuple(Wording(f"{exposure}:{name}/{n}", text) for n, text in enumerate(texts))


def _expanded(text: str) -> Iterator[str]:
    """Yield a training wording with each of its choices."""
    pieces = _CHOICE.split(text)
    for chosen in product(*(piece.split("|") for piece in pieces[1::2])):
        rest = chain.from_iterable(zip_longest(pieces[::2], chosen, fillvalue=""))
        yield "".join(rest)


class Speaker:
    """Words the operands of one domain and split."""

    def __init__(self, domain: str, split: str, rng: random.Random) -> None:
        row = package_table(_PACKAGE, "domains.toml")[domain]
        self._nouns, self._kinds = row["nouns"], dict(row["kinds"])
        if "kinds" in split:
            self._kinds |= {k: kind for k, kind in groups(domain).items() if "links" in kind}
        self._bare = frozenset(k for k, kind in self._kinds.items() if kind.get("bare", True))
        self._wordings = wordings(domain, split)
        self._requests = [""] if "unseen" in split else _tables()[0]["request"]
        self._rng = rng

    def word(self, structure: str, operands: Sequence[Value]) -> tuple[str, Worded] | None:
        """Return the name of a wording and the query; ``None`` where no wording fits."""
        texts = self._rng.choice(self._wordings[structure])
        fitting = [wording for wording in texts if wording.fits(operands, self._bare)]
        if not fitting:
            return None
        wording = self._rng.choice(fitting)
        noun = self._rng.choice(self._nouns)
        links = {k: self._rng.choice(kind["links"]) for k, kind in sorted(self._kinds.items())}
        worded = self._fill(wording, operands, noun, links)
        return wording.name, worded

    def explicit(self, template: str, operands: Sequence[Value]) -> Worded | None:
        """Write operands in explicit syntax, bare; ``None`` where one cannot stand alone."""
        if any(value.kind not in self._bare for value in operands):
            return None
        names = [value.name for value in operands]
        text = unparse(template_tree(template, names))
        spans = [(span,) for span in parse_with_spans(text)[1]]
        return Worded(text, tuple(names), tuple(spans))

    def _fill(
        self, wording: Wording, operands: Sequence[Value], noun: str, links: Mapping[str, str]
    ) -> Worded:
        chosen = _CHOICE.sub(lambda match: self._rng.choice(match[1].split("|")), wording.text)
        request = self._rng.choice(self._requests) if chosen.startswith("{noun}") else ""
        pieces = _SLOT.split(f"{request} {chosen}".strip())
        slots = pieces[1::2]
        elided = [_index(slot) for slot in slots if slot.isupper() and len(slot) == 1]
        builder = Builder(len(operands))
        for at, piece in enumerate(pieces):
            if at % 2 == 0:
                builder.add(piece)
            elif piece == "noun":
                builder.add(noun, _owners(slots, at // 2))
            else:
                index = _index(piece)
                if piece.islower():
                    # Elided operands share the link before them: "with garlic or onion".
                    builder.add(f"{links[operands[index].kind]} ", {index, *elided})
                builder.add(operands[index].name, {index})
        phrase = builder.finish()
        texts = tuple(f"{noun} {links[value.kind]} {value.name}" for value in operands)
        return Worded(self._cased(phrase.text), texts, phrase.operands)

    def _cased(self, text: str) -> str:
        draw = self._rng.random()
        upper = text[0].upper() + text[1:]
        return upper if draw < 0.3 else text.lower() if draw > 0.8 else text


def _index(slot: str) -> int:
    return ord(slot.lower()) - ord("a")


def _owners(slots: Sequence[str], at: int) -> set[int]:
    """Return the operands of a noun: those before the next noun, and before the first one too."""
    nouns = [index for index, slot in enumerate(slots) if slot == "noun"]
    end = next((index for index in nouns if index > at), len(slots))
    start = at if at != nouns[0] else 0
    return {_index(slot) for slot in slots[start:end] if slot != "noun"}
