"""Readings from data that is there already: queries with spans, Boolean sentences, QUEST.

May import: boolattn.data, boolattn.logic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.data.readings import mark
from boolattn.data.readings_alignment import align
from boolattn.data.sentences import generate
from boolattn.logic.lexicon import find_cues
from boolattn.logic.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from boolattn.data import records
    from boolattn.data.readings import Marked
    from boolattn.data.sentences import Mixture, Sentence


def marked_queries(queries: Iterable[records.Query]) -> Iterator[Marked]:
    """Mark the queries of a data set that knows where its operands stand; others are left out."""
    for query in queries:
        marked = mark(query.text, query.template, [operand.spans for operand in query.operands])
        if marked:
            yield marked


def marked_sentences(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[Marked]:
    """Mark generated Boolean sentences; left out, the mixture has what training may see."""
    yield from mark_sentences(generate(n, seed, mixture))


def mark_sentences(sentences: Iterable[Sentence]) -> Iterator[Marked]:
    """Mark Boolean sentences that are there already."""
    for sentence in sentences:
        marked = mark(sentence.text, sentence.template, sentence.operands)
        if marked:
            yield marked


def marked_paraphrases(
    queries: Iterable[records.Query], *, announced: bool = True
) -> Iterator[Marked]:
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


def is_announced(marked: Marked) -> bool:
    """Say whether every operator of a reading has a cue of the lexicon outside the operands.

    >>> from boolattn.data.readings import Marked, Reading
    >>> spans = (((0, 4), (14, 20)), ((5, 20),))
    >>> is_announced(Marked("1990 American novels", Reading(spans)))
    False
    """
    reading = marked.reading
    asked = set()
    if len(reading.kept) > 1:
        asked.add(reading.joiner)
    if reading.excluded:
        asked.add(Operator.NOT)
    inside = {
        at
        for spans in reading.kept + reading.excluded
        for start, end in spans
        for at in range(start, end)
    }
    found = {cue.operator for cue in find_cues(marked.text) if cue.start not in inside}
    return asked <= found
