"""What a Boolean sentence speaks of: taxa in places, or films, books, food ... (sentences.toml).

May import: boolattn.data.taxa, boolattn.data.wide.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from boolattn.data.taxa.phrases import families_of, slots_of
from boolattn.data.taxa.places import places
from boolattn.data.taxa.queries import has_words, shape_of
from boolattn.data.taxa.sets import Group, Operand, common_names
from boolattn.data.taxa.wordings import links, wordings

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from boolattn.data.taxa.queries import Speaker
    from boolattn.data.wide import Skeleton, WideSpeaker

_PLANTS = ("aceae", "ales", "opsida")


class Content(Protocol):
    """What a sentence speaks of."""

    def slots(
        self, speaker: Speaker, rng: random.Random, wide: WideSpeaker | None = None
    ) -> dict[str, str]:
        """Put it into words, slot by slot; with a wide speaker in more ways."""

    def skeletons(self, template: str, *, unseen: bool) -> Sequence[tuple[str, bool]]:
        """Return the frozen skeletons that fit it, and whether each takes a request."""

    def fits(self, skeleton: Skeleton) -> bool:
        """Say whether a skeleton of wide.toml can be said of it."""


@dataclass(frozen=True, slots=True)
class Taxa:
    """Groups and places, said in the taxa's own skeletons."""

    operands: tuple[Operand, ...]

    def slots(
        self, speaker: Speaker, rng: random.Random, wide: WideSpeaker | None = None
    ) -> dict[str, str]:
        """Draw the names of the groups, and what ties them to their places."""
        heads = {operand.group: speaker.head(operand.group) for operand in self.operands}
        if wide is None:
            return speaker.slots(self.operands, heads, rng.choice(links().seen))
        slots = speaker.slots(self.operands, heads, wide.link())
        slots["H"] = slots["G"]
        for index, operand in enumerate(self.operands):
            where = places()[operand.place].noun
            tie = " ".join(wide.link().split("|")).strip()
            if rng.random() < 0.4:
                slots[f"N{index}"] = f"{slots[f'G{index}']} {tie} {where}"
            # What is said after "that are" too.
            short = "from" if tie.startswith(("that ", "which ", "and ")) else tie
            slots[f"M{index}"] = f"{short} {where}"
        return slots

    def skeletons(self, template: str, *, unseen: bool) -> Sequence[tuple[str, bool]]:
        """Return those of the shape, where every place has the adjective asked for."""
        kind = shape_of(self.operands)
        return [
            (skeleton, takes_request)
            for skeleton, takes_request, slots in _taxa_skeletons(template, kind, unseen=unseen)
            if has_words(slots, self.operands)
        ]

    def fits(self, skeleton: Skeleton) -> bool:
        """Say whether the shape is right and every adjective is there."""
        if skeleton.shape not in ("any", "phrases", shape_of(self.operands)):
            return False
        # A head with phrases is one group in several places.
        if skeleton.shape == "phrases" and shape_of(self.operands) != "places":
            return False
        return has_words(skeleton.slots, self.operands)


@dataclass(frozen=True, slots=True)
class Category:
    """A head with phrases: "films", "set in Paris", "from the 1970s"."""

    head: str
    phrases: tuple[str, ...]

    def slots(
        self, speaker: Speaker, rng: random.Random, wide: WideSpeaker | None = None
    ) -> dict[str, str]:
        """Return the head, its phrases, and each operand in full."""
        del speaker, rng, wide
        slots = {"H": self.head}
        for index, phrase in enumerate(self.phrases):
            slots[f"M{index}"] = phrase
            slots[f"N{index}"] = f"{self.head} {phrase}"
        return slots

    def skeletons(self, template: str, *, unseen: bool) -> Sequence[tuple[str, bool]]:
        """Return those that speak of any operands, and ours for a head with phrases."""
        return _category_skeletons(template, unseen=unseen)

    def fits(self, skeleton: Skeleton) -> bool:
        """Say whether it speaks neither of places nor of species."""
        return skeleton.shape in ("any", "phrases") and "species" not in skeleton.text


@lru_cache(maxsize=64)
def _taxa_skeletons(
    template: str, kind: str, *, unseen: bool
) -> tuple[tuple[str, bool, frozenset[str]], ...]:
    """Return the skeletons that operands of a shape can take, with their slots."""
    found = {
        (wording.skeleton, wording.takes_request)
        for wording in wordings()[template]
        if wording.is_unseen == unseen and wording.shape in ("any", kind)
    }
    return tuple((skeleton, takes, slots_of(skeleton)) for skeleton, takes in sorted(found))


@lru_cache(maxsize=16)
def _category_skeletons(template: str, *, unseen: bool) -> tuple[tuple[str, bool], ...]:
    found = {
        (wording.skeleton, wording.takes_request)
        for wording in wordings()[template]
        if wording.is_unseen == unseen
        and wording.shape == "any"
        # "species that are ..." is said of taxa alone.
        and "species" not in wording.skeleton
    }
    ours = [raw for raw in _skeletons()[template] if not unseen or families_of(raw)]
    return (*sorted(found), *((raw.removeprefix("!"), raw[0] != "!") for raw in ours))


@lru_cache(maxsize=1)
def groups() -> tuple[Group, ...]:
    """Return the groups that have a common name of ours; no document is needed for them."""
    return tuple(
        Group(rank, name, common, "plants" if name.endswith(_PLANTS) else "animals", "")
        for rank, row in sorted(common_names().items())
        for name, common in sorted(row.items())
    )


@lru_cache(maxsize=1)
def domains() -> tuple[Mapping[str, list[str]], ...]:
    """Return the domains outside the taxa: heads, phrases and names that hold cue words."""
    table = _table()["domain"]
    return tuple(table[name] for name in sorted(table))


@lru_cache(maxsize=1)
def _skeletons() -> Mapping[str, list[str]]:
    return {row["template"]: row["skeletons"] for row in _table()["structure"]}


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    source = files("boolattn.data").joinpath("sentences.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))
