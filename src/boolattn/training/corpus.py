"""A data set for training, and the evaluation during it.

A validator ranks relevant documents among sampled ones, in seconds. With every document it gives
the corpus's own metrics; with a sample, better ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from boolattn.encoder import towers as two_towers
from boolattn.errors import ConfigError
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import mean, measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.scoring.exact import exact_search
from boolattn.training.batches.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentence_transformers import SentenceTransformer
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from boolattn.data.records import Dataset, Query
    from boolattn.evaluation.benchmark import Judgements
    from boolattn.training.settings import Preset

METRICS = ("recall@100", "r_precision", "leak")


def label_operators(preset: Preset) -> tuple[str, ...] | None:
    """Return the experts that oracle labels open; None where the model takes no labels."""
    by_label = preset.model.use_plugin and preset.plugin.gate == "label"
    return preset.plugin.operators if by_label else None


class Corpus:
    """A data set whose documents are tokenised once, to ``length`` tokens at most.

    Documents whose terms allow evaluation only, by ``use`` of their metadata, are refused.
    """

    def __init__(self, dataset: Dataset, tokenizer: Any, length: int) -> None:  # noqa: ANN401
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
        self.dataset = dataset
        self.tokenizer = cast("PreTrainedTokenizerBase", tokenizer)
        self.rows = {document.id: row for row, document in enumerate(dataset.documents)}
        texts = [document.text for document in dataset.documents]
        self.documents = Tokens(self.tokenizer, texts, length)

    def split(self, name: str) -> Sequence[Query]:
        """Return the queries of a split, or of several joined by ``+``."""
        return [query for split in name.split("+") for query in self.dataset.queries(split)]

    def validator(self, preset: Preset) -> Validator:
        """Make a validator of the preset's split and sizes."""
        split, settings = preset.data.validation, preset.train
        benchmark = prepare(
            self.dataset,
            [split],
            n_documents=settings.n_validation_documents,
            n_queries=settings.n_validation_queries,
            seed=settings.seed,
        )
        return Validator(benchmark.splits[split], benchmark.texts, label_operators(preset))


@dataclass(eq=False)
class Validator:
    """Ranks documents for queries, and measures the rankings."""

    judgements: Judgements
    texts: Sequence[str]  # Of the documents that are ranked, by row
    operators: Sequence[str] | None = None  # Experts that oracle labels open; None: no labels

    def __call__(self, towers: SentenceTransformer) -> dict[str, float]:
        """Return the means over queries of Recall@100, R-precision and leak."""
        documents = two_towers.encode_documents(towers.eval(), self.texts)
        vectors = encode_queries(towers, self.judgements, self.operators)
        ranking = rank(vectors, documents, needed_depth(self.judgements, METRICS))
        values = measure(ranking, self.judgements, METRICS)
        # The leak is not defined where no query excludes anything.
        return {name: float(np.nan_to_num(mean(value))) for name, value in values.items()}


def encode_queries(
    towers: SentenceTransformer,
    judgements: Judgements,
    operators: Sequence[str] | None = None,
    prefix: str = "",
) -> Tensor:
    """Encode queries, with oracle labels for the experts named. Shape ``(queries, dim)``."""
    texts = [prefix + text for text in judgements.texts]
    if operators is None:
        return towers.encode_query(texts, convert_to_tensor=True, show_progress_bar=False)
    labels = [[name for name in names if name in operators] for names in judgements.operators]
    return two_towers.encode_queries(towers, texts, operators=labels)


def rank(queries: Tensor, documents: Tensor, depth: int) -> Ranking:
    """Rank documents by one vector a query."""
    hits = exact_search(queries.cpu().numpy(), documents.cpu().numpy(), depth)
    return Ranking(hits.rows.astype(np.int32), hits.scores)
