"""Long texts cut into passages that an encoder reads to the end."""

from __future__ import annotations

import re
from itertools import pairwise

#: About a token: six letters of an alphabet, a character of another script, a sign.
_PIECE = re.compile(r"[0-9A-Za-z_\u00c0-\u04ff]{1,6}|\w|[^\w\s]")
_SENTENCE_ENDS = ("。", "！", "？", "\n", ". ", "! ", "? ", '." ', ".) ", ".\u201d ")
_WORD_ENDS = (" ", "\n", "\t")
#: Passages are filled to this part, because tokens are only estimated.
_FILLED = 0.9


def cut(text: str, n_tokens: int) -> list[tuple[int, int]]:
    """Return spans of at most about ``n_tokens`` tokens, cut after sentences where there are any.

    A text that is short enough, and any text with 0 tokens, is one span.

    >>> text = "One two. Three four five. Six seven."
    >>> [text[start:end] for start, end in cut(text, 6)]
    ['One two.', 'Three four five.', 'Six seven.']
    """
    starts = [match.start() for match in _PIECE.finditer(text)] if n_tokens else []
    if len(starts) <= n_tokens:
        return [(0, len(text))]
    size, chosen = max(1, int(_FILLED * n_tokens)), [0]
    while len(starts) - chosen[-1] > size:
        first, last = chosen[-1], chosen[-1] + size
        # In the second half, so that passages do not become short.
        places = range(last, first + size // 2, -1)
        chosen.append(
            next((p for p in places if text.endswith(_SENTENCE_ENDS, 0, starts[p])), None)
            or next((p for p in places if text.endswith(_WORD_ENDS, 0, starts[p])), last)
        )
    edges = [*(starts[piece] for piece in chosen), len(text)]
    pairs = pairwise(edges)
    return [(start, start + len(text[start:end].rstrip())) for start, end in pairs]
