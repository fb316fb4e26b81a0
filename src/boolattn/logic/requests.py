"""Which long texts ask for one thing, so that the other words can be set aside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boolattn.logic.parsed_query import Spans

#: Somebody speaks for himself or asks; a passage of a document seldom does.
_ASKS = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|please|anyone|anybody|(?:can|could|will|would|do|have) you)\b|\?",
    re.IGNORECASE,
)
#: Words that name nothing.
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        """
        a about all an any anything are everything for have i in is it me more of on one ones some
        something that the them there these thing things this those to what whatever you your
        """,
    )
)
#: Of a longer text the parser may not have read the end.
_MOST_WORDS = 90


def is_request(text: str, spans: Spans) -> bool:
    """Tell whether a text asks for what one span of it names, in less than half of its words.

    >>> text = "I run a small museum and have no budget. Could you find me moths of Borneo?"
    >>> is_request(text, ((59, 74),)), is_request("moths of Borneo, please", ((0, 15),))
    (True, False)
    >>> is_request(text, ((8, 20), (59, 74)))  # words that do not stand together name nothing
    False
    """
    if len(spans) != 1:
        return False
    (start, end), n_words = spans[0], len(text.split())
    named = re.findall(r"[^\W_]+", text[start:end].lower())
    return (
        n_words <= _MOST_WORDS
        and 2 * len(text[start:end].split()) < n_words
        and not _EMPTY.issuperset(named)
        and bool(_ASKS.search(f"{text[:start]} {text[end:]}"))
    )
