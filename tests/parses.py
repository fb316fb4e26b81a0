"""Parsed queries of one level, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.query.parsed_query import ParserOutput
from boolattn.query.plan import Plan
from boolattn.query.tree import Operator, in_words
from experiments.labels import form_tree, label_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.query.parsed_query import ParsedQuery, Spans
    from boolattn.query.tree import QueryTree


def flat(
    positive: Sequence[Spans], negated: Sequence[Spans] = (), joiner: Operator = Operator.AND
) -> ParsedQuery:
    """Return the parse with these operands."""
    tree = form_tree(len(positive), len(negated), joiner)
    labelled = label_tree("", tree, (*positive, *negated))
    assert labelled is not None
    return labelled.parsed


def positive(parsed: ParsedQuery) -> tuple[Spans, ...]:
    """Return the positive operands."""
    return _signed(parsed, negated=False)


def negated(parsed: ParsedQuery) -> tuple[Spans, ...]:
    """Return the negated operands."""
    return _signed(parsed, negated=True)


def form(parsed: ParsedQuery) -> tuple[int, int, str]:
    """Return the numbers of positive and negated operands, and the joiner."""
    is_or = any(gap.operator is Operator.OR for gap in parsed.gaps)
    return len(positive(parsed)), len(negated(parsed)), "or" if is_or else "and"


def _signed(parsed: ParsedQuery, *, negated: bool) -> tuple[Spans, ...]:
    signed = zip(parsed.operands, parsed.is_negated, strict=True)
    return tuple(spans for spans, own in signed if own == negated)


class KnownParses:
    """A parser that knows some texts; every other text is one operand."""

    def __init__(self, parses: dict[str, ParsedQuery], confidence: float = 1.0) -> None:
        self.parses, self.confidence, self.threshold = parses, confidence, 0.5

    def parse(self, texts: Sequence[str]) -> list[ParserOutput]:
        """Return the known parses."""
        return [ParserOutput(self.parses.get(text), self.confidence) for text in texts]

    def is_word(self, _text: str) -> bool:
        """Correct no spelling."""
        return True


def read_trees(trees: Sequence[QueryTree], texts: Sequence[str] | None = None) -> list[Plan]:
    """Return readings of trees; ``texts`` is their wording, by default the tree in words."""
    wordings = [in_words(tree) for tree in trees] if texts is None else texts
    return [
        Plan(wording, wording, tree, tree, is_explicit=True)
        for tree, wording in zip(trees, wordings, strict=True)
    ]
