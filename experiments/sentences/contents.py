"""Contents of Boolean sentences: taxa in places, or films, books, food ... (contents.toml)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from benchmark_data.taxa.phrases import families_of, slots_of
from benchmark_data.taxa.places import places
from benchmark_data.taxa.queries import Speaker, has_words, shape_of
from benchmark_data.taxa.sets import Group, Operand, common_names
from benchmark_data.taxa.wordings import links, wordings
from boolattn.files import package_table

if TYPE_CHECKING:
    import random

    from experiments.sentences.varied import Skeleton, VariedWordings

_TABLE = ("experiments.sentences", "contents.toml")
_PLANTS = ("aceae", "ales", "opsida")


@dataclass(frozen=True, slots=True)
class Taxa:
    """Groups and places, in the skeletons of the taxa benchmark."""

    operands: tuple[Operand, ...]

    def slots(
        self, speaker: Speaker, rng: random.Random, varied: VariedWordings | None = None
    ) -> dict[str, str]:
        """Draw the names of the groups, and the links to their places."""
        heads = {operand.group: speaker.head(operand.group) for operand in self.operands}
        if varied is None:
            return speaker.slots(self.operands, heads, rng.choice(links().seen))
        slots = speaker.slots(self.operands, heads, varied.link())
        slots["H"] = slots["G"]
        for index, operand in enumerate(self.operands):
            where = places()[operand.place].noun
            link = " ".join(varied.link().split("|")).strip()
            if rng.random() < 0.4:
                slots[f"N{index}"] = f"{slots[f'G{index}']} {link} {where}"
            # M follows "that are" too.
            short = "from" if link.startswith(("that ", "which ", "and ")) else link
            slots[f"M{index}"] = f"{short} {where}"
        return slots

    def skeletons(self, template: str, *, unseen: bool) -> Sequence[tuple[str, bool]]:
        """Return those of the same shape, where every place has the adjective needed."""
        kind = shape_of(self.operands)
        return [
            (skeleton, takes_request)
            for skeleton, takes_request, slots in _taxa_skeletons(template, kind, unseen=unseen)
            if has_words(slots, self.operands)
        ]

    def fits(self, skeleton: Skeleton) -> bool:
        """Say whether the shape is right and no adjective is missing."""
        # A head with phrases is one group in several places.
        shape = "places" if skeleton.shape == "phrases" else skeleton.shape
        is_right = shape == "any" or shape == shape_of(self.operands)
        return is_right and has_words(skeleton.slots, self.operands)


@dataclass(frozen=True, slots=True)
class Category:
    """A head with phrases: "films", "set in Paris", "from the 1970s"."""

    head: str
    phrases: tuple[str, ...]

    def slots(
        self, speaker: Speaker, rng: random.Random, varied: VariedWordings | None = None
    ) -> dict[str, str]:
        """Return the head, its phrases, and each operand in full."""
        del speaker, rng, varied
        slots = {"H": self.head}
        for index, phrase in enumerate(self.phrases):
            slots[f"M{index}"] = phrase
            slots[f"N{index}"] = f"{self.head} {phrase}"
        return slots

    def skeletons(self, template: str, *, unseen: bool) -> Sequence[tuple[str, bool]]:
        """Return those for any operands, and those of contents.toml."""
        return _category_skeletons(template, unseen=unseen)

    def fits(self, skeleton: Skeleton) -> bool:
        """Say whether it mentions neither places nor species."""
        return skeleton.shape in ("any", "phrases") and "species" not in skeleton.text


#: The operands of a sentence.
SentenceContent: TypeAlias = Taxa | Category


@lru_cache(maxsize=64)
def _taxa_skeletons(
    template: str, kind: str, *, unseen: bool
) -> tuple[tuple[str, bool, frozenset[str]], ...]:
    """Return the skeletons that operands of a shape can take, with their slots."""
    pairs = {
        (wording.skeleton, wording.takes_request)
        for wording in wordings()[template]
        if wording.is_unseen == unseen and wording.shape in ("any", kind)
    }
    return tuple((skeleton, takes, slots_of(skeleton)) for skeleton, takes in sorted(pairs))


@lru_cache(maxsize=16)
def _category_skeletons(template: str, *, unseen: bool) -> tuple[tuple[str, bool], ...]:
    pairs = {
        (wording.skeleton, wording.takes_request)
        for wording in wordings()[template]
        if wording.is_unseen == unseen
        and wording.shape == "any"
        # "species that are ..." fits only taxa.
        and "species" not in wording.skeleton
    }
    by_template = {row["template"]: row["skeletons"] for row in package_table(*_TABLE)["structure"]}
    ours = [raw for raw in by_template[template] if not unseen or families_of(raw)]
    return (*sorted(pairs), *((raw.removeprefix("!"), raw[0] != "!") for raw in ours))


@lru_cache(maxsize=1)
def groups() -> tuple[Group, ...]:
    """Return the groups with a common name in the table of groups."""
    return tuple(
        Group(rank, name, common, "plants" if name.endswith(_PLANTS) else "animals", "")
        for rank, row in sorted(common_names().items())
        for name, common in sorted(row.items())
    )


@lru_cache(maxsize=1)
def domains() -> tuple[Mapping[str, list[str]], ...]:
    """Return the domains other than taxa: heads, phrases, and names with cue words."""
    table = package_table(*_TABLE)["domain"]
    return tuple(table[name] for name in sorted(table))
