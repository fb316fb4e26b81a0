"""Lexical exclusion filter: which documents a NOT excludes by their words.

Positive operands count as true, so only negated ones can exclude a document: in "(A NOT B) OR C"
B alone excludes nothing. Words that the document itself negates do not count: an advertisement
that says "no driving licence needed" is not one for people with a driving licence.
"""

from __future__ import annotations

import re
from itertools import compress
from typing import TYPE_CHECKING

from boolattn.query.lexicon import find_cues
from boolattn.query.operators import Operator
from boolattn.query.structure import operand_signs
from boolattn.query.tree import atoms
from boolattn.search.lexical import terms_of
from boolattn.search.verdicts import truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from boolattn.data.records import Document
    from boolattn.query.tree import QueryTree
    from boolattn.search.result import Hit

    #: A test of a document's words.
    IsAllowed = Callable[[Set[str]], bool]

#: A word that does not begin another clause.
_WORD = (
    r"(?!(?:although|and|because|but|however|if|nor|only|or|so|though|unless|until|when|where|"
    r"which|while|who|with)\b)[^\W_][\w'’/-]*"
)
_PHRASE = rf"{_WORD}(?:[ \t]+{_WORD}){{0,3}}"
#: What a NOT before it negates: up to four words, or a list of such with "or" before the last.
_AFTER = re.compile(
    rf"[ \t:]*{_PHRASE}(?:(?:,[ \t]*{_PHRASE})*,?[ \t]+n?or[ \t]+{_PHRASE})?", re.IGNORECASE
)
#: What a NOT negates that stands before "required": "knowledge of German is not required".
_BEFORE = re.compile(rf"{_PHRASE}[ \t:]*$", re.IGNORECASE)
_LONGEST = 80  # characters of it
_NEEDED = re.compile(
    r"\s+(?:allowed|available|essential|included|necessary|needed|permitted|required|used)\b",
    re.IGNORECASE,
)
#: "nut-free", and "non-" before one word; "free of" and "free from" before a phrase.
_COMPOUND = re.compile(r"[^\W_]+(?=[-‐‑]free\b)|(?<=\bnon)[-‐‑][^\W_]+", re.IGNORECASE)
_FREE_OF = re.compile(r"\bfree (?:of|from)\b", re.IGNORECASE)


def asserted_terms(text: str) -> frozenset[str]:
    """Return the words of a text as they are indexed, without those that the text negates.

    A word that also stands elsewhere in the text, without a negation, counts.

    >>> sorted(asserted_terms("Nut-free cake without eggs or dairy. Driving licence not required."))
    ['cake', 'free', 'requir', 'without']
    """
    spans = sorted(_negated_spans(text))
    kept, end = [], 0
    for start, stop in spans:
        kept.append(text[end : max(start, end)])
        end = max(end, stop)
    return frozenset(terms_of(" ".join([*kept, text[end:]])))


def _negated_spans(text: str) -> Iterator[tuple[int, int]]:
    for found in _COMPOUND.finditer(text):
        yield found.span()
    for cue in find_cues(text):
        if cue.operator is not Operator.NOT:
            continue
        if _NEEDED.match(text, cue.end):
            start = max(0, cue.start - _LONGEST)
            if before := _BEFORE.search(text[start : cue.start]):
                yield start + before.start(), cue.end
        elif after := _AFTER.match(text, cue.end):
            yield after.span()
    for found in _FREE_OF.finditer(text):
        if after := _AFTER.match(text, found.end()):
            yield after.span()


def allowed_by_terms(tree: QueryTree) -> IsAllowed:
    """Return a test of a document: that it lacks the distinguishing words of negated operands.

    No positive operand has these: in "moths of Borneo NOT moths of Sumatra" Sumatra distinguishes
    the second operand. The test takes the document's words, as :func:`asserted_terms` gives them.
    """
    terms = [frozenset(terms_of(atom.words)) for atom in atoms(tree)]
    is_positive = [sign > 0 for sign in operand_signs(tree)]
    others = frozenset().union(*compress(terms, is_positive))

    def is_allowed(words: Set[str]) -> bool:
        truths = [
            positive or (bool(own - others) and own - others <= words)
            for own, positive in zip(terms, is_positive, strict=True)
        ]
        return bool(truth(tree, map(float, truths)))

    return is_allowed


def is_kept(is_allowed: IsAllowed, document: Document | Hit) -> bool:
    """Return whether a document passes the test of :func:`allowed_by_terms`."""
    text = f"{document.title}\n{document.text}"
    # Looking for negations takes longer, and can only allow more.
    return is_allowed(frozenset(terms_of(text))) or is_allowed(asserted_terms(text))


def denies(is_allowed: IsAllowed, document: Document | Hit) -> bool:
    """Return whether a document passes only because it negates the words itself."""
    text = f"{document.title}\n{document.text}"
    return not is_allowed(frozenset(terms_of(text))) and is_allowed(asserted_terms(text))
