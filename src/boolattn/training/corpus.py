"""A data set for training: tokenised documents, splits, a validator, rankings for negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from boolattn.errors import ConfigError
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.ranking import read_run
from boolattn.training.batches.tokens import Tokens
from boolattn.training.validation import Validator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Dataset, Query
    from boolattn.training.settings import Preset


def label_operators(preset: Preset) -> tuple[str, ...] | None:
    """Return the experts that oracle labels open; None where the model takes no labels."""
    by_label = preset.model.use_plugin and preset.plugin.gate == "label"
    return preset.plugin.operators if by_label else None


def refuse_evaluation_only(dataset: Dataset) -> None:
    """Refuse documents whose terms allow evaluation only, by ``use`` of their metadata."""
    forbidden = {
        str(document.metadata.get("domain", document.id))
        for document in dataset.documents
        if document.metadata.get("use") == "evaluation"
    }
    if forbidden:
        raise ConfigError(
            f"{', '.join(sorted(forbidden))} of {dataset.name} may only be evaluated: "
            "train on other domains"
        )


class Corpus:
    """A data set whose documents are tokenised once, to ``length`` tokens at most."""

    def __init__(self, dataset: Dataset, tokenizer: Any, length: int) -> None:  # noqa: ANN401
        refuse_evaluation_only(dataset)
        self.dataset = dataset
        self.tokenizer = cast("PreTrainedTokenizerBase", tokenizer)
        self.rows = {document.id: row for row, document in enumerate(dataset.documents)}
        texts = [document.text for document in dataset.documents]
        self.documents = Tokens(self.tokenizer, texts, length)

    def split(self, name: str) -> Sequence[Query]:
        """Return the queries of a split, or of several joined by ``+``."""
        names = name.split("+")
        if missing := [split for split in names if split not in self.dataset.splits]:
            known = ", ".join(self.dataset.splits)
            raise ConfigError(f"{self.dataset.name} has no split {missing[0]!r}; there are {known}")
        return [query for split in names for query in self.dataset.splits[split]]

    def validator(
        self, preset: Preset, split: str, n_queries: int = 0, n_documents: int = 0
    ) -> Validator:
        """Make a validator of a split; 0 takes all its queries, or all documents."""
        benchmark = prepare(
            self.dataset,
            [split],
            n_documents=n_documents,
            n_queries=n_queries,
            seed=preset.train.seed,
        )
        return Validator(benchmark.splits[split], benchmark.texts, label_operators(preset))


def read_rankings(
    path: Path, queries: Sequence[str], rows: Mapping[str, int]
) -> dict[str, list[int]]:
    """Read which documents another engine ranks best: rows by query id, best first.

    Args:
        path: A TREC run, as ``boolattn evaluate bm25 --split train --out FOLDER`` writes it.
        queries: Ids of the queries; others are ignored.
        rows: Row of each document, by id; others are ignored.
    """
    ranking = read_run(path, queries, rows, skip_unknown=True).rows.tolist()
    return {
        qid: [r for r in ranked if r >= 0] for qid, ranked in zip(queries, ranking, strict=True)
    }
