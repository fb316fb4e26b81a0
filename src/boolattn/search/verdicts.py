"""Which operand counts against a result: what was measured for it, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.scoring.shortlist import SHORTLIST
from boolattn.search.result import DOUBTFUL, KEPT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.search.result import Hit

#: A document counts as one of a negated operand where it matches that more than this share of the
#: documents that fit the rest of the query best.
BELONGS = 0.8


def judge(operands: Sequence[str], hit: Hit) -> tuple[str, str]:
    """Return the verdict on a result, and what counts against it.

    >>> from boolattn.search.result import Hit
    >>> hit = Hit("1", "", "", {}, 0.0, ranks=(3, 1), exceeds=(0.0, 0.97))
    >>> print(*judge(["moths", "Java"], hit), sep=": ")
    doubtful: matches the negated operand 'Java' more than 97% of the documents that fit best
    """
    reasons = _negated(operands, hit)
    if not hit.fits:
        reasons.append("fits the positive part of the query less than the best documents do")
    return (DOUBTFUL, "; ".join(reasons)) if reasons else (KEPT, "")


def explain_lower_rank(operands: Sequence[str], hit: Hit, above: Sequence[Hit]) -> str:
    """Say what counts most against a document that is not among the results.

    A negated operand that it matches, or the positive operand whose rank is lowest, compared with
    the results above.

    >>> from boolattn.search.result import Hit
    >>> best = Hit("1", "", "", {}, 0.0, ranks=(2, 3), exceeds=(0, 0))
    >>> hit = Hit("2", "", "", {}, 0.0, ranks=(4, 60), exceeds=(0, 0))
    >>> explain_lower_rank(["moths", "Borneo"], hit, [best])
    "is number 60 for 'Borneo' (results above it: 3)"
    """
    if reasons := _negated(operands, hit):
        return "; ".join(reasons)
    if not hit.ranks or not above:
        return ""
    from statistics import median  # with decimals and fractions, which no other command needs

    usual = [median(other.ranks[index] for other in above) for index in range(len(operands))]
    worse = [
        (rank / usual[index], index)
        for index, rank in enumerate(hit.ranks)
        if rank > usual[index] and not hit.exceeds[index]
    ]
    if not worse:
        return ""
    _, index = max(worse)
    rank, name = hit.ranks[index], f"{operands[index]!r}"
    theirs = f"(results above it: {usual[index]:.0f})"
    if rank > SHORTLIST:
        return f"is not among the first {SHORTLIST} for {name} {theirs}"
    return f"is number {rank} for {name} {theirs}"


def _negated(operands: Sequence[str], hit: Hit) -> list[str]:
    return [
        f"matches the negated operand {name!r} more than {_most(share)} the documents that fit best"
        for name, share in zip(operands, hit.exceeds, strict=False)
        if share >= BELONGS
    ]


def _most(share: float) -> str:
    return "all" if share > 0.995 else f"{100 * share:.0f}% of"
