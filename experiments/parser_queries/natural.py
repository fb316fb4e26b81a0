"""Natural queries (natural.txt), written one by one, and the same frames filled with other words.

They contain no word of the taxa benchmark's unseen wordings. A tenth is held out for model
selection.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.errors import DataError
from boolattn.query.tree import Operator
from experiments.labels import LABEL, form_tree, label_tree, parse_labelled
from experiments.parser_queries.wordings import table

if TYPE_CHECKING:
    from boolattn.data.sentences import LabelledQuery

_FORM = re.compile(r"(and|or|-):([1-6]):([0-5])")
_FUNCTION_WORDS = frozenset(table("frames")["function_words"].split())
#: How often a span is replaced, and how often from the same domain.
_REPLACED, _SAME_DOMAIN = 0.75, 0.5
#: How often a frame comes from a benchmark, and an operand has a cue word inside.
_FRAMES, _WITH_CUE = 0.6, 0.15
_PLAIN = "-:1:0"
#: One query in ten is held out.
_HELD_OUT = 10
_FEW_WORDS = 2


@dataclass(frozen=True, slots=True)
class Natural:
    """One query."""

    form: str  # joiner, number of positive operands, number of negated ones: "or:2:1"
    domain: str  # its topic ("taxa", "films", "law")
    markup: str  # the text with its operands labelled

    @lru_cache(maxsize=1 << 15)  # noqa: B019 - equal queries share it
    def labelled(self) -> LabelledQuery:
        """Return the labelled query."""
        text, operands = parse_labelled(self.markup)
        joiner, n_positive, n_negated = self.form.split(":")
        tree = form_tree(int(n_positive), int(n_negated), Operator(joiner.replace("-", "and")))
        if labelled := label_tree(text, tree, operands):
            return labelled
        raise DataError(f"the operands of {text!r} cannot be joined as {self.form}")


@lru_cache(maxsize=2)
def natural_queries(*, held_out: bool = False) -> tuple[Natural, ...]:
    """Return the queries for training, or those held out for model selection."""
    source = Path(__file__).with_name("natural.txt").read_text(encoding="utf-8")
    return tuple(
        query
        for query in parse_natural(source.splitlines(), "natural.txt")
        if (zlib.crc32(query.markup.encode()) % _HELD_OUT == 0) == held_out
    )


def parse_natural(lines: Iterable[str], where: str = "the text") -> list[Natural]:
    r"""Parse lines of form, domain and labelled text, separated by tabs.

    >>> [one] = parse_natural(["-:1:1\ttaxa\t<01|moths> <0|of Borneo>, none <1|of Java>"])
    >>> print(one.labelled().parsed.tree(one.labelled().text))
    And(parts=(Atom(text='moths of Borneo'), Not(part=Atom(text='moths of Java'))))
    """
    queries = []
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        form, _, rest = line.partition("\t")
        domain, tab, markup = rest.partition("\t")
        if not tab or not (counts := _FORM.fullmatch(form)):
            raise DataError(f"{where}:{number}: not a known form, a domain and a labelled text")
        text, operands = parse_labelled(markup)
        n_operands = int(counts[2]) + int(counts[3])
        if len(operands) != n_operands or not all(operands) or re.search("[<>]", text):
            raise DataError(f"{where}:{number}: the labels do not fit the form {form}")
        if (counts[1] == "-") != (counts[2] == "1"):
            raise DataError(f"{where}:{number}: {form} must name the joiner of the operands")
        queries.append(Natural(form, domain, markup))
    return queries


def fill_natural(n: int, seed: int) -> Iterator[LabelledQuery]:
    """Yield each natural query, then refilled ones, ``n`` in all."""
    queries = natural_queries()
    rng = random.Random(f"natural {seed}")
    fillings = _Fillings(queries)
    for index in range(n):
        if index < len(queries):
            yield queries[index].labelled()
        else:
            yield fillings.refill(rng.choice(queries), rng).labelled()


def short_queries(n: int, seed: int) -> Iterator[LabelledQuery]:
    """Yield queries of a few words, from short frames and operands of one or two words."""
    phrases, frames = bare_phrases(_FEW_WORDS), table("frames")["short"].strip().split("\n")
    rng = random.Random(f"short {seed}")
    for _ in range(n):
        form, _, frame = rng.choice(frames).partition("\t")
        for letter, text in zip("ABC", rng.sample(phrases, 3), strict=True):
            frame = frame.replace(f"|{letter}>", f"|{text}>")
        yield Natural(form, "short", frame).labelled()


@cache
def bare_phrases(most_words: int) -> tuple[str, ...]:
    """Return the phrases that are one operand's own, without a function word before them."""
    found = {
        text
        for query in natural_queries()
        for owners, text in LABEL.findall(query.markup)
        if _kind(owners, text) == ("", False) and len(text.split()) <= most_words
    }
    return tuple(sorted(found))


def as_natural(query: LabelledQuery, domain: str) -> Natural | None:
    """Turn a labelled query into markup; ``None`` for a nested one, or one with markup signs."""
    parsed, text = query.parsed, query.text
    n_negated = sum(parsed.is_negated)
    joiners = {gap.operator for gap in parsed.gaps if gap.level == (1 + bool(n_negated))}
    if len(parsed.operands) - n_negated == 1:
        joiner = "-"
    elif n_negated and not joiners:
        joiner = "and"
    else:
        joiner = "or" if Operator.OR in {gap.operator for gap in parsed.gaps} else "and"
    order = sorted(range(len(parsed.operands)), key=lambda at: parsed.is_negated[at])
    owners = [""] * len(text)
    for number, position in enumerate(order):
        for start, end in parsed.operands[position]:
            for at in range(start, end):
                owners[at] += str(number)
    markup, start = "", 0
    for end in range(1, len(text) + 1):
        if end == len(text) or owners[end] != owners[start]:
            piece = text[start:end]
            inner = piece.strip()
            if owners[start] and inner:
                piece = piece.replace(inner, f"<{owners[start]}|{inner}>")
            markup += piece
            start = end
    made = Natural(f"{joiner}:{len(order) - n_negated}:{n_negated}", domain, markup)
    if re.search(r"[<>|]", text) or made.labelled().parsed.structure != parsed.structure:
        return None
    return made


def refilled_queries(
    frames: Sequence[Natural], phrases: Sequence[str], n: int, seed: int
) -> Iterator[LabelledQuery]:
    """Yield queries of benchmarks and natural ones with exchanged operands.

    Some operands are phrases that contain a cue word.
    """
    rng = random.Random(f"refilled {seed}")
    natural = natural_queries()
    fillings = _Fillings([*natural, *frames], phrases)
    for _ in range(n):
        frame = rng.choice(frames if frames and rng.random() < _FRAMES else natural)
        yield fillings.refill(frame, rng).labelled()


class _Fillings:
    """The operand words of natural queries, by the kind of span that they can replace."""

    def __init__(self, queries: Sequence[Natural], phrases: Sequence[str] = ()) -> None:
        self._phrases = phrases
        everywhere: dict[tuple[str, bool], list[str]] = {}
        by_domain: dict[tuple[str, str, bool], list[str]] = {}
        for query in queries:
            for owners, text in LABEL.findall(query.markup):
                key = _kind(owners, text)
                everywhere.setdefault(key, []).append(text)
                by_domain.setdefault((query.domain, *key), []).append(text)
        self._everywhere: Mapping[tuple[str, bool], list[str]] = everywhere
        self._by_domain: Mapping[tuple[str, str, bool], list[str]] = by_domain

    def refill(self, query: Natural, rng: random.Random) -> Natural:
        """Replace operand words and keep the frame.

        A word is not drawn twice, but one that stays may equal an earlier draw: one query in 180
        names something twice.
        """
        used: set[str] = set()

        def other(match: re.Match[str]) -> str:
            owners, text = match[1], match[2]
            key = _kind(owners, text)
            if rng.random() < _REPLACED:
                pool = self._everywhere[key]
                if rng.random() < _SAME_DOMAIN:
                    pool = self._by_domain[(query.domain, *key)]
                drawn = rng.choice(pool)
                if self._phrases and key == ("", False) and rng.random() < _WITH_CUE:
                    phrase = rng.choice(self._phrases)
                    # "drink or paper development" alone looks like an OR.
                    drawn = drawn if query.form == _PLAIN and " or " in phrase else phrase
                if drawn.lower() not in used:
                    text = drawn
            used.add(text.lower())
            return f"<{owners}|{text}>"

        return Natural(query.form, query.domain, LABEL.sub(other, query.markup))


@cache
def _kind(owners: str, text: str) -> tuple[str, bool]:
    """Return the kind of a span: its function word, and whether operands share it."""
    first = text.split()[0].lower()
    return (first if first in _FUNCTION_WORDS else ""), len(owners) > 1
