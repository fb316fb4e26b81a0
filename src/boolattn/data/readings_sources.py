"""Readings from data that is there already: queries with spans, Boolean sentences, QUEST.

May import: boolattn.data, boolattn.logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.data.readings_alignment import align
from boolattn.data.sentences import generate
from boolattn.logic.lexicon import find_cues
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import label_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from boolattn.data import records
    from boolattn.data.sentences import Mixture, Sentence
    from boolattn.logic.parsed_query import LabelledQuery


def marked_queries(queries: Iterable[records.Query]) -> Iterator[LabelledQuery]:
    """Mark the queries of a data set that knows where its operands stand; others are left out."""
    for query in queries:
        marked = label_template(
            query.text, query.template, [operand.spans for operand in query.operands]
        )
        if marked:
            yield marked


def marked_sentences(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[LabelledQuery]:
    """Mark generated Boolean sentences; left out, the mixture has what training may see."""
    yield from mark_sentences(generate(n, seed, mixture))


def mark_sentences(sentences: Iterable[Sentence]) -> Iterator[LabelledQuery]:
    """Mark Boolean sentences that are there already."""
    for sentence in sentences:
        marked = label_template(sentence.text, sentence.template, sentence.operands)
        if marked:
            yield marked


def marked_paraphrases(
    queries: Iterable[records.Query], *, announced: bool = True
) -> Iterator[LabelledQuery]:
    """Mark queries whose operands are known in other words, such as QUEST's.

    Args:
        queries: Those that cannot be aligned for certain are left out.
        announced: Leave out those that say an operator with no word for it: "1990 American crime
            novels" is an AND to QUEST, and looks like a plain query.
    """
    for query in queries:
        marked = align(query)
        if marked and (not announced or is_announced(marked)):
            yield marked


def is_announced(marked: LabelledQuery) -> bool:
    """Say whether every operator of a reading has a cue of the lexicon outside the operands.

    >>> from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery
    >>> spans = (((0, 4), (14, 20)), ((5, 20),))
    >>> is_announced(LabelledQuery("1990 American novels", ParsedQuery(spans)))
    False
    """
    reading = marked.parsed
    asked = set()
    if len(reading.positive) > 1:
        asked.add(reading.joiner)
    if reading.negated:
        asked.add(Operator.NOT)
    inside = {
        at
        for spans in reading.positive + reading.negated
        for start, end in spans
        for at in range(start, end)
    }
    found = {cue.operator for cue in find_cues(marked.text) if cue.start not in inside}
    return asked <= found
