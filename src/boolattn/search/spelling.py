"""Spelling: words that no document has, as the corpus spells them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from boolattn.query.tokens import QUOTED
from boolattn.query.tree import atoms, map_words
from boolattn.stores.analysis import terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from boolattn.query.reading import Reading
    from boolattn.stores.base import Reader

_WORD = re.compile(r"(?<!\w)[^\W\d_]+(?!\w)")
_SHORTEST, _LONG = 4, 8  # letters of a word that is corrected, and of one with two errors
#: Words that make an exclusion, and are long enough to be known with one error.
_CUES = ("without", "except", "excluding", "neither", "besides")


def correct_cues(text: str, is_word: Callable[[str], bool]) -> tuple[str, dict[str, str]]:
    """Correct words with one error that were meant to exclude: "wihtout".

    Returns:
        The text, and the words that were replaced with those in their place.
    """
    unknown = {word for word in _WORD.findall(text) if len(word) > _SHORTEST}
    near = {
        word: cue
        for word in sorted(unknown)
        for cue in _CUES
        if distance(word.lower(), cue) == 1 and not is_word(word.lower())
    }
    return (_corrected(text, near), near) if near else (text, {})


def correct_spelling(
    reading: Reading, reader: Reader, is_word: Callable[[str], bool]
) -> tuple[Reading, dict[str, str]]:
    """Replace words of operands that are neither known nor in the corpus by similar ones in it.

    What stands between quotes stays as it is.

    Args:
        reading: The query.
        reader: The store.
        is_word: Tells whether a word is known, and spelt correctly.

    Returns:
        The reading, and the words that were replaced with those in their place.
    """
    quoted = " ".join(QUOTED.findall(reading.text))
    names = {word for atom in atoms(reading.tree) for word in _WORD.findall(atom.words)}
    names -= set(_WORD.findall(quoted))
    unknown = sorted(w for w in names if len(w) >= _SHORTEST and not is_word(w.lower()))
    terms = [next(iter(terms_of(word)), "") for word in unknown]
    counts = reader.frequencies(terms) if unknown else []
    missing = [word for word, term, n in zip(unknown, terms, counts, strict=True) if term and not n]
    replaced = {
        word: better
        for word in missing
        if (better := _swapped(word, is_word) or _nearest(word, reader))
    }
    if not replaced:
        return reading, {}
    tree = map_words(reading.tree, lambda text: _corrected(text, replaced))
    return replace(reading, tree=tree, wording=_corrected(reading.wording, replaced)), replaced


def _swapped(word: str, is_word: Callable[[str], bool]) -> str:
    """Return the word with two letters in the other order, if only one such word is known.

    That is the likelier error: "asain" is "asian", whether a document says so or not.
    """
    pairs = range(1, len(word) - 1)  # the first letter is right as a rule
    swapped = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in pairs}
    known = [text for text in swapped if is_word(text.lower())]
    return known[0] if len(known) == 1 else ""


def _nearest(word: str, reader: Reader) -> str:
    """Return the most frequent similar word of documents with one."""
    lowered, n_errors = word.lower(), 2 if len(word) >= _LONG else 1
    texts = reader.similar_words(lowered, n_errors)
    counts: Counter[str] = Counter()
    for text in texts:
        words = {name.lower() for name in _WORD.findall(text)}
        counts.update(name for name in words if abs(len(name) - len(lowered)) <= n_errors)
    scored = [
        (
            distance(lowered, name),
            sorted(name) != sorted(lowered),
            name[-1] != lowered[-1],
            -n,
            name,
        )
        for name, n in counts.items()
        if name[0] == lowered[0]
    ]
    near = [entry for entry in scored if entry[0] <= n_errors]
    better = min(near)[-1] if near else ""
    # A capital letter tells the island of Java from coffee.
    return better.capitalize() if word[0].isupper() else better


def distance(first: str, second: str) -> int:
    """Return the number of letters to insert, delete, replace or swap with the next one.

    >>> distance("asain", "asian"), distance("chiken", "chicken"), distance("soup", "salad")
    (1, 1, 4)
    """
    rows = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, 1):
        row = [i]
        for j, other in enumerate(second, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, first[i - 2]) == (second[j - 2], other):
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


def _corrected(text: str, replaced: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: replaced.get(match[0], match[0]), text)
