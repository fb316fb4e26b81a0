"""The cue lexicon: the words that announce an operator, and where they stand in a text.

The longest cue wins every word it covers, so the "and" of "and not" is part of a NOT and the
"not" of "not only" is part of an AND. "&" is no cue: it stands in names more often than between
operands, and a model's tokens cannot tell "R&B" from "R & B". May import: boolattn.logic.operators.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from boolattn.logic.operators import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Cue phrases by operator. "neither ... nor" needs no pattern with a hole: each half negates
#: what follows it, so each is a cue of its own.
CUES: Mapping[Operator, tuple[str, ...]] = {
    Operator.AND: (
        "and",
        "and also",
        "also",
        "are also",
        "as well as",
        "as well",
        "along with",
        "together with",
        "in addition to",
        "including",
        "both",
        "and both",
        "but also",
        # The "and" of these joins; the "also" is the one of "also known as".
        "and also known as",
        "but also known as",
        "not only",
        "and not only",
        "but not only",
        "not just",
        "and not just",
        "but not just",
        "plus",
    ),
    Operator.OR: (
        "or",
        "or else",
        "either",
        "or alternatively",
        "alternatively",
        "and/or",
        "and / or",
    ),
    Operator.NOT: (
        "not",
        "but not",
        "and not",
        "not including",
        "but not including",
        "and not including",
        "don't",
        "doesn't",
        "didn't",
        "aren't",
        "isn't",
        "wasn't",
        "weren't",
        "hasn't",
        "haven't",
        "can't",
        "cannot",
        "couldn't",
        "won't",
        "never",
        "no",
        "non",
        "nor",
        "neither",
        "without",
        "except",
        "except for",
        "excepting",
        "excluding",
        "excludes",
        "exclude",
        "other than",
        "apart from",
        "aside from",
        "minus",
        "barring",
        "leaving out",
        "omitting",
        "with the exception of",
        "to the exclusion of",
    ),
}

#: Phrases that hold a cue word and announce nothing. They win their words like a cue, and are
#: then dropped.
NOT_CUES: tuple[str, ...] = (
    "non-fiction",
    "non - fiction",
    "non fiction",
    "also known as",
    "are also known as",
    "more or less",
)


@dataclass(frozen=True)
class Cue:
    """One cue found in a text: its operator and its character span."""

    operator: Operator
    start: int
    end: int
    text: str


def cue_words(phrase: str) -> tuple[str, ...]:
    """Split a cue phrase at its spaces; the number of words is what "longest" counts."""
    return tuple(phrase.split(" "))


@lru_cache(maxsize=1)
def _pattern() -> tuple[re.Pattern[str], Mapping[str, Operator]]:
    """One alternation over every cue, longest first, so that the leftmost longest cue matches."""
    owner = {phrase: operator for operator in OPERATORS for phrase in CUES[operator]}
    phrases = sorted(
        (*owner, *NOT_CUES), key=lambda phrase: (-len(cue_words(phrase)), -len(phrase), phrase)
    )
    branches = "|".join(r"(?u:\s+)".join(map(re.escape, cue_words(phrase))) for phrase in phrases)
    # A letter or digit on either side makes it part of a longer word. Case is that of ASCII:
    # else the dotless i of another language would be an i here and not when looked up.
    return re.compile(rf"(?<!\w)(?ai:{branches})(?!\w)"), owner


def find_cues(text: str) -> tuple[Cue, ...]:
    """Find every cue of a text, left to right, never two on one word.

    >>> [(cue.operator.value, cue.text) for cue in find_cues("Moths of Borneo but not Sumatra")]
    [('not', 'but not')]
    >>> [cue.text for cue in find_cues("birds as well as bats, neither owls nor knots")]
    ['as well as', 'neither', 'nor']
    >>> [cue.text for cue in find_cues("more or less non-fiction")]
    []
    """
    pattern, owner = _pattern()
    # A curly apostrophe is one character like a straight one, so the spans stay true.
    plain = text.replace("\u2019", "'")
    found = []
    for match in pattern.finditer(plain):
        operator = owner.get(" ".join(match.group().lower().split()))
        if operator is not None:
            start, end = match.span()
            found.append(Cue(operator, start, end, text[start:end]))
    return tuple(found)


def operators_in(text: str) -> tuple[Operator, ...]:
    """Return the operators whose cues stand in a text, in the fixed order.

    >>> [operator.value for operator in operators_in("Bats or birds, except owls")]
    ['or', 'not']
    """
    present = {cue.operator for cue in find_cues(text)}
    return tuple(operator for operator in OPERATORS if operator in present)
