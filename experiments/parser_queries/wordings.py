"""Wordings of generated queries: parts that are joined into one skeleton.

A wording is a clause with the positive operands, a list style, an exclusion and a request. Each
part comes from a list for training or from a held-out list; wordings.toml explains the markup.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

#: A list of operands in a pattern: "L(M)", "E(N)", "E(N:neither~,~nor)".
_LIST = re.compile(r"\b([LE])\(([A-Z])(?::([^)]*))?\)")
_ALTERNATIVES = re.compile(r"\[\[(.*?)\]\]")
_LIST_SLOT = re.compile(r"\{([a-z]+)\}")
_SLOT = re.compile(r"\{([A-Z])(\d?)\}")
_ROLE = re.compile(r"<([sktx])\|")
_PLACE = re.compile(r"<(\d)\|")
_SEPARATOR = re.compile(r"([,;]?)\s*(.*?)\s*")
#: Negated phrases that are a full noun phrase; the others elide the positive operands' head.
_FULL = frozenset("NKFB")
#: A feature without its article takes the same preposition as one with it.
_KIND = {"B": "F"}


@dataclass(frozen=True, slots=True)
class Form:
    """Numbers of positive and negated operands, and the joiner of the positive ones."""

    n_positive: int
    n_negated: int
    joiner: str = "and"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A clause with the positive operands, or an exclusion."""

    text: str  # in the markup, without the sign for a request
    slots: frozenset[str]  # the letters of the slots it needs
    n_fixed: int  # number of operands, where the pattern names each; 0 where it has a list
    ends_in: str  # the letter of the operand that ends it, if one does
    takes_request: bool  # whether a request such as "show me" may precede it

    @property
    def is_elliptic(self) -> bool:
        """Whether its operand elides the positive head ("but not those from Java")."""
        return self.letter not in _FULL

    @property
    def letter(self) -> str:
        """The slot letter of its list; empty where it names each operand."""
        match = _LIST.search(self.text)
        return match[2] if match else ""

    @property
    def is_open(self) -> bool:
        """Whether the exclusion is inserted inside it."""
        return "@" in self.text

    @property
    def is_closed(self) -> bool:
        """Whether it ends outside an operand, so that only a new sentence can follow."""
        return not self.takes_request and not self.text.endswith((">", ")", "?"))

    @property
    def has_head(self) -> bool:
        """Whether it has a head that an elliptic exclusion can elide."""
        return "<s|" in self.text


@dataclass(frozen=True, slots=True)
class Parts:
    """Alternatives for one part of a wording."""

    train: tuple[Any, ...]
    held_out: tuple[Any, ...]

    @classmethod
    def read(cls, row: Mapping[str, Sequence[Any]]) -> Parts:
        """Read a row of a table."""
        return cls(tuple(row["train"]), tuple(row["held_out"]))

    def of(self, *, held_out: bool) -> tuple[Any, ...]:
        """Return the alternatives for training, or the held-out ones."""
        return self.held_out if held_out else self.train


@cache
def table(name: str) -> dict[str, Any]:
    """Read one of the tables beside this module."""
    source = Path(__file__).with_name(f"{name}.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))


#: The words of the taxa benchmark's held-out wordings, that no training text may hold.
BANNED = re.compile(
    rf"(?<![\w-])(?:{'|'.join(table('frames')['held_out'].split()).replace('_', ' ')})(?![\w-])"
    r"|/|\.\.\.",
    re.IGNORECASE,
)


@cache
def lines(*path: str) -> tuple[str, ...]:
    """Return the wordings of a part of structures.toml, one a line."""
    value: Any = table("structures")
    for key in path:
        value = value[key]
    return tuple(value.strip().split("\n"))


def filled_line(part: str, key: str, rng: random.Random) -> str:
    """Draw a line of structures.toml, its alternatives, and words for its lists."""
    return fill_line(rng.choice(lines(part, key)), rng)


def fill_line(line: str, rng: random.Random, lists: str = "structures") -> str:
    """Choose alternatives, and words for the lists of a table.

    >>> from random import Random
    >>> fill_line("[[a~a]] or b", Random(0))
    'a or b'
    """
    line = _ALTERNATIVES.sub(lambda match: rng.choice(match[1].split("~")), line)
    drawn = {
        name: iter(rng.sample(words := text.split(";"), len(words)))
        for name, text in table(lists)["lists"].items()
        if f"{{{name}}}" in line
    }
    return _LIST_SLOT.sub(lambda match: next(drawn[match[1]]), line)


@lru_cache(maxsize=1)
def requests() -> Parts:
    """Return requests; the star marks the noun phrase."""
    return Parts.read(table("wordings")["requests"])


@lru_cache(maxsize=16)
def styles(joiner: str, n_operands: int) -> Parts:
    """Return list styles: words before the first operand, between, and before the last."""
    row = table("wordings")["lists"][joiner]
    return Parts(*(_fitting_styles(row[key], n_operands) for key in ("train", "held_out")))


@lru_cache(maxsize=64)
def positive_patterns(form: Form, slots: frozenset[str]) -> Parts:
    """Return the clauses that fit a form and the slots of a content."""
    rows = table("wordings")["positive"]
    names = ("any", form.joiner) if form.n_positive > 1 else ("any", "or")

    def fits(pattern: Pattern) -> bool:
        return (
            pattern.slots <= slots
            and pattern.n_fixed in (0, form.n_positive)
            and (form.n_negated > 0 or not pattern.is_open)
        )

    return Parts(
        *(
            tuple(p for name in names for raw in rows[name][key] if fits(p := parse_pattern(raw)))
            for key in ("train", "held_out")
        )
    )


@lru_cache(maxsize=1024)
def exclusions(clause: Pattern, n_negated: int, slots: frozenset[str]) -> Parts:
    """Return the exclusions that fit a clause."""
    rows = table("wordings")["negated"]
    names = ("any", clause.ends_in) if clause.ends_in in rows else ("any",)
    if clause.is_open:
        # Exclusions before the head have other words than those after it.
        names = ("before",) if clause.text.startswith("@") else ("inside",)

    def fits(pattern: Pattern) -> bool:
        has_own_style = any(style for _, _, style in _LIST.findall(pattern.text))
        before = pattern.text.partition("*")[0].rstrip()
        return bool(
            pattern.slots <= slots
            and (n_negated > 1 or not has_own_style)
            and (clause.has_head or not pattern.is_elliptic)
            # "I want which films are ..." is not grammatical.
            and (clause.is_open or clause.takes_request or not before or before[-1] in ",.")
            # After "A or B, either works" only a new sentence can follow.
            and (
                clause.is_open
                or not clause.is_closed
                or before
                or pattern.text.startswith(("*.", "*;", "* ("))
            )
        )

    return Parts(
        *(
            tuple(p for name in names for raw in rows[name][key] if fits(p := parse_pattern(raw)))
            for key in ("train", "held_out")
        )
    )


@cache
def parse_pattern(raw: str) -> Pattern:
    """Parse one pattern of the table."""
    text = raw.removeprefix("!")
    lists = [letter for _, letter, _ in _LIST.findall(text)]
    places = [int(number) for number in _PLACE.findall(text)]
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
    """The parts of one query, before its slots are filled."""

    form: Form
    clause: Pattern
    style: str = ""
    exclusion: Pattern | None = None
    negated_style: str = ""
    request: str = "*"

    def skeleton(self) -> str:
        """Join the parts, in the markup of the taxa wordings."""
        form = self.form
        positive_at = range(form.n_positive)
        negated_at = range(form.n_positive, form.n_positive + form.n_negated)
        clause = _LIST.sub(
            lambda m: joined(m[2], positive_at, self.style, form.joiner), self.clause.text
        )
        if self.clause.takes_request:
            clause = self.request.replace("*", clause)
        text, shared = clause, set[str]()
        if self.exclusion:
            shared = {"s"} if self.exclusion.is_elliptic else set()
            if _KIND.get(self.exclusion.letter, self.exclusion.letter) == self.clause.ends_in:
                shared.add("t")
            around = _LIST.sub(
                lambda m: joined(m[2], negated_at, m[3] or self.negated_style, "not"),
                self.exclusion.text,
            )
            text = around_clause(around, clause)
        owners = {
            "k": "".join(map(str, positive_at)),
            "x": "".join(map(str, negated_at)),
        }
        for role in "st":
            owners[role] = owners["k"] + (owners["x"] if role in shared else "")
        return _ROLE.sub(lambda m: f"<{owners[m[1]]}|", text)


def joined(letter: str, numbers: Sequence[int], style: str, operator: str) -> str:
    """Write a list of operands.

    >>> joined("M", range(3), "either~,~or", "or")
    '[or:either] <0|{M0}>, <1|{M1}> [or:or] <2|{M2}>'
    """
    items = [f"<{number}|{{{letter}{number}}}>" for number in numbers]
    if len(items) == 1:
        return items[0]
    first, between, last = style.split("~")
    text = f"[{operator}:{first}] " if first else ""
    text += items[0]
    for item in items[1:-1]:
        text += _separator(between, operator) + item
    return text + _separator(last, operator) + items[-1]


def around_clause(exclusion: str, clause: str) -> str:
    """Join a clause and an exclusion; a question mark moves to the end of the sentence.

    >>> around_clause("*, no cats", "any pets?"), around_clause("*. No cats.", "any pets?")
    ('any pets, no cats?', 'any pets? No cats.')
    """
    if "@" in clause:
        return clause.replace("@", exclusion)
    before, _, after = exclusion.partition("*")
    if not clause.endswith("?"):
        return before + clause + after
    clause = clause[:-1]
    if after.startswith("."):
        return f"{before}{clause}?{after[1:]}"
    end = "" if after.endswith(".") else "?"
    return before + clause + after + end


def _separator(raw: str, operator: str) -> str:
    match = _SEPARATOR.fullmatch(raw)
    sign, words = (match[1], match[2]) if match else ("", raw)
    return f"{sign} [{operator}:{words}] " if words else f"{sign} "


def _fitting_styles(rows: Sequence[str], n_operands: int) -> tuple[str, ...]:
    styles = []
    for row in rows:
        head, _, rest = row.partition(" ")
        if head not in ("2", "3"):
            styles.append(row)
        elif (n_operands == 2) == (head == "2"):
            styles.append(rest)
    return tuple(styles)
