"""The analyzer of every store that is written here: words, and what a text negates itself."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.query.lexicon import find_cues
from boolattn.query.tree import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set

    Analyzer = Any

Term = TypeVar("Term", str, int)  # itself, or its number
#: Of BM25+; DELTA is what having a word or a kind counts, beside at most 2.2 for how often a word
#: is in how short a text. It was chosen on validation data (docs/composition.md).
K1, B, DELTA = 1.2, 0.75, 2.0
#: Words of requests that say nothing about a document, or what all documents of a collection are.
_FILLER = """
    any anyone anything contain contains containing eat eats eating everything find give good got
    have having idea ideas include includes including involve involving kind kinds like likes look
    looking made make making need nice please recommend show some something sort sorts stuff suggest
    tell thing things want wants which
    article articles countries country dish dishes film films meal meals movie movies paper papers
    program programs recipe recipes
"""
_TERM = re.compile(r"[^\W_]+")
#: Scripts written without spaces: each character becomes a word.
_UNSPACED = re.compile("([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")
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
#: What "not required" negates, which stands before it: "knowledge of German is not required".
_BEFORE = re.compile(rf"{_PHRASE}[ \t:]*$", re.IGNORECASE)
_LONGEST = 80  # characters of it
_NEEDED = re.compile(
    r"\s+(?:allowed|available|essential|included|necessary|needed|permitted|required|used)\b",
    re.IGNORECASE,
)
#: "nut-free", and "non-" before one word; "free of" and "free from" before a phrase.
_COMPOUND = re.compile(
    # Only from a word's beginning: else a long word would be tried from each of its letters.
    r"(?<![^\W_])[^\W_]+(?=[-‐‑]free\b)|(?<=\bnon)[-‐‑][^\W_]+",
    re.IGNORECASE,
)
_FREE_OF = re.compile(r"\bfree (?:of|from)\b", re.IGNORECASE)


@cache
def analyzer() -> Analyzer:
    """Return the analyzer: words in lower case, folded, without stop words, stemmed."""
    import tantivy  # not every command analyses texts

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    steps = tantivy.Filter
    for step in (steps.remove_long(100), steps.lowercase(), steps.ascii_fold()):
        builder = builder.filter(step)
    return builder.filter(steps.stopword("english")).filter(steps.stemmer("english")).build()


def operand_terms(text: str) -> list[str]:
    """Return the words of an operand that say what it is about; all, where none does.

    >>> operand_terms("recipes with something sweet"), operand_terms("something")
    (['sweet'], ['someth'])
    """
    terms = terms_of(text)
    return [term for term in terms if term not in _filler()] or terms


@cache
def _filler() -> frozenset[str]:
    return frozenset(terms_of(_FILLER))


def terms_of(text: str) -> list[str]:
    """Return the words of a text as they are indexed, each once.

    >>> terms_of("the Moths of Borneo, moths of 婆罗洲")
    ['moth', 'borneo', '婆', '罗', '洲']
    """
    return list(dict.fromkeys(analyzer().analyze(spaced(text))))


def term_counts(text: str) -> Counter[str]:
    """Return how often each word of a text occurs, as it is indexed."""
    return Counter(analyzer().analyze(spaced(text)))


def term_weights(counts: Mapping[Term, int], mean_length: float) -> dict[Term, float]:
    """Return what each term of a document counts in BM25+, but for its rarity.

    >>> term_weights({"moth": 2}, 2.0)
    {'moth': 3.375}
    """
    length = sum(counts.values()) / max(mean_length, 1.0)
    part = K1 * (1 - B + B * length)
    return {term: (K1 + 1) * n / (n + part) + DELTA for term, n in counts.items()}


def matched_words(text: str, terms: Set[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the words between two places that are indexed as one of some terms.

    >>> matched_words("A moth, and the Moths of Java.", {"moth"}, 0, 30)
    [(2, 6), (16, 21)]
    """
    words = _TERM.finditer(text, start, end)
    return [word.span() for word in words if not terms.isdisjoint(terms_of(word[0]))]


def plain_title(text: str) -> str:
    """Return a title as it is compared, whatever the case, the spaces and the marks around it."""
    return " ".join(text.casefold().split()).strip(" \"'.?!")


def asserted_terms(text: str, negated: Iterable[tuple[int, int]] | None = None) -> frozenset[str]:
    """Return the words of a text as they are indexed, without those that the text negates.

    A word that also stands elsewhere in the text, without a negation, counts. ``negated`` are the
    text's :func:`negated_spans`, if they are known.

    >>> sorted(asserted_terms("Nut-free cake without eggs or dairy. Driving licence not required."))
    ['cake', 'free', 'requir', 'without']
    """
    pieces, end = [], 0
    for start, stop in sorted(negated_spans(text) if negated is None else negated):
        pieces.append(text[end : max(start, end)])
        end = max(end, stop)
    return frozenset(terms_of(" ".join([*pieces, text[end:]])))


def negated_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the characters of what a text negates."""
    for match in _COMPOUND.finditer(text):
        yield match.span()
    for cue in find_cues(text):
        if cue.operator is not Operator.NOT:
            continue
        if _NEEDED.match(text, cue.end):
            start = max(0, cue.start - _LONGEST)
            if before := _BEFORE.search(text[start : cue.start]):
                yield start + before.start(), cue.end
        elif after := _AFTER.match(text, cue.end):
            yield after.span()
    for match in _FREE_OF.finditer(text):
        if after := _AFTER.match(text, match.end()):
            yield after.span()


def spaced(text: str) -> str:
    """Return a text with spaces around characters that are words of their own."""
    return _UNSPACED.sub(r" \1 ", text)
