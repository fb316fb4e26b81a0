"""Boolean sentences and queries with labels, for pretraining and for the query parser.

Sentences have operators, cues and scopes. Their generator is in ``experiments/`` of a checkout and
not in the wheel; SetBERT's are read from its files. A file of labelled queries has JSON lines, one
query each: ``{"text", "operands", "negated", "gaps", "source"}``. ``operands`` has the character
spans of each operand, in text order: ``[[[0, 8], [24, 31]]]`` is one operand of two spans.
``negated`` has the numbers of the negated ones, ``gaps`` what joins each two: ``["or2", "and1"]``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from boolattn.errors import ConfigError, DataError
from boolattn.files import checkout_module
from boolattn.jsonl import find_file, read_jsonl
from boolattn.query.parsed_query import GAPS, ParsedQuery, Spans
from boolattn.query.tokens import find_cues
from boolattn.query.tree import OPERATORS, Operator
from boolattn.settings import check_types, checked, limited

Span = tuple[int, int]

#: Added to the seed of evaluation sentences, so that they differ from those of training.
HELD_OUT_SEED = 1_000_003
#: The paper's equivalents of SetBERT's cues, and how often one replaces its cue (*ours*).
_EQUIVALENTS = {"and": ("as well as", "are also", "including"), "not": ("other than", "excluding")}
_REPLACED = 0.5
_FIELDS = {"text": str, "operands": list, "negated": list, "gaps": list, "source": str}
_GAPS = {f"{gap.operator.value}{gap.level}": gap for gap in GAPS}


@dataclass(frozen=True, slots=True)
class CueSpan:
    """A cue's characters in a text."""

    operator: Operator
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ScopeSpans:
    """The characters an operator acts on.

    For AND and OR the operands they join; for NOT the negated operand without words that it shares
    with a positive one: in "moths of Borneo but not Sumatra" the scope is "Sumatra".
    """

    operator: Operator
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence; all labels are character spans."""

    text: str
    template: str  # its structure
    operators: tuple[Operator, ...]  # operators in the order AND, OR, NOT
    cues: tuple[CueSpan, ...]  # words that express the operators; an "and" inside a name is none
    scopes: tuple[ScopeSpans, ...]  # one for each operator
    operands: tuple[tuple[Span, ...], ...]  # the spans of each operand


@dataclass(frozen=True, slots=True)
class Triplet:
    """An anchor, the same logic in other words, and another logic over the same operands."""

    anchor: Sentence
    positive: Sentence
    negative: Sentence


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Shares of the kinds of sentences."""

    unseen: bool = False  # use the wordings held out of training instead of those for training
    #: How often an equivalent replaces a plain cue ("or", "but not")
    replace: float = limited(0.5, least=0, most=1)
    plain: float = limited(0.15, least=0, most=1)  # share without operators
    names: float = limited(0.1, least=0, most=1)  # share with a name like "Romeo and Juliet"
    taxa: float = limited(0.6, least=0, most=1)  # of the others, share about taxa and places
    varied: float = limited(0.0, least=0, most=1)  # share with the wordings of varied.toml
    varied_held_out: bool = False  # of varied.toml, use the held-out half

    def __post_init__(self) -> None:
        check_types(self)
        if self.unseen and self.varied:
            raise ConfigError("unseen and varied are two sets of wordings: choose one")


@checked
def generate(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[Sentence]:
    """Generate sentences; equal arguments give equal sentences on every machine."""
    return cast("Iterator[Sentence]", _generator().generate(n, seed, mixture))


@checked
def generate_triplets(n: int, seed: int, mixture: Mixture | None = None) -> Iterator[Triplet]:
    """Generate triplets; the negative has the anchor's operands and another structure."""
    return cast("Iterator[Triplet]", _generator().generate_triplets(n, seed, mixture))


def _generator() -> Any:  # noqa: ANN401 - a module outside the wheel
    return checkout_module("experiments.sentences", "Boolean sentences are generated")


def read_setbert(
    folder: Path, seed: int, *, is_test: bool = False
) -> Iterator[tuple[Sentence, Triplet | None]]:
    """Read ``and.jsonl``, ``or.jsonl`` and ``not.jsonl``, of which the first 80% are for training.

    They are labelled as in the paper: cues are replaced by equivalents, and found as words. There
    are no scopes, and no triplet where a sentence has none of the same or none of another meaning.
    """
    rng = random.Random(f"setbert {seed}")
    for operator in OPERATORS:
        remedy = "make it with the scripts of quanmai/SetBERT"
        path = find_file(folder, f"{operator.value}.jsonl", remedy=remedy)
        rows = list(read_jsonl(path, {"G": str, "P": list, "N": list}))
        cut = int(len(rows) * 0.8)
        for number, row in rows[cut:] if is_test else rows[:cut]:
            if not all(isinstance(text, str) for text in [*row["P"], *row["N"]]):
                raise DataError(f"{path}:{number}: 'P' and 'N' must be lists of sentences")
            anchor, triplet = _label(row["G"], rng, operator), None
            if row["P"] and row["N"]:
                positive = _label(rng.choice(row["P"]), rng, operator)
                triplet = Triplet(anchor, positive, _label(rng.choice(row["N"]), rng))
            yield anchor, triplet


def _label(text: str, rng: random.Random, *known: Operator) -> Sentence:
    def replace(cue: re.Match[str]) -> str:
        others = _EQUIVALENTS[cue.group().lower()]
        return rng.choice(others) if rng.random() < _REPLACED else cue.group()

    text = re.sub(r"(?i)\b(and|not)\b", replace, text)
    cues = tuple(CueSpan(cue.operator, cue.start, cue.end) for cue in find_cues(text))
    used = {*known, *(cue.operator for cue in cues)}
    operators = tuple(operator for operator in OPERATORS if operator in used)
    return Sentence(text=text, template="", operators=operators, cues=cues, scopes=(), operands=())


@dataclass(frozen=True, slots=True)
class LabelledQuery:
    """A text and its parse."""

    text: str
    parsed: ParsedQuery


def read_labelled_queries(path: Path) -> dict[str, list[LabelledQuery]]:
    """Read labelled queries, by source and in file order."""
    queries: dict[str, list[LabelledQuery]] = {}
    for number, row in read_jsonl(path, _FIELDS):
        where = f"{path}:{number}"
        if unknown := [gap for gap in row["gaps"] if gap not in _GAPS]:
            raise DataError(f"{where}: no gap is {unknown[0]!r}; known: {', '.join(_GAPS)}")
        operands = tuple(_spans(spans, len(row["text"]), where) for spans in row["operands"])
        negated = tuple(at in row["negated"] for at in range(len(operands)))
        if len(row["gaps"]) != len(operands) - 1 or sum(negated) != len(row["negated"]):
            raise DataError(f"{where}: 'negated' or 'gaps' do not fit {len(operands)} operands")
        parsed = ParsedQuery(operands, negated, tuple(_GAPS[gap] for gap in row["gaps"]))
        queries.setdefault(row["source"], []).append(LabelledQuery(row["text"], parsed))
    return queries


def _spans(operand: Any, length: int, where: str) -> Spans:  # noqa: ANN401 - parsed JSON
    """Check the spans of one operand: pairs of character positions inside the text."""
    is_pairs = isinstance(operand, list) and all(
        isinstance(span, list) and [type(end) for end in span] == [int, int] for span in operand
    )
    if not is_pairs or not operand:
        raise DataError(f"{where}: an operand must be a list of [start, end], not {operand!r}")
    for start, end in operand:
        if not 0 <= start < end <= length:
            raise DataError(f"{where}: [{start}, {end}] is no span of a text of {length} letters")
    return tuple((start, end) for start, end in operand)
