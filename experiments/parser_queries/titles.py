"""Real names, titles and sentences with cue words, and queries about them.

They come from corpora of training data. A name of the test set of names with cue words is not
used. A text with a word of the held-out wordings is used as a passage only.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from boolattn.data.sentences import LabelledQuery
from boolattn.jsonl import read_jsonl
from boolattn.query.tree import Operator
from experiments.labels import form_tree, label_tree, parse_labelled
from experiments.parser_queries.structures import plain_query
from experiments.parser_queries.wordings import BANNED, table
from experiments.parsing.queries import cue_word_names, validation_queries

_CUE = re.compile(
    r"\b(?:and|or|not|no|nor|without|but|except|neither|either|non|both|excluding|also)\b|&|n't\b",
    re.IGNORECASE,
)
_LETTER = re.compile(r"\b[ABC](?=>)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
#: Sentences are drawn from one document in so many.
_SENTENCES = 8
_MIN_WORDS, _MAX_WORDS, _MAX_TITLE = 4, 30, 12


def read_texts(paths: Iterable[Path]) -> tuple[list[str], list[str], list[str]]:
    """Read the titles, the sentences and the passages of corpora that may be used in training.

    Passages are the sentences with a word of the held-out wordings.
    """
    names = {query.name.lower() for query in cue_word_names()}
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names))
    asked = [query.labelled.text.lower() for query in validation_queries() if query.kind == "name"]
    titles: dict[str, None] = {}
    sentences: dict[str, None] = {}
    passages: dict[str, None] = {}
    for path in paths:
        for _, row in read_jsonl(path, {}):
            title = re.sub(r"\s*\([^()]*\)$", "", str(row.get("title") or "")).strip()
            is_drawn = zlib.crc32(title.encode()) % _SENTENCES == 0
            first = _SENTENCE.split(str(row.get("text") or "")[:600])[: 2 * is_drawn]
            for kind, text in ((titles, title), *((sentences, sentence) for sentence in first)):
                # Every name of the test and validation sets has a cue word.
                is_known = _CUE.search(text) and (
                    pattern.search(lower := text.lower()) or any(lower in query for query in asked)
                )
                if text and not is_known and not re.search(r"[<>|\n]", text):
                    if not BANNED.search(text):
                        kind[text] = None
                    elif kind is sentences:
                        passages[text] = None
    return list(titles), list(sentences), list(passages)


def title_queries(titles: Sequence[str], n: int, seed: int) -> Iterator[LabelledQuery]:
    """Yield titles, three of four with a cue word, bare or in a question about them."""
    rng = random.Random(f"titles {seed}")
    short = [title for title in titles if len(title.split()) <= _MAX_TITLE]
    with_cue = [title for title in short if _CUE.search(title)] or short
    carriers = [carrier for rows in table("plain")["name_carriers"].values() for carrier in rows]
    for _ in range(n):
        name = rng.choice(with_cue if rng.random() < 0.75 else short)
        draw = rng.random()
        if draw < 0.45:
            text, _ = parse_labelled(rng.choice(carriers).replace("{E}", name))
            yield plain_query(_typed(text, rng))
        else:
            yield plain_query(_typed(name, rng))


def queries_about_titles(titles: Sequence[str], n: int, seed: int) -> Iterator[LabelledQuery]:
    """Yield queries with operators whose operands are titles, half of them with a cue word."""
    rng = random.Random(f"about titles {seed}")
    short = [title for title in titles if len(title.split()) <= _MAX_TITLE // 2]
    with_cue = [title for title in short if _CUE.search(title)] or short
    frames, n_written = table("frames")["titles"].strip().split("\n"), 0
    while n_written < n:
        form, _, frame = rng.choice(frames).partition("\t")
        joiner, n_positive, n_negated = form.split(":")
        drawn = {c: rng.choice(with_cue if rng.random() < 0.5 else short) for c in "ABC"}
        frame = _LETTER.sub(lambda match: drawn[match[0]], frame)  # noqa: B023 - called at once
        text, operands = parse_labelled(frame)
        tree = form_tree(int(n_positive), int(n_negated), Operator(joiner))
        if labelled := label_tree(text, tree, operands):
            n_written += 1
            yield LabelledQuery(_typed(text, rng), labelled.parsed)


def sentence_texts(sentences: Sequence[str], n: int, seed: int) -> Iterator[LabelledQuery]:
    """Yield sentences of documents, three of four with a cue word, each as one operand."""
    rng = random.Random(f"sentences {seed}")
    fitting = [s for s in sentences if _MIN_WORDS <= len(s.split()) <= _MAX_WORDS]
    with_cue = [sentence for sentence in fitting if _CUE.search(sentence)] or fitting
    for _ in range(n):
        yield plain_query(_typed(rng.choice(with_cue if rng.random() < 0.75 else fitting), rng))


def _typed(text: str, rng: random.Random) -> str:
    lower = text.lower()
    return lower if rng.random() < 0.5 and len(lower) == len(text) else text
