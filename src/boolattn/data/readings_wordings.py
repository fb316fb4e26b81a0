"""The wordings of generated readings: lists of parts, put together into one skeleton.

A wording is a kept clause, a style of list, an exclusion around it and a request. Each comes from
a list for training or from one that is held out; readings.toml explains the markup.
May import: boolattn.data.taxa.phrases.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: A list of operands in a pattern: "L(M)", "E(N)", "E(N:neither~,~nor)".
_LIST = re.compile(r"\b([LE])\(([A-Z])(?::([^)]*))?\)")
_SLOT = re.compile(r"\{([A-Z])(\d?)\}")
_ROLE = re.compile(r"<([sktx])\|")
_PLACE = re.compile(r"<(\d)\|")
_SEPARATOR = re.compile(r"([,;]?)\s*(.*?)\s*")
#: Excluded phrases that stand for a whole noun phrase; others lean on the head that is kept.
_WHOLE = frozenset("NK")
#: A feature without its article is tied to its head as one with it.
_KIND = {"B": "F"}


@dataclass(frozen=True, slots=True)
class Form:
    """How many operands are kept and excluded, and what joins the kept ones."""

    n_kept: int
    n_excluded: int
    joiner: str = "and"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kept clause or an exclusion.

    Attributes:
        text: In the markup, without the sign for a request.
        slots: The letters of the slots it needs.
        n_fixed: How many operands it has, where it names them one by one; else 0.
        ends_in: The letter of the operand that ends it, if one does.
        takes_request: Whether words such as "show me" may stand before it.
    """

    text: str
    slots: frozenset[str]
    n_fixed: int
    ends_in: str
    takes_request: bool

    @property
    def is_elliptic(self) -> bool:
        """Whether what it excludes leans on the kept head ("but not those from Java")."""
        return self.letter not in _WHOLE

    @property
    def letter(self) -> str:
        """Of its list; nothing where it names its operands one by one."""
        found = _LIST.search(self.text)
        return found[2] if found else ""

    @property
    def is_open(self) -> bool:
        """Whether the exclusion stands inside it."""
        return "@" in self.text

    @property
    def is_closed(self) -> bool:
        """Whether it ends in words of no operand, so that only a new sentence can follow."""
        return not self.takes_request and not self.text.endswith((">", ")", "?"))

    @property
    def has_head(self) -> bool:
        """Whether it has words that an elliptic exclusion can lean on."""
        return "<s|" in self.text


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one kind."""

    train: tuple[Any, ...]
    held_out: tuple[Any, ...]

    def of(self, *, held_out: bool) -> tuple[Any, ...]:
        """Return the parts for training or those held out."""
        return self.held_out if held_out else self.train


@cache
def table(name: str) -> dict[str, Any]:
    """Read one of the tables of readings."""
    source = files("boolattn.data").joinpath(f"{name}.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def requests() -> Parts:
    """Return words around a noun phrase, which stands at the star."""
    return _parts(table("readings")["requests"])


@lru_cache(maxsize=16)
def styles(joiner: str, n_operands: int) -> Parts:
    """Return the ways to write a list: before the first, between, before the last."""
    row = table("readings")["lists"][joiner]
    return Parts(*(_fitting_styles(row[key], n_operands) for key in ("train", "held_out")))


@lru_cache(maxsize=64)
def kept_patterns(form: Form, slots: frozenset[str]) -> Parts:
    """Return the kept clauses that a form and a content can take."""
    rows = table("readings")["kept"]
    names = ("any", form.joiner) if form.n_kept > 1 else ("any", "or")

    def fits(pattern: Pattern) -> bool:
        return (
            pattern.slots <= slots
            and pattern.n_fixed in (0, form.n_kept)
            and (form.n_excluded > 0 or not pattern.is_open)
        )

    return Parts(
        *(
            tuple(p for name in names for raw in rows[name][key] if fits(p := read_pattern(raw)))
            for key in ("train", "held_out")
        )
    )


@lru_cache(maxsize=1024)
def exclusions(kept: Pattern, n_excluded: int, slots: frozenset[str]) -> Parts:
    """Return the exclusions that can stand around a kept clause."""
    rows = table("readings")["excluded"]
    names = ("any", kept.ends_in) if kept.ends_in in rows else ("any",)
    if kept.is_open:
        # Before the head stand other words than after it.
        names = ("before",) if kept.text.startswith("@") else ("inside",)

    def fits(pattern: Pattern) -> bool:
        has_own_style = any(style for _, _, style in _LIST.findall(pattern.text))
        before = pattern.text.partition("*")[0].rstrip()
        return bool(
            pattern.slots <= slots
            and (n_excluded > 1 or not has_own_style)
            and (kept.has_head or not pattern.is_elliptic)
            # "I want which films are ..." is nothing anybody says.
            and (kept.is_open or kept.takes_request or not before or before[-1] in ",.")
            # "A or B, either works" is at an end.
            and (
                kept.is_open
                or not kept.is_closed
                or before
                or pattern.text.startswith(("*.", "*;", "* ("))
            )
        )

    return Parts(
        *(
            tuple(p for name in names for raw in rows[name][key] if fits(p := read_pattern(raw)))
            for key in ("train", "held_out")
        )
    )


@cache
def read_pattern(raw: str) -> Pattern:
    """Read one pattern of the table."""
    text = raw.removeprefix("!")
    lists = [letter for _, letter, _ in _LIST.findall(text)]
    places = [int(place) for place in _PLACE.findall(text)]
    end = re.search(r"(?:L\((\w)\)|\{(\w)\d?\}>)\??$", text)
    return Pattern(
        text=text,
        slots=frozenset([*lists, *(letter for letter, _ in _SLOT.findall(text))]),
        n_fixed=max(places) + 1 if places else 0,
        ends_in=(end[1] or end[2]) if end else "",
        takes_request=raw == text,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The parts of one query, before its words are put in."""

    form: Form
    kept: Pattern
    style: str = ""
    excluded: Pattern | None = None
    excluded_style: str = ""
    request: str = "*"

    def skeleton(self) -> str:
        """Put the parts together, in the markup of the taxa's wordings."""
        form = self.form
        kept_places = range(form.n_kept)
        excluded_places = range(form.n_kept, form.n_kept + form.n_excluded)
        kept = _LIST.sub(
            lambda m: joined(m[2], kept_places, self.style, form.joiner), self.kept.text
        )
        if self.kept.takes_request:
            kept = self.request.replace("*", kept)
        whole, shared = kept, set[str]()
        if self.excluded:
            shared = {"s"} if self.excluded.is_elliptic else set()
            if _KIND.get(self.excluded.letter, self.excluded.letter) == self.kept.ends_in:
                shared.add("t")
            around = _LIST.sub(
                lambda m: joined(m[2], excluded_places, m[3] or self.excluded_style, "not"),
                self.excluded.text,
            )
            whole = around_clause(around, kept)
        owners = {
            "k": "".join(map(str, kept_places)),
            "x": "".join(map(str, excluded_places)),
        }
        for role in "st":
            owners[role] = owners["k"] + (owners["x"] if role in shared else "")
        return _ROLE.sub(lambda m: f"<{owners[m[1]]}|", whole)


def joined(letter: str, places: Sequence[int], style: str, operator: str) -> str:
    """Write a list of operands.

    >>> joined("M", range(3), "either~,~or", "or")
    '[or:either] <0|{M0}>, <1|{M1}> [or:or] <2|{M2}>'
    """
    items = [f"<{place}|{{{letter}{place}}}>" for place in places]
    if len(items) == 1:
        return items[0]
    first, between, last = style.split("~")
    text = f"[{operator}:{first}] " if first else ""
    text += items[0]
    for item in items[1:-1]:
        text += _separator(between, operator) + item
    return text + _separator(last, operator) + items[-1]


def around_clause(exclusion: str, kept: str) -> str:
    """Put a kept clause and an exclusion together; a question mark goes where the sentence ends.

    >>> around_clause("*, no cats", "any pets?"), around_clause("*. No cats.", "any pets?")
    ('any pets, no cats?', 'any pets? No cats.')
    """
    if "@" in kept:
        return kept.replace("@", exclusion)
    before, _, after = exclusion.partition("*")
    if not kept.endswith("?"):
        return before + kept + after
    kept = kept[:-1]
    if after.startswith("."):
        return f"{before}{kept}?{after[1:]}"
    end = "" if after.endswith(".") else "?"
    return before + kept + after + end


def _separator(raw: str, operator: str) -> str:
    found = _SEPARATOR.fullmatch(raw)
    sign, words = (found[1], found[2]) if found else ("", raw)
    return f"{sign} [{operator}:{words}] " if words else f"{sign} "


def _fitting_styles(rows: Sequence[str], n_operands: int) -> tuple[str, ...]:
    found = []
    for row in rows:
        head, _, rest = row.partition(" ")
        if head not in ("2", "3"):
            found.append(row)
        elif (n_operands == 2) == (head == "2"):
            found.append(rest)
    return tuple(found)


def _parts(row: Mapping[str, Sequence[str]]) -> Parts:
    return Parts(tuple(row["train"]), tuple(row["held_out"]))
