"""Many more ways to say AND, OR and NOT than the taxa's frozen wordings have, for training.

They are our own (wide.toml) and hold no word that the benchmark holds out. A quarter of them is
kept from training, for choosing between models without a look at the benchmark.
May import: boolattn.data.taxa, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from boolattn.data.taxa.phrases import Builder, CueSpan, families_of, slots_of
from boolattn.data.taxa.wordings import families, links, requests
from boolattn.errors import ConfigError
from boolattn.logic.templates import TEMPLATES

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from boolattn.logic.operators import Operator

#: How often a wide sentence takes one of the taxa's own skeletons, with a cue of ours in it.
_SEEN_SKELETON = 0.35
#: How often any part that may be ours is.
_OURS = 0.5
_REQUEST = 0.3


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A skeleton of a sentence, without the sign for a request.

    Attributes:
        text: In the markup.
        takes_request: Whether words such as "show me" may stand before it.
        shape: What it speaks of: any operands, "phrases" that cut one head, one group in several
            "places", or several "groups" in one place.
        slots: The slots in it.
        families: The cue families it asks for.
    """

    text: str
    takes_request: bool
    shape: str
    slots: frozenset[str]
    families: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """One half of the table: what training may see, or what it may not."""

    links: tuple[str, ...]
    requests: tuple[str, ...]
    cues: Mapping[str, tuple[str, ...]]
    skeletons: Mapping[str, tuple[Skeleton, ...]]


@dataclass(frozen=True, slots=True)
class Draw:
    """What a sentence is made with: a skeleton, its cues by family, and a request around it."""

    skeleton: str
    cues: Mapping[str, tuple[Operator, str]]
    request: str


class WideSpeaker:
    """Draws wordings of which at least one part is ours, from one generator."""

    def __init__(self, rng: random.Random, *, held_out: bool) -> None:
        self._rng = rng
        self.words = wide_words(held_out=held_out)

    def draw(
        self, template: str, fitting: Sequence[Skeleton], seen: Iterable[tuple[str, bool]]
    ) -> Draw:
        """Draw a wording.

        Args:
            template: The structure.
            fitting: Our skeletons that can be said of the content.
            seen: The taxa's skeletons that can, and whether each takes a request.
        """
        if fitting and self._rng.random() >= _SEEN_SKELETON:
            chosen = self._rng.choice(fitting)
            request = self._request(forced=False) if chosen.takes_request else "*"
            return Draw(chosen.text, self._cues(chosen.families, ""), request)
        # One part has to be ours: a cue, or the request where the structure has none to draw.
        able = [row for row in seen if (families_of(row[0]) if template != "_" else row[1])]
        if not able:
            raise ConfigError(f"wide.toml: no wording of {template!r} fits")
        text, takes_request = self._rng.choice(able)
        names = families_of(text)
        request = self._request(forced=not names) if takes_request else "*"
        return Draw(text, self._cues(names, self._rng.choice(names) if names else ""), request)

    def _request(self, *, forced: bool) -> str:
        if forced:
            return self._rng.choice(self.words.requests)
        if self._rng.random() >= _REQUEST:
            return "*"
        ours = self._rng.random() < _OURS
        return self._rng.choice(self.words.requests if ours else requests().seen)

    def _cues(self, names: Sequence[str], forced: str) -> dict[str, tuple[Operator, str]]:
        cues = {}
        for name in names:
            family = families()[name]
            ours = name == forced or self._rng.random() < _OURS
            cue = self._rng.choice(self.words.cues[name] if ours else family.seen)
            cues[name] = (family.operator, cue)
        return cues

    def link(self) -> str:
        """Draw what ties a place to a group."""
        ours = self._rng.random() < _OURS
        return self._rng.choice(self.words.links if ours else links().seen)


class WideBuilder(Builder):
    """A builder that knows signs as cues too: "frogs Peru -Ecuador", "moths | owls"."""

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
def wide_words(*, held_out: bool) -> Words:
    """Return the words for training, or those kept for choosing between models."""
    part, table = "held_out" if held_out else "train", wide_table()
    if set(table["cues"]) != set(families()):
        raise ConfigError("wide.toml: its cue families are not those of the taxa's wordings")
    if {row["template"] for row in table["structure"]} != set(TEMPLATES):
        raise ConfigError("wide.toml: its templates are not QUEST's")
    return Words(
        links=tuple(table["links"][part]),
        requests=tuple(table["requests"][part]),
        cues={name: tuple(row[part]) for name, row in table["cues"].items()},
        skeletons={row["template"]: tuple(map(_skeleton, row[part])) for row in table["structure"]},
    )


def _skeleton(raw: str) -> Skeleton:
    text = raw.removeprefix("!")
    slots = slots_of(text)
    shape = "any"
    if "H" in slots:
        shape = "phrases"
    elif {"G0", "P", "A", "S"} & slots:
        shape = "groups"
    elif {"G", "P0", "A0", "S0", "B0"} & slots:
        shape = "places"
    return Skeleton(text, raw == text, shape, slots, families_of(text))


@lru_cache(maxsize=1)
def wide_table() -> dict[str, Any]:
    """Return the table as it is written."""
    source = files("boolattn.data").joinpath("wide.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))
