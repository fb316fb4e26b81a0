"""The cue lexicon: the words that express an operator, and where they occur in a text.

The longest cue wins, so the "and" of "and not" is part of a NOT, and the "not" of "not only" part
of an AND. "&" is not a cue: it is more frequent in names than between operands, and a model's
tokens do not distinguish "R&B" from "R & B".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from boolattn.query.tree import OPERATORS, Operator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Cue phrases by operator. "neither" and "nor" are two cues: each negates what follows it. In
#: "and also known as" the "and" joins, and the "also" belongs to "also known as".
CUES: Mapping[Operator, tuple[str, ...]] = {
    operator: tuple(phrase.strip() for phrase in phrases.split(","))
    for operator, phrases in {
        Operator.AND: (
            "and, and also, also, are also, as well as, as well, along with, together with, in "
            "addition to, including, both, and both, but also, and also known as, but also known "
            "as, not only, and not only, but not only, not just, and not just, but not just, plus"
        ),
        Operator.OR: ("or, or else, either, or alternatively, alternatively, and/or, and / or"),
        Operator.NOT: (
            "not, but not, and not, not including, but not including, and not including, don't, "
            "doesn't, didn't, aren't, isn't, wasn't, weren't, hasn't, haven't, can't, cannot, "
            "couldn't, won't, never, no, non, nor, neither, without, except, except for, "
            "excepting, excluding, excludes, exclude, other than, apart from, aside from, minus, "
            "barring, leaving out, omitting, with the exception of, to the exclusion of"
        ),
    }.items()
}

#: Phrases that contain a cue word and express no operator.
NOT_CUES: tuple[str, ...] = (
    "non-fiction",
    "non - fiction",
    "non fiction",
    "also known as",
    "are also known as",
    "more or less",
)


#: Compounds that negate and hold no cue; most are read as an operator, some as one word.
_COMPOUND = re.compile(r"(?<!\w)[^\W\d_]+[-\u2010\u2011]free(?!\w)", re.IGNORECASE)


@dataclass(frozen=True)
class Cue:
    """One cue found in a text: its operator and its character span."""

    operator: Operator
    start: int
    end: int
    text: str


@lru_cache(maxsize=1)
def _pattern() -> tuple[re.Pattern[str], Mapping[str, Operator]]:
    """Return one pattern of all cues, longest first, and the operator of each."""
    owner = {phrase: operator for operator in OPERATORS for phrase in CUES[operator]}
    phrases = sorted(
        (*owner, *NOT_CUES), key=lambda phrase: (-len(phrase.split()), -len(phrase), phrase)
    )
    branches = "|".join(r"(?u:\s+)".join(map(re.escape, phrase.split())) for phrase in phrases)
    # A letter or digit on either side makes it part of a longer word. Case is that of ASCII,
    # because a dotless i would match here and not be found in the mapping.
    return re.compile(rf"(?<!\w)(?ai:{branches})(?!\w)"), owner


def find_cues(text: str) -> tuple[Cue, ...]:
    """Find the cues of a text, left to right, without overlaps.

    >>> [(cue.operator.value, cue.text) for cue in find_cues("Moths of Borneo but not Sumatra")]
    [('not', 'but not')]
    >>> [cue.text for cue in find_cues("birds as well as bats, neither owls nor knots")]
    ['as well as', 'neither', 'nor']
    >>> [cue.text for cue in find_cues("more or less non-fiction")]
    []
    """
    pattern, owner = _pattern()
    # A curly apostrophe has one character too, so the spans stay correct.
    plain = text.replace("\u2019", "'")
    cues = []
    for match in pattern.finditer(plain):
        operator = owner.get(" ".join(match.group().lower().split()))
        if operator is not None:
            start, end = match.span()
            cues.append(Cue(operator, start, end, text[start:end]))
    return tuple(cues)


def unused_cues(
    text: str, operands: Sequence[Sequence[tuple[int, int]]], is_negated: Sequence[bool]
) -> tuple[tuple[Cue, int | None], ...]:
    """Return the cues of a text that became no operator, and compounds such as "nut-free".

    Each with the number of the operand that it is a word of, by the operands' character spans;
    ``None`` for one of NOT that stands between operands of which none is negated.

    >>> text = "films of Romeo and Juliet but not musicals"
    >>> for cue, operand in unused_cues(text, [[(0, 25)], [(34, 42)]], [False, True]):
    ...     print(cue.text, operand)
    and 0
    """
    unused: list[tuple[Cue, int | None]] = []
    compounds = (Cue(Operator.NOT, *match.span(), match[0]) for match in _COMPOUND.finditer(text))
    for cue in (*find_cues(text), *compounds):
        owners = (
            number
            for number, spans in enumerate(operands)
            if any(start <= cue.start and cue.end <= end for start, end in spans)
        )
        owner = next(owners, None)
        if owner is not None or (cue.operator is Operator.NOT and not any(is_negated)):
            unused.append((cue, owner))
    return tuple(unused)
