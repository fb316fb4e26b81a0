"""What a search returns, which operand counts against a result, and reranking.

A reranker reads each positive operand beside each of the first results. NOT stays the search's:
what it left out does not come back, and negated operands are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.query.syntax import unparse
from boolattn.query.tree import QueryTree, atoms, clauses, signed_atoms
from boolattn.stores.analysis import matched_words, named_values, terms_of

if TYPE_CHECKING:
    from boolattn.search.overview import Facet

SHORTENED = "NOT leaves"  # begins the warning that there are too few results
#: From pairs of an operand and a text to scores, higher for a better match.
Reranker = Callable[[list[tuple[str, str]]], Sequence[float]]
#: A document counts as one of a negated operand where it matches that more than this share of the
#: documents that fit the rest of the query best.
BELONGS = 0.8


@dataclass(frozen=True)
class Hit:
    """One document that was found."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, Any]
    #: Higher is better: the composed score, or a similarity where the query is one vector, in
    #: hybrid search with the evidence of words added.
    score: float
    #: Its rank for each operand alone, among the documents compared; ``SHORTLIST + 1`` stands for
    #: any lower rank. Empty where not composed.
    ranks: tuple[int, ...] = ()
    #: For each negated operand, which share of the documents that fit the rest of the query best
    #: matches it less; 0 for a positive one.
    exceeds: tuple[float, ...] = ()
    fits: bool = True  # the positive part of the query
    #: ``kept``; ``doubtful`` where the document matches a negated operand, or does not fit.
    verdict: str = "kept"
    why: str = ""  # what counts against it
    passage: tuple[int, int] | None = None  # the best passage of a text that has several


@dataclass(frozen=True)
class LeftOut:
    """A document that NOT left out of the results."""

    id: str
    title: str  # or the beginning of its text
    why: str  # "cream is dairy"
    word: str = ""  # the word that is of a negated kind; ``allow`` takes it back


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The results of one query, and the tree that was searched.

    It has a length, and can be iterated: ``for hit in result``.

    >>> from boolattn import Searcher
    >>> searcher = Searcher.from_texts(["A red moth.", "A red ant."])
    >>> result = searcher.search("red but not ants")
    >>> result.tree_text, len(result), [(d.id, d.why) for d in result.left_out]
    ('red NOT ants', 1, [('1', "it mentions 'ants'")])
    >>> result.highlights(result[0]), result.has_words(result[0]), result.to_dict()["query"]
    ([(2, 5)], True, 'red but not ants')
    """

    query: str  # as it was typed
    tree: QueryTree  # what was searched; one operand where nothing was composed
    parsed: QueryTree  # also where the parser was not confident enough
    operands: tuple[str, ...]  # their texts, left to right
    is_negated: tuple[bool, ...]  # which operands are under a NOT
    spans: tuple[tuple[tuple[int, int], ...], ...]  # of each operand in the query, where known
    confidence: float  # of the parser
    is_composed: bool  # whether operands were scored one by one and composed
    why_one_vector: str = ""  # why they were not; empty where they were
    hybrid: bool = False  # whether the words of operands counted too
    strict_not: bool = False  # whether documents with words of negated operands were left out
    n_compared: int = 0  # documents that ranks are among; 0 where not composed
    hits: tuple[Hit, ...]  # best first
    left_out: tuple[LeftOut, ...] = ()  # the best documents that NOT left out
    #: With ``facets``: values of the metadata among the best documents that are not left out.
    facets: tuple[Facet, ...] = ()
    #: What a user may not expect: cue words that became no operator, operands that were ignored.
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # words that were corrected, numbers that were read as conditions
    total: int = 0  # documents that pass the filters; all of them are ranked, in principle
    offset: int = 0  # better documents that were passed over
    took: Mapping[str, float] = field(default_factory=dict)  # milliseconds by step

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        return True  # also without hits

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __getitem__(self, rank: int) -> Hit:
        return self.hits[rank]

    @property
    def tree_text(self) -> str:
        """The tree in explicit syntax."""
        return unparse(self.tree)

    @property
    def parsed_text(self) -> str:
        """The parsed query in explicit syntax."""
        return unparse(self.parsed)

    @property
    def _terms(self) -> set[str]:
        pairs = signed_atoms(self.tree)
        return {term for atom, sign in pairs if sign > 0 for term in terms_of(atom.words)}

    def highlights(self, hit: Hit) -> list[tuple[int, int]]:
        """Return the spans of a hit's passage, or text, that are words of positive operands."""
        return matched_words(hit.text, self._terms, *(hit.passage or (0, len(hit.text))))

    def has_words(self, hit: Hit) -> bool:
        """Tell whether title, text or metadata of a hit have a word of positive operands."""
        shown = [hit.title, hit.text, *map(str, hit.metadata.values()), *named_values(hit.metadata)]
        return not self._terms.isdisjoint(terms_of(" ".join(shown)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; trees become text in explicit syntax."""
        return asdict(self) | {"tree": self.tree_text, "parsed": self.parsed_text}


def judge(operands: Sequence[str], exceeds: Sequence[float], *, fits: bool) -> str:
    """Say what counts against a result; see :class:`Hit`.

    >>> judge(["moths", "Java"], [0.0, 0.97], fits=True)
    "matches the negated operand 'Java' more than 97% of the documents that fit best"
    """
    reasons = [
        f"matches the negated operand {name!r} more than "
        f"{'all' if share > 0.995 else f'{100 * share:.0f}% of'} the documents that fit best"
        for name, share in zip(operands, exceeds, strict=False)
        if share >= BELONGS
    ]
    if not fits:
        reasons.append("fits the positive part of the query less than the best documents do")
    return "; ".join(reasons)


def as_reranker(reranker: Any) -> Reranker | None:  # noqa: ANN401 - a function or a CrossEncoder
    """Return a function of pairs; a sentence-transformers ``CrossEncoder`` predicts them."""
    function: Reranker | None = getattr(reranker, "predict", reranker)
    if function is None or callable(function):
        return function
    raise ConfigError(
        "reranker must be a function from pairs of an operand and a text to scores, or a "
        f"CrossEncoder, got {type(reranker).__name__}"
    )


def rerank(result: SearchResult, reranker: Reranker, k: int, offset: int, n: int) -> SearchResult:
    """Sort the first ``n`` hits by what a reranker says of the positive operands, and cut it.

    A document's score is that of its best alternative ("A or B"), and that of an alternative the
    mean over its operands. A query without words in an alternative keeps its order, and so does one
    with NOT where strict NOT is off.
    """
    is_ranked_by_not = any(result.is_negated) and not result.strict_not
    first = replace(result, hits=result.hits[:n])
    hits = result.hits if is_ranked_by_not else (*_sorted(first, reranker), *result.hits[n:])
    warnings = result.warnings
    if len(hits) >= k + offset:
        warnings = tuple(line for line in warnings if not line.startswith(SHORTENED))
    return replace(result, hits=hits[offset : offset + k], offset=offset, warnings=warnings)


def _sorted(result: SearchResult, reranker: Reranker) -> tuple[Hit, ...]:
    words = [atom.words for atom in atoms(result.tree)]
    alternatives = [[row for row in c.positive if words[row]] for c in clauses(result.tree)]
    if not result.hits or not all(alternatives):
        return result.hits
    rows = sorted({*chain.from_iterable(alternatives)})
    pairs = [(words[row], _text(hit)) for row, hit in product(rows, result.hits)]
    scores = np.asarray(reranker(pairs), np.float64)
    if scores.shape != (len(pairs),) or not np.isfinite(scores).all():
        raise ConfigError(
            f"the reranker must give {len(pairs)} finite scores for {len(pairs)} pairs, got "
            f"{'other values' if scores.shape == (len(pairs),) else f'the shape {scores.shape}'}"
        )
    by_operand = dict(zip(rows, scores.reshape(len(rows), -1), strict=True))
    best = np.max([np.mean([by_operand[row] for row in a], axis=0) for a in alternatives], axis=0)
    order = np.argsort(-best, kind="stable")
    return tuple(replace(result.hits[row], score=float(best[row])) for row in order)


def _text(hit: Hit) -> str:
    """Return what is read of a document: its title, and its best passage if it has several."""
    text = hit.text[slice(*hit.passage)] if hit.passage else hit.text
    return text if not hit.title or text.startswith(hit.title) else f"{hit.title}\n{text}"
