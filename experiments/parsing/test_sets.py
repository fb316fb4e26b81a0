"""Two frozen test sets of query parsing: unseen wordings, and names with a cue word inside.

The 484 queries in unseen wordings were written without sight of any wording used for training,
half about taxa, half about other domains. Nothing is trained on, selected by, or changed after
either set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from boolattn.data.labelled_queries import LabelledQuery, form_tree, label_tree, parse_labelled
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.tree import Operator

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class UnseenQuery:
    """One query in an unseen wording: its form ("a_or_b_not_c"), its domain and its parse."""

    form: str
    domain: str
    labelled: LabelledQuery


@dataclass(frozen=True, slots=True)
class CueWordName:
    """One name with a cue word inside, and a query that contains it, in any capitalisation."""

    kind: str  # "film", "book", "place", "group", "species", "song", "tv" or "law"
    text: str
    query: str

    @property
    def labelled(self) -> LabelledQuery:
        """The query, labelled as one operand."""
        return LabelledQuery(self.query, ParsedQuery((((0, len(self.query.rstrip("?!"))),),)))


@lru_cache(maxsize=1)
def unseen_queries() -> tuple[UnseenQuery, ...]:
    """Return the queries in unseen wordings, in file order; negated operands come last."""
    queries = []
    for form, domain, markup in _rows("unseen_wordings.txt"):
        text, operands = parse_labelled(markup)
        words = form.split("_")
        n_negated, joiner = words.count("not"), Operator.OR if "or" in words else Operator.AND
        tree = form_tree(len(operands) - n_negated, n_negated, joiner)
        if labelled := label_tree(text, tree, operands):
            queries.append(UnseenQuery(form, domain, labelled))
    return tuple(queries)


@lru_cache(maxsize=1)
def cue_word_names() -> tuple[CueWordName, ...]:
    """Return the names with a cue word inside ("Not of This Earth"), in file order.

    None is in a table that training queries are generated from; one, "Argyll & Bute", is in a
    natural query.
    """
    return tuple(CueWordName(*row[:3]) for row in _rows("cue_word_names.txt"))


def _rows(name: str) -> Iterator[list[str]]:
    text = files("experiments.parsing").joinpath(name).read_text(encoding="utf-8")
    return (line.split("\t") for line in text.splitlines() if line and line[0] != "#")
