"""What a search returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from boolattn.logic.syntax import unparse
from boolattn.search.verdicts import KEPT, Probabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from boolattn.logic.tree import QueryTree

#: Attributes that JSON has under another name.
_JSON_NAMES = {"parsed": "reading", "is_negated": "excluded", "ranked_lower": "put_down"}


@dataclass(frozen=True)
class Hit:
    """One document that was found.

    Attributes:
        id: Of the document.
        title: Of the document.
        text: All of it.
        metadata: Of the document.
        score: Higher is better: the composed score, a similarity where the query is one vector,
            the fused reciprocal rank in hybrid search.
        probabilities: Displayed probability of each operand; empty where not composed. Compare
            them between documents, for the same operand.
        composed: The probabilities that the score is composed of; verdicts compare these.
        verdict: ``kept``; ``doubtful`` where the document matches a negated operand much more
            than the results above it; ``put down`` where it is ranked below the results shown.
        why: Which operand counts against it, compared with the results above it, or empty.
        branches: Its rank in each branch of a hybrid search, from 1.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    score: float
    probabilities: tuple[float, ...] = ()
    composed: tuple[float, ...] = ()
    verdict: str = KEPT
    why: str = ""
    branches: Mapping[str, int] = field(default_factory=dict)

    @property
    def all_probabilities(self) -> Probabilities:
        """Composed and displayed probabilities together."""
        return Probabilities(self.composed, self.probabilities)


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The results of one query, and the tree that was searched.

    Attributes:
        query: As it was typed.
        tree: What was searched; one operand where nothing was composed.
        parsed: What the query was parsed as, also where the parser was not confident enough.
        operands: Their texts, left to right.
        is_negated: Which operands are under a NOT.
        spans: For each operand its characters in the query; empty where not known.
        confidence: Of the parser.
        is_composed: Whether operands were scored one by one and composed.
        hits: Best first.
        ranked_lower: With ``explain``: what the whole text's vector would have found among the
            first, and composition ranks lower.
        warnings: For the caller.
        took: Milliseconds by step.
    """

    query: str
    tree: QueryTree
    parsed: QueryTree
    operands: tuple[str, ...]
    is_negated: tuple[bool, ...]
    spans: tuple[tuple[tuple[int, int], ...], ...]
    confidence: float
    is_composed: bool
    hits: tuple[Hit, ...]
    ranked_lower: tuple[Hit, ...] = ()
    warnings: tuple[str, ...] = ()
    took: Mapping[str, float] = field(default_factory=dict)

    @property
    def tree_text(self) -> str:
        """The tree in explicit syntax."""
        return unparse(self.tree)

    @property
    def parsed_text(self) -> str:
        """The parsed query in explicit syntax."""
        return unparse(self.parsed)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; trees become text in explicit syntax."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values |= {"tree": self.tree_text, "parsed": self.parsed_text}
        values |= {
            name: tuple(asdict(hit) for hit in values[name]) for name in ("hits", "ranked_lower")
        }
        return {_JSON_NAMES.get(name, name): value for name, value in values.items()}
