"""More varied wordings of AND, OR and NOT than the taxa benchmark has, for training.

varied.toml has no word that the benchmark holds out. A quarter of it is held out of training, for
model selection without the benchmark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from benchmark_data.taxa.phrases import Builder, families_of, slots_of
from benchmark_data.taxa.wordings import families, links, requests, skeleton_shape
from boolattn.data.sentences import CueSpan
from boolattn.errors import ConfigError
from boolattn.files import package_table
from boolattn.query.syntax import TEMPLATES

if TYPE_CHECKING:
    import random

    from boolattn.query.tree import Operator

#: How often a sentence has a skeleton of the taxa benchmark, with a varied cue or request.
_SEEN_SKELETON = 0.35
#: How often any other part is varied.
_VARIED = 0.5
_REQUEST = 0.3
TABLE = ("experiments.sentences", "varied.toml")


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A sentence skeleton."""

    text: str  # in the markup
    takes_request: bool  # whether a request such as "show me" may precede it
    #: Operands it fits: "any", "phrases" with one head, one group in several "places", or several
    #: "groups" in one place
    shape: str
    slots: frozenset[str]
    families: tuple[str, ...]  # of its cues


@dataclass(frozen=True, slots=True)
class VariedWords:
    """One part of the table: for training, or held out."""

    links: tuple[str, ...]
    requests: tuple[str, ...]
    cues: Mapping[str, tuple[str, ...]]
    skeletons: Mapping[str, tuple[Skeleton, ...]]


@dataclass(frozen=True, slots=True)
class Draw:
    """A drawn wording: a skeleton, its cues by family, and a request."""

    skeleton: str
    cues: Mapping[str, tuple[Operator, str]]
    request: str


class VariedWordings:
    """Draws wordings with at least one part of varied.toml."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        self._rng = rng
        self.words = varied_words(held_out=held_out)

    def draw(
        self, template: str, fitting: Sequence[Skeleton], seen: Iterable[tuple[str, bool]]
    ) -> Draw:
        """Draw a wording.

        Args:
            template: The structure.
            fitting: Skeletons of varied.toml that fit the content.
            seen: Skeletons of the taxa benchmark that fit, and whether each takes a request.
        """
        if fitting and self._rng.random() >= _SEEN_SKELETON:
            chosen = self._rng.choice(fitting)
            request = self._request(forced=False) if chosen.takes_request else "*"
            return Draw(chosen.text, self._cues(chosen.families, ""), request)
        # One part has to be varied: a cue, or the request where the structure has no cue.
        able = [row for row in seen if (families_of(row[0]) if template != "_" else row[1])]
        if not able:
            raise ConfigError(f"varied.toml: no wording of {template!r} fits")
        text, takes_request = self._rng.choice(able)
        names = families_of(text)
        request = self._request(forced=not names) if takes_request else "*"
        return Draw(text, self._cues(names, self._rng.choice(names) if names else ""), request)

    def _request(self, *, forced: bool) -> str:
        if forced:
            return self._rng.choice(self.words.requests)
        if self._rng.random() >= _REQUEST:
            return "*"
        is_varied = self._rng.random() < _VARIED
        return self._rng.choice(self.words.requests if is_varied else requests().seen)

    def _cues(self, names: Sequence[str], forced: str) -> dict[str, tuple[Operator, str]]:
        cues = {}
        for name in names:
            family = families()[name]
            is_varied = name == forced or self._rng.random() < _VARIED
            cue = self._rng.choice(self.words.cues[name] if is_varied else family.seen)
            cues[name] = (family.operator, cue)
        return cues

    def link(self) -> str:
        """Draw the link of a group and its place."""
        is_varied = self._rng.random() < _VARIED
        return self._rng.choice(self.words.links if is_varied else links().seen)


class VariedBuilder(Builder):
    """A builder whose cues may be signs: "frogs Peru -Ecuador", "moths | owls"."""

    __slots__ = ()

    def _mark(
        self, start: int, piece: str, owners: tuple[int, ...], operator: Operator | None
    ) -> None:
        super()._mark(start, piece, owners, None)
        if operator is None:
            return
        word = re.search(r"[^\s,.;:?()](?:.*[^\s,.;:?()])?", piece)
        if word:
            self._cues.append(CueSpan(operator, start + word.start(), start + word.end()))


@lru_cache(maxsize=2)
def varied_words(*, held_out: bool) -> VariedWords:
    """Return the words for training, or the held-out ones."""
    part, table = "held_out" if held_out else "train", package_table(*TABLE)
    if set(table["cues"]) != set(families()):
        raise ConfigError("varied.toml: its cue families are not those of the taxa wordings")
    if {row["template"] for row in table["structure"]} != set(TEMPLATES):
        raise ConfigError("varied.toml: its templates are not QUEST's")
    return VariedWords(
        links=tuple(table["links"][part]),
        requests=tuple(table["requests"][part]),
        cues={name: tuple(row[part]) for name, row in table["cues"].items()},
        skeletons={row["template"]: tuple(map(_skeleton, row[part])) for row in table["structure"]},
    )


def _skeleton(raw: str) -> Skeleton:
    text = raw.removeprefix("!")
    slots = slots_of(text)
    shape = "phrases" if "H" in slots else skeleton_shape(text)
    return Skeleton(text, raw == text, shape, slots, families_of(text))
