"""Batches for the query parser: labelled texts, and the operands of training queries."""

from __future__ import annotations

from itertools import accumulate, cycle, pairwise, starmap
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.encoder.parser_head import N_SLOTS, ParserLabels, make_parser_labels, slots_of
from boolattn.logic.elision import elided_names
from boolattn.logic.operators import OPERATORS, Operator
from boolattn.logic.parsed_query import words
from boolattn.parsing.decoding import POSITIVE
from boolattn.training.batches.collator import Collator
from boolattn.training.batches.tokens import Features, Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery
    from boolattn.training.batches.sampling import Example
    from boolattn.training.settings import Preset

#: Purposes of random generators, so that no two share draws.
_TEXTS, _ELIDED = 5, 11


class ParserTexts:
    """Training queries, then labelled texts of several sources, as tokens and parser labels.

    Args:
        tokenizer: The encoder's, a fast one: labels are given by character.
        sources: Labelled texts.
        length: Longest text in tokens.
        n_slots: Operands that the parser can tell apart.
        queries: Texts of the training queries.
        labels: Labels of those queries that have any, by text.
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

    Args:
        texts: The examples' texts in order, then those for the parser alone.
        rows: Row of each example's text, by example id.
        documents: Tokens of the corpus.
        preset: The settings.
        chunk: Documents encoded at once.
        operators: The experts that oracle labels open; ``None``: no labels are given.
    """

    def __init__(
        self,
        texts: ParserTexts,
        rows: dict[str, int],
        documents: Tokens,
        *,
        preset: Preset,
        chunk: int = 64,
        operators: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            texts.tokens,
            rows,
            documents,
            chunk=chunk,
            use_in_batch=preset.train.use_in_batch,
            operators=operators,
        )
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
        self._numbers: dict[str, int] = {}
        #: The operands of each text, in full and elided.
        self._rows: dict[int, tuple[list[int], list[int]]] = {}
        self._n_slots = texts.n_slots
        for row in rows:
            if (parsed := texts.parsed[row]) is not None:
                text = texts.texts[row]
                self._rows[row] = (
                    self._number(operand_words(text, parsed)),
                    self._number(operand_words(text, parsed, is_elided=True)),
                )
        # A step encodes at least one text, also where no query is labelled.
        self._tokens = Tokens(texts.tokenizer, list(self._numbers) or [""], length)

    def _number(self, names: Sequence[str]) -> list[int]:
        chosen = names[: self._n_slots]
        return [self._numbers.setdefault(name, len(self._numbers)) for name in chosen]

    def features(self, rows: Sequence[int], is_elided: Sequence[bool]) -> tuple[Features, Tensor]:
        """Return the operands of some queries, and each query's rows in them, -1 for none."""
        slots = torch.full((len(rows), self._n_slots), -1, dtype=torch.int64)
        chosen: list[int] = []
        for place, row in enumerate(rows):
            for slot, number in enumerate(self._rows.get(row, ((), ()))[is_elided[place]]):
                slots[place, slot] = len(chosen)
                chosen.append(number)
        return self._tokens.features(chosen or [0]), slots


def operand_words(text: str, parsed: ParsedQuery, *, is_elided: bool = False) -> list[str]:
    """Return the words of a text's operands, in text order.

    Args:
        text: The text.
        parsed: Its operands.
        is_elided: Whether to leave out what the first positive operand says already, as in
            "moths of Borneo NOT Sumatra". Operands joined by OR stay in full: "moths of Borneo
            or of Java" does not mean everything in Java.
    """
    slots = slots_of(parsed)
    names = [words(text, spans) for spans, _ in slots]
    if not is_elided or (parsed.joiner is Operator.OR and len(parsed.positive) > 1):
        return names
    # A negated operand may come before the first positive one.
    first = [role for _, role in slots].index(POSITIVE)
    elided = elided_names([names[first], *names[:first], *names[first + 1 :]])
    return [*elided[1 : first + 1], elided[0], *elided[first + 1 :]]


def operator_labels(parsed: ParsedQuery | None) -> tuple[int, ...]:
    """Return a 0 or 1 for AND, OR and NOT."""
    if parsed is None:
        return (0,) * len(OPERATORS)
    used = {Operator.NOT: bool(parsed.negated)}
    if len(parsed.positive) > 1:
        used[parsed.joiner] = True
    return tuple(int(used.get(operator, False)) for operator in OPERATORS)
