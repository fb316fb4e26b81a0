"""Token labels from character spans; works with the offsets of any fast tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def span_labels(
    spans: Iterable[tuple[int, int]], offsets: Sequence[tuple[int, int]], text: str = ""
) -> list[bool]:
    """Label the tokens that overlap any of the character spans.

    Special tokens have the empty offset ``(0, 0)`` and never overlap. Byte-level tokenizers count
    the space before a word as part of its token; with ``text`` that space is ignored.

    >>> span_labels([(6, 9)], [(0, 0), (0, 5), (6, 9), (9, 12), (0, 0)])
    [False, False, True, False, False]
    """
    spans = list(spans)
    labels = []
    for start, end in offsets:
        while start < end <= len(text) and text[start].isspace():
            start += 1
        labels.append(any(start < right and left < end for left, right in spans))
    return labels
