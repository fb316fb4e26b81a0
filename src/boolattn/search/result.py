"""What a search returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from boolattn.logic.syntax import unparse
from boolattn.search.lexical import matched_words, terms_of
from boolattn.search.verdicts import KEPT, Probabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from boolattn.logic.tree import QueryTree

#: Attributes that JSON has under another name.
_JSON_NAMES = {"parsed": "reading", "is_negated": "excluded", "ranked_lower": "put_down"}


@dataclass(frozen=True)
class Hit:
    """One document that was found."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    #: Higher is better: the composed score, a similarity where the query is one vector, the fused
    #: reciprocal rank in hybrid search.
    score: float
    #: Displayed probability of each operand; empty where not composed. Compare them between
    #: documents, for the same operand.
    probabilities: tuple[float, ...] = ()
    composed: tuple[float, ...] = ()  # what the score is composed of; verdicts compare these
    #: ``kept``; ``doubtful`` where the document matches a negated operand much more than the
    #: results above it; ``put down`` where it is ranked below the results shown.
    verdict: str = KEPT
    why: str = ""  # which operand counts against it, compared with the results above it
    branches: Mapping[str, int] = field(default_factory=dict)  # ranks in hybrid search, from 1
    passage: tuple[int, int] | None = None  # the best passage of a text that has several

    @property
    def all_probabilities(self) -> Probabilities:
        """Composed and displayed probabilities together."""
        return Probabilities(self.composed, self.probabilities)


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The results of one query, and the tree that was searched."""

    query: str  # as it was typed
    tree: QueryTree  # what was searched; one operand where nothing was composed
    parsed: QueryTree  # also where the parser was not confident enough
    operands: tuple[str, ...]  # their texts, left to right
    is_negated: tuple[bool, ...]  # which operands are under a NOT
    spans: tuple[tuple[tuple[int, int], ...], ...]  # of each operand in the query, where known
    confidence: float  # of the parser
    is_composed: bool  # whether operands were scored one by one and composed
    hits: tuple[Hit, ...]  # best first
    #: With ``explain``: what the whole text's vector would have found among the first, and
    #: composition ranks lower.
    ranked_lower: tuple[Hit, ...] = ()
    warnings: tuple[str, ...] = ()
    total: int = 0  # documents that pass the filters; all of them are ranked, in principle
    offset: int = 0  # better documents that were passed over
    took: Mapping[str, float] = field(default_factory=dict)  # milliseconds by step

    @property
    def tree_text(self) -> str:
        """The tree in explicit syntax."""
        return unparse(self.tree)

    @property
    def parsed_text(self) -> str:
        """The parsed query in explicit syntax."""
        return unparse(self.parsed)

    def highlights(self, hit: Hit) -> list[tuple[int, int]]:
        """Return the spans of a hit's passage, or text, that are words of positive operands."""
        pairs = zip(self.operands, self.is_negated, strict=True)
        terms = {term for text, is_no in pairs if not is_no for term in terms_of(text)}
        return matched_words(hit.text, terms, *(hit.passage or (0, len(hit.text))))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; trees become text in explicit syntax."""
        values = asdict(self) | {"tree": self.tree_text, "parsed": self.parsed_text}
        return {_JSON_NAMES.get(name, name): value for name, value in values.items()}
