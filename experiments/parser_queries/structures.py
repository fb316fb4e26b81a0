"""Labelled queries from structures.toml: nested trees, exclusions in compounds, questions.

Besides, queries in everyday cue words (everyday.toml), and words around any query, which belong to
no operand.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from boolattn.data.sentences import LabelledQuery
from boolattn.query.parsed_query import ParsedQuery
from boolattn.query.syntax import parse
from boolattn.query.tree import atoms
from experiments.labels import label_tree
from experiments.parser_queries.generator import QueryWriter
from experiments.parser_queries.natural import bare_phrases
from experiments.parser_queries.wordings import fill_line, filled_line, lines, requests, table

#: Parts of the table whose lines have a tree.
PARTS = ("nested", "negation", "joining", "long")
#: How often a request precedes a noun phrase, and how often words precede or follow a query.
_REQUEST, _BEFORE, _AFTER = 0.3, 0.6, 0.6
_MAX_DRAWS = 50
_FULL_STOPS = (".", "?", "!")
#: A bare phrase in everyday.toml; its longest, and most of them in a line.
_PHRASE = re.compile(r"\{W\d\}")
_MOST_WORDS, _MOST_PHRASES = 5, 4


def structured_queries(
    part: str, n: int, seed: int, *, held_out: bool = False
) -> Iterator[LabelledQuery]:
    """Generate queries of one of the parts."""
    rng = random.Random(f"{part} {seed} {held_out}")
    writer = QueryWriter(rng, held_out=False)
    key = "held_out" if held_out else "train"
    for _ in range(n):
        yield structured_query(rng.choice(lines(part, key)), writer)


def structured_query(line: str, writer: QueryWriter, lists: str = "structures") -> LabelledQuery:
    """Fill a line: the formula of its tree, and a skeleton with words of one of the tables."""
    formula, _, rest = line.partition(" = ")
    tree = parse(formula)
    n_operands = len({atom.text for atom in atoms(tree)})
    for _ in range(_MAX_DRAWS):
        skeleton = fill_line(rest, writer.rng, lists)
        is_noun_phrase = skeleton.startswith(("<", "("))
        if is_noun_phrase and writer.rng.random() < _REQUEST:
            skeleton = writer.rng.choice(requests().train).replace("*", skeleton)
        content = writer.content()
        try:
            phrase = writer.written(skeleton, content, n_operands, keeps_commas=True)
        except KeyError:
            # The content has no such words.
            continue
        if labelled := label_tree(phrase.text, tree, phrase.operands):
            return labelled
    raise ValueError(f"cannot fill the wording {line!r}")


def everyday_queries(n: int, seed: int, source: str = "everyday") -> Iterator[LabelledQuery]:
    """Generate queries in everyday cue words, half of them between bare phrases.

    With ``source`` "listed" they are lists and heads of two nouns, from letters.toml.
    """
    rng = random.Random(f"{source} {seed}")
    writer, phrases = QueryWriter(rng, held_out=False), bare_phrases(_MOST_WORDS)
    lists = {"listed": "letters", "spoken": "typed"}.get(source, source)
    wordings = table(lists)[source]["train"].strip().split("\n")
    for _ in range(n):
        drawn = ["", *rng.sample(phrases, _MOST_PHRASES)]
        pieces = _PHRASE.split(rng.choice(wordings))
        line = "".join(phrase + part for phrase, part in zip(drawn, pieces, strict=False))
        query = structured_query(line, writer, lists)
        yield plain_query(query.text) if query.parsed.is_plain else query


def question_queries(n: int, seed: int, *, held_out: bool = False) -> Iterator[LabelledQuery]:
    """Generate questions and titles with cue words that are one operand."""
    rng = random.Random(f"questions {seed} {held_out}")
    key = "held_out" if held_out else "train"
    for _ in range(n):
        text = filled_line("questions", key, rng)
        if rng.random() < 0.3:
            text = text.lower()
        yield plain_query(text.rstrip("?") if rng.random() < 0.3 else text)


def plain_query(text: str) -> LabelledQuery:
    """Label a whole text as one operand."""
    return LabelledQuery(text, ParsedQuery((((0, len(text.rstrip(" .?!"))),),)))


def surrounded(queries: Iterable[LabelledQuery], seed: int) -> Iterator[LabelledQuery]:
    """Put words before and after queries."""
    rng = random.Random(f"around {seed}")
    for query in queries:
        text, spans = query.text, query.parsed.operands
        if rng.random() < _BEFORE:
            before = f"{rng.choice(lines('around', 'before'))} "
            spans = tuple(
                tuple((start + len(before), end + len(before)) for start, end in operand)
                for operand in spans
            )
            text = before + text
        if rng.random() < _AFTER:
            after = rng.choice(lines("around", "after"))
            is_sign = after[0] in ".,?!"
            if is_sign and text.endswith(_FULL_STOPS):
                after = after.lstrip(".,?!")
            text += after if is_sign else f" {after}"
        yield LabelledQuery(text.rstrip(), replace(query.parsed, operands=spans))
