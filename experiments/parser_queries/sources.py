"""Labelled queries from data: Boolean sentences, and paraphrases aligned with their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.data.sentences import generate
from boolattn.logic.lexicon import find_cues
from boolattn.logic.parsed_query import label_template
from boolattn.logic.tree import operators_of
from experiments.parser_queries.alignment import align

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from boolattn.data import records
    from boolattn.data.sentences import Mixture
    from boolattn.logic.parsed_query import LabelledQuery


def sentence_queries(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[LabelledQuery]:
    """Generate Boolean sentences and label them; the default mixture is that of training."""
    for sentence in generate(n, seed, mixture):
        labelled = label_template(sentence.text, sentence.template, sentence.operands)
        if labelled:
            yield labelled


def label_paraphrases(
    queries: Iterable[records.Query], *, require_cues: bool = True
) -> Iterator[LabelledQuery]:
    """Label queries whose operands are known in other words, such as QUEST's.

    Args:
        queries: Those whose operands cannot be aligned with certainty are skipped.
        require_cues: Skip queries with an operator that no cue expresses: "1990 American crime
            novels" is an AND in QUEST, and looks like a plain query.
    """
    for query in queries:
        labelled = align(query)
        if labelled and (not require_cues or has_cues(labelled)):
            yield labelled


def has_cues(query: LabelledQuery) -> bool:
    """Say whether every operator of a query has a cue of the lexicon outside the operands.

    >>> from boolattn.logic.parsed_query import form_tree, label_tree
    >>> spans = (((0, 4), (14, 20)), ((5, 20),))
    >>> has_cues(label_tree("1990 American novels", form_tree(2, 0), spans))
    False
    """
    needed = set(operators_of(query.parsed.tree(query.text)))
    inside = {
        at for spans in query.parsed.operands for start, end in spans for at in range(start, end)
    }
    found = {cue.operator for cue in find_cues(query.text) if cue.start not in inside}
    return needed <= found
