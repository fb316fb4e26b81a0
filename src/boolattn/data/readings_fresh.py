"""Queries written by somebody who had read none of our wordings: a frozen test set of reading.

Every other text that readings are measured on was made from tables we wrote, and a model may have
learned our habits rather than the language. Half of these ask for taxa, half for anything else.
Nothing is trained on them, chosen by them, or mended after them.
May import: boolattn.logic.parsed_query, boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from boolattn.errors import DataError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery, in_text_order, parse_labelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Form:
    """A structure: how many operands it may have, how many of them are excluded, and the joiner."""

    n_operands: tuple[int, ...]
    n_excluded: int = 0
    joiner: Operator = Operator.AND


FORMS: Mapping[str, Form] = {
    "plain": Form((1,)),
    "a_or_b": Form((2,), joiner=Operator.OR),
    "a_or_b_or_c": Form((3,), joiner=Operator.OR),
    "a_and_b": Form((2,)),
    "a_and_b_and_c": Form((3,)),
    "a_not_b": Form((2,), 1),
    "a_and_b_not_c": Form((3,), 1),
    "a_or_b_not_c": Form((3,), 1, Operator.OR),
    "a_not_b_not_c": Form((3,), 2),
    "list_or": Form((4, 5), joiner=Operator.OR),
    "list_and": Form((4, 5)),
}


@dataclass(frozen=True, slots=True)
class Fresh:
    """One query of the test set.

    Attributes:
        form: One of :data:`FORMS`.
        domain: What it asks for ("taxa", "films", "law").
        marked: The text and how it is to be read.
    """

    form: str
    domain: str
    marked: LabelledQuery


@lru_cache(maxsize=1)
def fresh_queries() -> tuple[Fresh, ...]:
    """Return the queries, in the order of the file."""
    source = files("boolattn.data").joinpath("fresh.txt").read_text(encoding="utf-8")
    return tuple(read_fresh(source.splitlines(), "fresh.txt"))


def read_fresh(lines: Iterable[str], where: str = "the text") -> list[Fresh]:
    r"""Read lines of form, domain and marked text, between tabs.

    Words in ``<01|...>`` belong to the operands 0 and 1; excluded operands come last.

    >>> line = "a_not_b\ttaxa\t<01|moths> <0|of Borneo>, but none <1|of Java>"
    >>> [one] = read_fresh([line])
    >>> print(one.marked.parsed.tree(one.marked.text))
    And(parts=(Atom(text='moths of Borneo'), Not(part=Atom(text='moths of Java'))))
    """
    found = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        parts = line.split("\t")
        if len(parts) != 3 or parts[0] not in FORMS:
            raise DataError(f"{where}:{number}: not a known form, a domain and a marked text")
        text, operands = parse_labelled(parts[2])
        form = FORMS[parts[0]]
        if len(operands) not in form.n_operands or not all(operands) or re.search("[<>]", text):
            raise DataError(f"{where}:{number}: the marks do not fit the form {parts[0]}")
        n_kept = len(operands) - form.n_excluded
        kept, excluded = (
            in_text_order(own, operands) for own in (operands[:n_kept], operands[n_kept:])
        )
        marked = LabelledQuery(text, ParsedQuery(kept, excluded, form.joiner))
        found.append(Fresh(parts[0], parts[1], marked))
    return found
