"""Marked texts as batches: what a word belongs to, what a query's operands are, what is only read.

May import: boolattn.composition, boolattn.data, boolattn.logic, boolattn.training.
"""

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
from boolattn.training.batches import Collator, Features, Tokens
from boolattn.training.cuda_graphs import documents_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.logic.parsed_query import LabelledQuery, ParsedQuery
    from boolattn.training.sampling import Batch
    from boolattn.training.settings import Preset

_READINGS, _BARE = 5, 11


class ReadingStore:
    """Marked texts as tokens and labels, worked out once.

    Args:
        tokenizer: The encoder's, a fast one: labels are given by character.
        texts: The texts.
        readings: How each is to be read; ``None`` where that is not known.
        length: Longest text in tokens.
        n_slots: Of the reader.
        sources: Rows of the texts that are only read, one range for each source.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        texts: Sequence[str],
        readings: Sequence[ParsedQuery | None],
        length: int,
        n_slots: int,
        sources: Sequence[range] = (),
    ) -> None:
        self.sources = [source for source in sources if len(source)]
        self.readings = readings
        self.n_slots = n_slots
        self.tokens = Tokens(tokenizer, texts, length)
        self.texts = texts
        self._tokenizer, self._length = tokenizer, length
        self._labels: dict[int, ParserLabels] = {}

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        sources: Sequence[Sequence[LabelledQuery]],
        length: int,
        n_slots: int = N_SLOTS,
    ) -> ReadingStore:
        """Keep texts that are only read, source by source."""
        marked = [item for source in sources for item in source]
        starts = accumulate(map(len, sources), initial=0)
        return cls(
            tokenizer,
            [item.text for item in marked],
            [item.parsed for item in marked],
            length,
            n_slots,
            list(starmap(range, pairwise(starts))),
        )

    def draw(self, rng: np.random.Generator, count: int) -> list[int]:
        """Draw texts that are only read, as many of each source, however large it is."""
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
        missing = [
            row for row in rows if row not in self._labels and self.readings[row] is not None
        ]
        if not missing:
            return
        offsets = self._tokenizer(
            [self.texts[row] for row in missing],
            truncation=True,
            max_length=self._length,
            return_offsets_mapping=True,
        )["offset_mapping"]
        for row, own in zip(missing, offsets, strict=True):
            if (reading := self.readings[row]) is not None:
                self._labels[row] = make_parser_labels([reading], [own], self.n_slots)


class ComposingCollator(Collator):
    """Adds to a step its queries' operands, and texts that are only read.

    Args:
        places: Number of each example's text, by the example's id.
        documents: Tokens of the corpus.
        store: The examples' texts in the same order, then those that are only read.
        preset: Every number.
        tokenizer: The encoder's.
        operators: The experts whose gate labels open; ``None``: no label is given.
    """

    def __init__(
        self,
        places: dict[str, int],
        documents: Tokens,
        store: ReadingStore,
        *,
        preset: Preset,
        tokenizer: PreTrainedTokenizerBase,
        operators: Sequence[str] | None = None,
    ) -> None:
        settings = preset.train
        super().__init__(
            store.tokens,
            places,
            documents,
            chunk=documents_at_once(settings),
            use_in_batch=settings.use_in_batch,
            operators=operators,
        )
        self.store = store
        self.seed, self.n_readings = settings.seed, preset.compose.n_readings
        self.bare_share = preset.compose.bare_share
        self.operands = _Operands(
            tokenizer, store, sorted(places.values()), preset.model.query_length
        )
        self._n_experts = len(preset.plugin.operators) if preset.model.use_plugin else 0

    def __call__(self, batch: Batch, process: int = 0, n_processes: int = 1) -> Features:
        """Take a process's share of a batch."""
        features = super().__call__(batch, process, n_processes)
        share = len(batch.examples) // n_processes
        mine = batch.examples[process * share : (process + 1) * share]
        rows = [self.places[example.id] for example in mine]
        rng = np.random.default_rng([self.seed, _READINGS, batch.step, process])
        rows += self.store.draw(rng, self.n_readings // n_processes)
        queries = self.store.tokens.features(rows)
        labels, is_known = self.store.labels(rows, queries["input_ids"].shape[1])
        if self.columns is not None:
            told = [reading_operators(self.store.readings[row]) for row in rows[share:]]
            own = [example.operators for example in mine]
            queries["operators"] = torch.tensor([*own, *told])[:, self.columns]
        drawn = np.random.default_rng([self.seed, _BARE, batch.step, process]).random(share)
        is_bare = (drawn < self.bare_share).tolist()
        operands, slots = self.operands.features(rows[:share], is_bare)
        if self._n_experts:
            # An operand is one thing: what looks like an operator in its name opens nothing.
            operands["operators"] = torch.zeros(len(operands["input_ids"]), self._n_experts)
        features["queries"] = queries
        features["operands"], features["slots"] = operands, slots
        features["labels"] = {**labels._asdict(), "is_known": is_known}
        return features


class _Operands:
    """The operands of the queries as tokens: in full, and as barely as people type them."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        store: ReadingStore,
        rows: Sequence[int],
        length: int,
    ) -> None:
        self._numbers: dict[str, int] = {}
        #: Of each text its operands in full and barely.
        self._rows: dict[int, tuple[list[int], list[int]]] = {}
        self._n_slots = store.n_slots
        for row in rows:
            if (reading := store.readings[row]) is not None:
                text = store.texts[row]
                self._rows[row] = (
                    self._number(operand_words(text, reading)),
                    self._number(operand_words(text, reading, is_bare=True)),
                )
        # Where no query is marked, a step still encodes something.
        self._tokens = Tokens(tokenizer, list(self._numbers) or [""], length)

    def _number(self, names: Sequence[str]) -> list[int]:
        chosen = names[: self._n_slots]
        return [self._numbers.setdefault(name, len(self._numbers)) for name in chosen]

    def features(self, rows: Sequence[int], is_bare: Sequence[bool]) -> tuple[Features, Tensor]:
        """Return the operands of some queries, and where each query's are: -1 for none."""
        slots = torch.full((len(rows), self._n_slots), -1, dtype=torch.int64)
        chosen: list[int] = []
        for place, row in enumerate(rows):
            for slot, number in enumerate(self._rows.get(row, ((), ()))[is_bare[place]]):
                slots[place, slot] = len(chosen)
                chosen.append(number)
        return self._tokens.features(chosen or [0]), slots


def operand_words(text: str, reading: ParsedQuery, *, is_bare: bool = False) -> list[str]:
    """Return the words of a text's operands, in the order of the text.

    Args:
        text: The text.
        reading: How it is to be read.
        is_bare: Whether to leave out what the first kept operand says already, as people do who
            type "moths of Borneo NOT Sumatra". What is joined by OR stays in full: "moths of
            Borneo or of Java" is not all that lives in Java.
    """
    slots = slots_of(reading)
    names = [words(text, spans) for spans, _ in slots]
    if not is_bare or (reading.joiner is Operator.OR and len(reading.positive) > 1):
        return names
    # What is excluded may come before it in the text.
    first = [role for _, role in slots].index(POSITIVE)
    bare = elided_names([names[first], *names[:first], *names[first + 1 :]])
    return [*bare[1 : first + 1], bare[0], *bare[first + 1 :]]


def reading_operators(reading: ParsedQuery | None) -> tuple[int, ...]:
    """Return a label for AND, OR and NOT, as a template's."""
    if reading is None:
        return (0,) * len(OPERATORS)
    used = {Operator.NOT: bool(reading.negated)}
    if len(reading.positive) > 1:
        used[reading.joiner] = True
    return tuple(int(used.get(operator, False)) for operator in OPERATORS)


def make_store(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    marked: Mapping[str, LabelledQuery],
    sources: Sequence[Sequence[LabelledQuery]],
    preset: Preset,
) -> ReadingStore:
    """Lay the examples' texts and those that are only read end to end.

    Args:
        tokenizer: The encoder's.
        texts: The examples'.
        marked: The queries that are marked, by text.
        sources: Texts that are only read; a step draws as many of each source.
        preset: Every number.
    """
    readings = [marked[text].parsed if text in marked else None for text in texts]
    extra = [item for source in sources for item in source]
    starts = list(accumulate(map(len, sources), initial=len(texts)))
    return ReadingStore(
        tokenizer,
        [*texts, *(item.text for item in extra)],
        [*readings, *(item.parsed for item in extra)],
        preset.model.query_length,
        preset.compose.n_slots,
        list(starmap(range, pairwise(starts))),
    )
