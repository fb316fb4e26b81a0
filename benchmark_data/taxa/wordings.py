"""The frozen wordings: every skeleton with every cue that fits it, seen or unseen.

They define which cue words training may see; the Boolean sentences use them too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from benchmark_data.taxa.phrases import families_of, slots_of
from boolattn.errors import ConfigError
from boolattn.files import package_table
from boolattn.query.syntax import TEMPLATES
from boolattn.query.tree import Operator

_TABLE = ("benchmark_data.taxa", "wordings.toml")


@dataclass(frozen=True, slots=True)
class Wording:
    """One wording of a template."""

    template: str
    skeleton: str  # in the markup
    cues: tuple[tuple[str, str], ...]  # the cue of each of the skeleton's families
    shape: str  # operands it fits; see :func:`skeleton_shape`
    takes_request: bool  # whether a request such as "show me" may precede it
    is_unseen: bool  # whether its skeleton or a cue is held out of training
    name: str  # unique; contains the template, the skeleton and the cues


@dataclass(frozen=True, slots=True)
class Parts:
    """Alternatives for one part of a wording, for training and held out."""

    seen: tuple[str, ...]
    unseen: tuple[str, ...]

    def allowed(self, *, unseen: bool) -> tuple[str, ...]:
        """Return the alternatives for training, or all."""
        return self.seen + self.unseen if unseen else self.seen


@dataclass(frozen=True, slots=True)
class Family(Parts):
    """Cues that fit the same slot."""

    operator: Operator


def version() -> str:
    """Return the version of the wordings."""
    return str(package_table(*_TABLE)["version"])


@lru_cache(maxsize=1)
def links() -> Parts:
    """Return the links of group and place, as "lead|preposition"."""
    return _choices("links")


@lru_cache(maxsize=1)
def requests() -> Parts:
    """Return requests; the star marks the noun phrase."""
    return _choices("requests")


def _choices(name: str) -> Parts:
    row = package_table(*_TABLE)[name]
    return Parts(tuple(row["seen"]), tuple(row["unseen"]))


@lru_cache(maxsize=1)
def families() -> Mapping[str, Family]:
    """Return the cue families by name."""
    return {
        name: Family(tuple(row["seen"]), tuple(row["unseen"]), Operator(row["operator"]))
        for name, row in package_table(*_TABLE)["cues"].items()
    }


@lru_cache(maxsize=1)
def wordings() -> Mapping[str, tuple[Wording, ...]]:
    """Return every wording, by template, in the order of the table."""
    table: dict[str, tuple[Wording, ...]] = {}
    for row in package_table(*_TABLE)["structure"]:
        template = row["template"]
        if template not in TEMPLATES:
            raise ConfigError(f"wordings.toml: unknown template {template!r}")
        table[template] = tuple(
            wording
            for is_unseen, skeletons in ((False, row["seen"]), (True, row["unseen"]))
            for index, skeleton in enumerate(skeletons)
            for wording in _expand(template, skeleton, index, is_unseen=is_unseen)
        )
    return table


def _expand(template: str, raw: str, index: int, *, is_unseen: bool) -> list[Wording]:
    """Combine a skeleton with cues."""
    skeleton, short = raw.removeprefix("!"), package_table(*_TABLE)["short"][template]
    names = families_of(skeleton)
    choices: dict[str, Parts] = {name: families()[name] for name in names}
    if template == "_" and "in" in slots_of(skeleton):
        # A plain query has no cue: its wordings differ by their links.
        names, choices = ("in",), {"in": links()}
    rows = []
    for turn, cues in enumerate(product(*(choices[name].allowed(unseen=True) for name in names))):
        # At most one part is new, and a new cue gets every second skeleton: with all of them,
        # half of the wordings would be unseen instead of a third.
        new = [cue in choices[name].unseen for name, cue in zip(names, cues, strict=True)]
        if sum(new) + is_unseen > 1 or (any(new) and (turn + index) % 2 and template != "_"):
            continue
        rows.append(
            Wording(
                template=template,
                skeleton=skeleton,
                cues=tuple(zip(names, cues, strict=True)),
                shape=skeleton_shape(skeleton),
                takes_request=raw == skeleton,
                is_unseen=is_unseen or any(new),
                name="/".join([short, f"{'u' if is_unseen else 's'}{index:02}", *cues]),
            )
        )
    return rows


def skeleton_shape(skeleton: str) -> str:
    """Return the operands a skeleton fits: any, one group in "places", "groups" in one place."""
    slots = slots_of(skeleton)
    if {"G0", "P", "A", "S"} & slots:
        return "groups"
    return "places" if {"G", "P0", "A0", "S0", "B0"} & slots else "any"


@lru_cache(maxsize=1)
def digest() -> str:
    """Return a hash of all wordings and their parts."""
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
