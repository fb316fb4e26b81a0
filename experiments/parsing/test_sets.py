"""Two frozen test sets of query parsing: unseen wordings, and names with a cue word inside.

The 484 queries in unseen wordings were written without sight of any wording used for training,
half about taxa, half about other domains. Nothing is trained on, selected by, or changed after
either set.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from boolattn.data.labelled_queries import LabelledQuery, form_tree, label_tree, parse_labelled
from boolattn.errors import DataError
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.tree import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class QueryForm:
    """A query structure: allowed numbers of operands, how many are negated, and the joiner."""

    n_operands: tuple[int, ...]
    n_negated: int = 0
    joiner: Operator = Operator.AND


FORMS: Mapping[str, QueryForm] = {
    "plain": QueryForm((1,)),
    "a_or_b": QueryForm((2,), joiner=Operator.OR),
    "a_or_b_or_c": QueryForm((3,), joiner=Operator.OR),
    "a_and_b": QueryForm((2,)),
    "a_and_b_and_c": QueryForm((3,)),
    "a_not_b": QueryForm((2,), 1),
    "a_and_b_not_c": QueryForm((3,), 1),
    "a_or_b_not_c": QueryForm((3,), 1, Operator.OR),
    "a_not_b_not_c": QueryForm((3,), 2),
    "list_or": QueryForm((4, 5), joiner=Operator.OR),
    "list_and": QueryForm((4, 5)),
}


@dataclass(frozen=True, slots=True)
class UnseenQuery:
    """One query in an unseen wording: its form, its domain ("taxa", "films") and its parse."""

    form: str
    domain: str
    labelled: LabelledQuery


@dataclass(frozen=True, slots=True)
class CueWordName:
    """One name with a cue word inside.

    Attributes:
        kind: "film", "book", "place", "group", "species", "song", "tv" or "law".
        text: The name.
        query: A query that contains the name, in any capitalisation.
    """

    kind: str
    text: str
    query: str

    @property
    def labelled(self) -> LabelledQuery:
        """The query, labelled as one operand."""
        return LabelledQuery(self.query, ParsedQuery((((0, len(self.query.rstrip("?!"))),),)))


@lru_cache(maxsize=1)
def unseen_queries() -> tuple[UnseenQuery, ...]:
    """Return the queries in unseen wordings, in file order."""
    return tuple(parse_unseen(_lines("unseen_wordings.txt"), "unseen_wordings.txt"))


def parse_unseen(lines: Iterable[str], where: str = "the text") -> list[UnseenQuery]:
    r"""Parse lines of form, domain and labelled text, separated by tabs.

    Words in ``<01|...>`` belong to the operands 0 and 1; negated operands come last.

    >>> line = "a_not_b\ttaxa\t<01|moths> <0|of Borneo>, but none <1|of Java>"
    >>> [one] = parse_unseen([line])
    >>> print(one.labelled.parsed.tree(one.labelled.text))
    And(parts=(Atom(text='moths of Borneo'), Not(part=Atom(text='moths of Java'))))
    """
    queries = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 3 or fields[0] not in FORMS:
            raise DataError(f"{where}:{number}: not a known form, a domain and a labelled text")
        text, operands = parse_labelled(fields[2])
        form = FORMS[fields[0]]
        if len(operands) not in form.n_operands or not all(operands) or re.search("[<>]", text):
            raise DataError(f"{where}:{number}: the labels do not fit the form {fields[0]}")
        tree = form_tree(len(operands) - form.n_negated, form.n_negated, form.joiner)
        labelled = label_tree(text, tree, operands)
        if labelled is None:
            raise DataError(f"{where}:{number}: the operands cannot be joined as {fields[0]}")
        queries.append(UnseenQuery(fields[0], fields[1], labelled))
    return queries


@lru_cache(maxsize=1)
def cue_word_names() -> tuple[CueWordName, ...]:
    """Return the names with a cue word inside ("Not of This Earth"), in file order.

    None is in a table that training queries are generated from; one, "Argyll & Bute", is in a
    natural query.
    """
    rows = [line.split("\t") for line in _lines("cue_word_names.txt") if line and line[0] != "#"]
    return tuple(CueWordName(*row[:3]) for row in rows)


def _lines(name: str) -> list[str]:
    return files("experiments.parsing").joinpath(name).read_text(encoding="utf-8").splitlines()
