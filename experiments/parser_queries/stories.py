"""Labelled queries from stories.toml and letters.toml: long requests, and descriptions.

A request is joined from parts: words about its writer, what to find, what to leave out, more words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from boolattn.query.syntax import parse
from experiments.labels import label_tree
from experiments.parser_queries.generator import QueryWriter
from experiments.parser_queries.structures import plain_query
from experiments.parser_queries.wordings import fill_line, table

if TYPE_CHECKING:
    from boolattn.data.sentences import LabelledQuery

#: Parts with the positive operands: their tree, how many they are, and their weight.
_ASKS = {
    "plain": ("0", 1, 10),
    "and": ("0 AND 1", 2, 2),
    "or": ("(0 OR 1)", 2, 2),
    "or3": ("(0 OR 1 OR 2)", 3, 1),
    "and_or": ("0 AND (1 OR 2)", 3, 1),
    "or_and": ("(0 OR 1) AND 2", 3, 1),
}
#: Exclusions: how many operands each has, and its weight; "first" stands before the request.
_EXCLUSIONS = {"": (0, 5), "one": (1, 5), "two": (2, 2), "first": (1, 1)}
#: The same for letters, of which more have no exclusion.
_FEWER = {"": (0, 8), "one": (1, 4), "two": (2, 1), "first": (1, 1)}
#: An exclusion that elides the head of the request.
_ELLIPTIC = re.compile(r"<[xy]\|\{[PAV]")
_HELD_OUT = 8
_BEFORE, _AFTER, _MORE = 0.7, 0.6, 0.25
#: How often a sentence of a document stands for words of a letter.
_QUOTED = 0.35


def story_queries(n: int, seed: int, *, held_out: bool = False) -> Iterator[LabelledQuery]:
    """Generate long requests; with ``held_out`` from the lines held out of training."""
    writer = QueryWriter(random.Random(f"stories {seed} {held_out}"), held_out=False)
    yield from _stories(n, writer, ("stories",), _EXCLUSIONS, (), held_out=held_out)


def letter_queries(
    n: int, seed: int, passages: Sequence[str] = (), *, held_out: bool = False
) -> Iterator[LabelledQuery]:
    """Generate long requests whose other sentences hold everyday cue words.

    Some of these sentences are ``passages``, taken from documents.
    """
    writer = QueryWriter(random.Random(f"letters {seed} {held_out}"), held_out=False)
    tables = ("stories", "letters")
    yield from _stories(n, writer, tables, _FEWER, passages, held_out=held_out)


def plot_queries(n: int, seed: int, *, held_out: bool = False) -> Iterator[LabelledQuery]:
    """Generate descriptions of one thing, and news; each is one operand."""
    rng = random.Random(f"plots {seed} {held_out}")
    for _ in range(n):
        line = _line("plots", "any", rng, ("stories",), held_out=held_out)
        text = fill_line(line, rng, "stories")
        yield plain_query(text[0].upper() + text[1:] if rng.random() < 0.3 else text)


def _stories(
    n: int,
    writer: QueryWriter,
    tables: Sequence[str],
    exclusions: Mapping[str, tuple[int, int]],
    passages: Sequence[str],
    *,
    held_out: bool,
) -> Iterator[LabelledQuery]:
    rng, n_written = writer.rng, 0

    def line(part: str, key: str) -> str:
        if passages and part == "words" and rng.random() < _QUOTED:
            return rng.choice(passages)
        return fill_line(_line(part, key, rng, tables, held_out=held_out), rng)

    while n_written < n:
        if query := _story(writer, line, exclusions):
            n_written += 1
            yield query


def _story(
    writer: QueryWriter, line: Callable[[str, str], str], exclusions: Mapping[str, tuple[int, int]]
) -> LabelledQuery | None:
    """Join the parts of one request; ``None`` where the content has no such words."""
    rng = writer.rng
    [ask] = rng.choices([*_ASKS], [weight for *_, weight in _ASKS.values()])
    [exclusion] = rng.choices([*exclusions], [weight for _, weight in exclusions.values()])
    formula, n_positive, _ = _ASKS[ask]
    n_negated, _ = exclusions[exclusion]
    sentences = [line("ask", ask)]
    if exclusion:
        sentences.insert(0 if exclusion == "first" else 1, line("not", exclusion))
    if rng.random() < _BEFORE:
        sentences.insert(0, line("words", "before"))
    for chance in (_AFTER, _MORE):
        if rng.random() < chance:
            sentences.append(line("words", "after"))
    skeleton = " ".join(sentences)
    owners = "".join(map(str, range(n_positive)))
    negated = [str(n_positive + at) for at in range(n_negated)]
    shared = owners + "".join(negated) if _ELLIPTIC.search(skeleton) else owners
    if shared != owners and "<s|" not in skeleton:
        return None
    for sign, numbers in zip("sxy", (shared, *negated), strict=False):
        skeleton = skeleton.replace(f"<{sign}|", f"<{numbers}|")
    tree = parse(" AND NOT ".join([formula, *negated]))
    try:
        phrase = writer.written(skeleton, writer.content(), n_positive + n_negated)
    except (KeyError, IndexError):
        return None
    return label_tree(phrase.text, tree, phrase.operands)


def _line(part: str, key: str, rng: random.Random, tables: Sequence[str], *, held_out: bool) -> str:
    lines: list[str] = [
        line
        for name in tables
        for at, line in enumerate(table(name)[part][key].strip().split("\n"))
        if (at % _HELD_OUT == 4) == held_out
    ]
    return rng.choice(lines)
