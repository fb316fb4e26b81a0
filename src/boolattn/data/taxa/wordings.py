"""The frozen wordings: every skeleton with every cue that fits it, seen or held out.

The one source of truth for which cue words training may see; the Boolean sentences use it too.
May import: boolattn.data.taxa.phrases, boolattn.logic.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any

from boolattn.data.taxa.phrases import families_of, slots_of
from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.logic.templates import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Which operands a skeleton can take: any; one group in several places; several groups in one.
SHAPES = ("any", "places", "groups")

# Short names of the templates, for the names of wordings.
_SHORT = {
    "_": "one",
    "_ or _": "or",
    "_ or _ or _": "or3",
    "_ that are also _": "and",
    "_ that are also both _ and _": "and3",
    "_ that are not _": "not",
    "_ that are also _ but not _": "andnot",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to ask for one structure.

    Attributes:
        template: The structure.
        skeleton: In the markup, without the sign for a request.
        cues: The cue of each family the skeleton asks for.
        shape: What operands it takes.
        takes_request: Whether words such as "show me" may stand before it.
        is_unseen: Held out of training, by its skeleton or by a cue.
        name: Unique; says the structure, the skeleton and the cues.
    """

    template: str
    skeleton: str
    cues: tuple[tuple[str, str], ...]
    shape: str
    takes_request: bool
    is_unseen: bool
    name: str


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one kind, in the two lists that training may and may not see."""

    seen: tuple[str, ...]
    unseen: tuple[str, ...]

    def allowed(self, *, unseen: bool) -> tuple[str, ...]:
        """Return the parts for training, or all of them."""
        return self.seen + self.unseen if unseen else self.seen


@dataclass(frozen=True, slots=True)
class Family(Parts):
    """Cues that fit the same slot."""

    operator: Operator


@lru_cache(maxsize=1)
def version() -> str:
    """Return the version under which the wordings are frozen."""
    return str(_table()["version"])


@lru_cache(maxsize=1)
def links() -> Parts:
    """What ties a place to a group, as "lead|preposition"."""
    return Parts(**{key: tuple(value) for key, value in _table()["links"].items()})


@lru_cache(maxsize=1)
def requests() -> Parts:
    """Words around a noun phrase, which stands at the star."""
    return Parts(**{key: tuple(value) for key, value in _table()["requests"].items()})


@lru_cache(maxsize=1)
def families() -> Mapping[str, Family]:
    """Return the cue families by name."""
    return {
        name: Family(
            operator=Operator(row["operator"]),
            seen=tuple(row["seen"]),
            unseen=tuple(row["unseen"]),
        )
        for name, row in _table()["cues"].items()
    }


@lru_cache(maxsize=1)
def wordings() -> Mapping[str, tuple[Wording, ...]]:
    """Return every wording, by template, in the order of the table."""
    found: dict[str, tuple[Wording, ...]] = {}
    for row in _table()["structure"]:
        template = row["template"]
        if template not in TEMPLATES:
            raise ConfigError(f"wordings.toml: unknown template {template!r}")
        found[template] = tuple(
            wording
            for is_unseen, skeletons in ((False, row["seen"]), (True, row["unseen"]))
            for index, skeleton in enumerate(skeletons)
            for wording in _expand(template, skeleton, index, is_unseen=is_unseen)
        )
    return found


def _expand(template: str, raw: str, index: int, *, is_unseen: bool) -> list[Wording]:
    skeleton = raw.removeprefix("!")
    names = families_of(skeleton)
    parts: dict[str, Parts] = {name: families()[name] for name in names}
    if template == "_" and "in" in slots_of(skeleton):
        # A plain query has no cue: its wordings differ by what ties the place to the group.
        names, parts = ("in",), {"in": links()}
    found = []
    for turn, cues in enumerate(product(*(parts[name].allowed(unseen=True) for name in names))):
        # One new part is enough to hold a wording out, and a new cue meets every second skeleton:
        # with all of them, half of the wordings would be unseen instead of a third.
        new = [cue in parts[name].unseen for name, cue in zip(names, cues, strict=True)]
        if sum(new) + is_unseen > 1 or (any(new) and (turn + index) % 2 and template != "_"):
            continue
        found.append(
            Wording(
                template=template,
                skeleton=skeleton,
                cues=tuple(zip(names, cues, strict=True)),
                shape=_shape(skeleton),
                takes_request=raw == skeleton,
                is_unseen=is_unseen or any(new),
                name="/".join([_SHORT[template], f"{'u' if is_unseen else 's'}{index:02}", *cues]),
            )
        )
    return found


def _shape(skeleton: str) -> str:
    slots = slots_of(skeleton)
    if {"G0", "P", "A", "S"} & slots:
        return "groups"
    if {"G", "P0", "A0", "S0", "B0"} & slots:
        return "places"
    return "any"


@lru_cache(maxsize=1)
def digest() -> str:
    """Return a hash of everything a query's words can be made of."""
    content = {
        "version": version(),
        "links": [links().seen, links().unseen],
        "requests": [requests().seen, requests().unseen],
        "cues": {name: [*row.seen, "|", *row.unseen] for name, row in families().items()},
        "wordings": [
            [wording.name, wording.skeleton, wording.takes_request, wording.is_unseen]
            for row in wordings().values()
            for wording in row
        ],
    }
    return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    source = files("boolattn.data.taxa").joinpath("wordings.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))
