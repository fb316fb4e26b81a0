"""Labelled queries for the parser, their batches, and the operands of training queries."""

from __future__ import annotations

import logging
from itertools import accumulate, cycle, pairwise, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from boolattn.data.labelled_queries import read_labelled_queries
from boolattn.encoder.parser_head import N_SLOTS, ParserLabels, make_parser_labels, slots_of
from boolattn.errors import ConfigError
from boolattn.logic.elision import elided_names
from boolattn.logic.operators import OPERATORS, Operator
from boolattn.logic.parsed_query import label_template, words
from boolattn.logic.tree import operators_of
from boolattn.parsing.decoding import POSITIVE
from boolattn.training.batches.sampling import Collator
from boolattn.training.batches.tokens import Features, Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Query
    from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery
    from boolattn.training.batches.sampling import Example
    from boolattn.training.settings import ComposeSettings, Preset

logger = logging.getLogger(__name__)

#: Purposes of random generators, so that no two share draws.
_TEXTS, _ELIDED = 5, 11
#: Sources of a file that the parser is trained on; the setting ``n_<source>`` says on how many.
SOURCES = ("generated", "sentences", "natural", "short")
#: Source whose rows label training queries of the same text.
PARAPHRASES = "paraphrases"
_COMMAND = "python -m experiments.parser_queries --out FILE"


class ParserSources(NamedTuple):
    """What a parser is trained on."""

    labels: dict[str, LabelledQuery]  # Of the training queries, by text
    sources: list[list[LabelledQuery]]  # The labelled training queries, then each source's


def read_parser_sources(
    queries: Sequence[Query], path: Path | None, settings: ComposeSettings
) -> ParserSources:
    """Label training queries by their operand spans, and read a file's, as many as are set."""
    wanted = {name: int(getattr(settings, f"n_{name}")) for name in SOURCES}
    found = read_labelled_queries(path) if path else {}
    for name, count in wanted.items():
        if count and name not in found:
            where = f"{path} has no {name!r} queries" if path else "no file of them was given"
            raise ConfigError(
                f"compose.n_{name}={count} asks for parser queries, and {where}; make a file with "
                f"{_COMMAND} and name it with --parser-queries FILE, or set compose.n_{name}=0"
            )
    labels: dict[str, LabelledQuery] = {}
    unlabelled = set()
    for query in queries:
        spans = [operand.spans for operand in query.operands]
        if spans and (labelled := label_template(query.text, query.template, spans)):
            labels[query.text] = labelled
        else:
            unlabelled.add(query.text)
    labels |= {row.text: row for row in found.get(PARAPHRASES, ()) if row.text in unlabelled}
    sources = [list(labels.values()), *(found.get(n, [])[:count] for n, count in wanted.items())]
    counts = dict(zip(("training queries", *SOURCES), map(len, sources), strict=True))
    logger.info("parser queries: %s", ", ".join(f"{n} {name}" for name, n in counts.items()))
    return ParserSources(labels, sources)


class ParserTexts:
    """Training queries, then labelled texts of several sources, as tokens and parser labels.

    The tokenizer is a fast one: labels are given by character. ``labels`` are those of the queries
    that have any, by text.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        sources: Sequence[Sequence[LabelledQuery]],
        *,
        length: int,
        n_slots: int = N_SLOTS,
        queries: Sequence[str] = (),
        labels: Mapping[str, LabelledQuery] | None = None,
    ) -> None:
        labels = labels or {}
        own = [labels[text].parsed if text in labels else None for text in queries]
        others = [item for source in sources for item in source]
        self.texts = [*queries, *(item.text for item in others)]
        self.parsed: list[ParsedQuery | None] = [*own, *(item.parsed for item in others)]
        starts = accumulate(map(len, sources), initial=len(queries))
        self.sources = [rows for rows in starmap(range, pairwise(starts)) if len(rows)]
        self.n_slots = n_slots
        self.tokens = Tokens(tokenizer, self.texts, length)
        self.tokenizer, self._length = tokenizer, length
        self._labels: dict[int, ParserLabels] = {}

    def draw(self, rng: np.random.Generator, count: int) -> list[int]:
        """Draw labelled texts, as many from each source, however large it is."""
        if not self.sources:
            return []
        return [
            source[int(rng.integers(len(source)))]
            for source, _ in zip(cycle(self.sources), range(count), strict=False)
        ]

    def labels(self, rows: Sequence[int], n_tokens: int) -> tuple[ParserLabels, Tensor]:
        """Return the labels of some texts, and which texts have any."""
        self._fill(rows)
        tags = torch.zeros(len(rows), n_tokens, self.n_slots)
        roles = torch.zeros(len(rows), self.n_slots, dtype=torch.int64)
        is_or = torch.zeros(len(rows))
        is_known = torch.zeros(len(rows), dtype=torch.bool)
        for place, row in enumerate(rows):
            if (own := self._labels.get(row)) is not None:
                tags[place, : own.tags.shape[1]] = own.tags[0]
                roles[place], is_or[place], is_known[place] = own.roles[0], own.is_or[0], True
        return ParserLabels(tags, roles, is_or), is_known

    def _fill(self, rows: Sequence[int]) -> None:
        missing = {
            row: parsed
            for row in rows
            if row not in self._labels and (parsed := self.parsed[row]) is not None
        }
        if not missing:
            return
        offsets = self.tokenizer(
            [self.texts[row] for row in missing],
            truncation=True,
            max_length=self._length,
            return_offsets_mapping=True,
        )["offset_mapping"]
        for (row, parsed), own in zip(missing.items(), offsets, strict=True):
            self._labels[row] = make_parser_labels([parsed], [own], self.n_slots)


class ComposingCollator(Collator):
    """Adds to a step its queries' operands, and labelled texts for the parser.

    Arguments as in ``Collator``, but the settings, and for the queries all texts.
    """

    def __init__(
        self,
        texts: ParserTexts,
        rows: dict[str, int],
        documents: Tokens,
        *,
        preset: Preset,
        **more: Any,
    ) -> None:
        in_batch = preset.train.use_in_batch
        super().__init__(texts.tokens, rows, documents, use_in_batch=in_batch, **more)
        self.texts = texts
        self.seed = preset.train.seed
        self.settings = preset.compose
        self.operands = _Operands(texts, sorted(rows.values()), preset.model.query_length)
        self._n_experts = len(preset.plugin.operators) if preset.model.use_plugin else 0

    def query_features(
        self, examples: Sequence[Example], step: int, process: int, n_processes: int
    ) -> Features:
        """Return queries and texts to parse, their labels, and the queries' operands."""
        own = [self.rows[example.id] for example in examples]
        rng = np.random.default_rng([self.seed, _TEXTS, step, process])
        drawn = self.texts.draw(rng, self.settings.n_parser_texts // n_processes)
        queries = self.texts.tokens.features([*own, *drawn])
        labels, is_known = self.texts.labels([*own, *drawn], queries["input_ids"].shape[1])
        operators = [example.operators for example in examples]
        operators += [operator_labels(self.texts.parsed[row]) for row in drawn]
        self.add_labels(queries, operators)
        shares = np.random.default_rng([self.seed, _ELIDED, step, process]).random(len(own))
        is_elided = (shares < self.settings.elided_share).tolist()
        operands, slots = self.operands.features(own, is_elided)
        if self._n_experts:
            # An operand is one set: an operator word in its name opens no expert.
            operands["operators"] = torch.zeros(len(operands["input_ids"]), self._n_experts)
        return {
            "queries": queries,
            "operands": operands,
            "slots": slots,
            "labels": {**labels._asdict(), "is_known": is_known},
        }


class _Operands:
    """The operands of the training queries as tokens, in full and elided."""

    def __init__(self, texts: ParserTexts, rows: Sequence[int], length: int) -> None:
        numbers: dict[str, int] = {}
        #: The operands of each text, in full and elided.
        self._rows: dict[int, list[list[int]]] = {}
        self._n_slots = texts.n_slots
        for row in rows:
            if (parsed := texts.parsed[row]) is not None:
                self._rows[row] = [
                    [numbers.setdefault(name, len(numbers)) for name in names[: self._n_slots]]
                    for is_elided in (False, True)
                    for names in [operand_words(texts.texts[row], parsed, is_elided=is_elided)]
                ]
        # A step encodes at least one text, also where no query is labelled.
        self._tokens = Tokens(texts.tokenizer, list(numbers) or [""], length)

    def features(self, rows: Sequence[int], is_elided: Sequence[bool]) -> tuple[Features, Tensor]:
        """Return the operands of some queries, and each query's rows in them, -1 for none."""
        slots = torch.full((len(rows), self._n_slots), -1, dtype=torch.int64)
        chosen: list[int] = []
        for place, row in enumerate(rows):
            for slot, number in enumerate(self._rows.get(row, [[], []])[is_elided[place]]):
                slots[place, slot] = len(chosen)
                chosen.append(number)
        return self._tokens.features(chosen or [0]), slots


def operand_words(text: str, parsed: ParsedQuery, *, is_elided: bool = False) -> list[str]:
    """Return the words of a text's operands, in text order.

    Elided ones leave out what the first positive operand says already, as in "moths of Borneo NOT
    Sumatra". Operands joined by OR stay in full: "moths of Borneo or of Java" does not mean
    everything in Java.
    """
    slots = slots_of(parsed)
    names = [words(text, spans) for spans, _ in slots]
    if not is_elided or any(gap.operator is Operator.OR for gap in parsed.gaps):
        return names
    # A negated operand may come before the first positive one.
    first = [role for _, role in slots].index(POSITIVE)
    elided = elided_names([names[first], *names[:first], *names[first + 1 :]])
    return [*elided[1 : first + 1], elided[0], *elided[first + 1 :]]


def operator_labels(parsed: ParsedQuery | None) -> tuple[int, ...]:
    """Return a 0 or 1 for AND, OR and NOT."""
    if parsed is None:
        return (0,) * len(OPERATORS)
    used = operators_of(parsed.tree(""))
    return tuple(int(operator in used) for operator in OPERATORS)
