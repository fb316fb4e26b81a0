"""A data set for training: documents tokenised once, splits by name, a validator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from boolattn.errors import ConfigError, DataError
from boolattn.training.batches.tokens import Tokens
from boolattn.training.validation import Validator, sample_queries, sample_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Dataset, Query
    from boolattn.training.settings import Preset


def label_operators(preset: Preset) -> tuple[str, ...] | None:
    """Return the experts that oracle labels open; None where the model takes no labels."""
    by_label = preset.model.use_plugin and preset.plugin.gate == "label"
    return preset.plugin.operators if by_label else None


class Corpus:
    """A data set whose documents are tokenised once.

    Args:
        dataset: The data set.
        tokenizer: The encoder's.
        length: Longest document in tokens.
    """

    def __init__(self, dataset: Dataset, tokenizer: Any, length: int) -> None:  # noqa: ANN401
        self.dataset = dataset
        self.tokenizer = cast("PreTrainedTokenizerBase", tokenizer)
        self.rows = {document.id: row for row, document in enumerate(dataset.documents)}
        texts = [document.text for document in dataset.documents]
        self.documents = Tokens(self.tokenizer, texts, length)

    def split(self, name: str) -> Sequence[Query]:
        """Return the queries of a split, or of several joined by ``+``."""
        parts = name.split("+")
        if missing := [part for part in parts if part not in self.dataset.splits]:
            known = ", ".join(self.dataset.splits)
            raise ConfigError(f"{self.dataset.name} has no split {missing[0]!r}; there are {known}")
        return [query for part in parts for query in self.dataset.splits[part]]

    def validator(
        self, preset: Preset, split: str, *, n_queries: int = 0, n_documents: int = 0
    ) -> Validator:
        """Make a validator of a split; 0 takes all its queries, or all documents."""
        seed = preset.train.seed
        queries = sample_queries(self.split(split), self.rows, n_queries, seed)
        if not queries:
            raise DataError(f"no usable query in {split!r}: none has a relevant document")
        texts = [query.text for query in queries]
        return Validator(
            queries,
            Tokens(self.tokenizer, texts, preset.model.query_length),
            self.documents,
            rows=sample_rows(queries, len(self.documents), n_documents, seed),
            operators=label_operators(preset),
        )
