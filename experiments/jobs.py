"""Jobs of worker processes: small to send; heavy imports happen in the worker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from boolattn.reproduction.requests import Paths, RunInputs
    from boolattn.reproduction.systems import RunSpec
    from boolattn.training.settings import Preset
    from experiments.tokenized_corpus import SavedCorpus


@dataclass(frozen=True, kw_only=True)
class TokenizeJob:
    """Tokenize a data set, once for all runs."""

    folder: Path
    data: Path | None
    preset: Preset

    def run(self, paths: Paths) -> str:
        """Write the tokenized corpus, unless the folder has it."""
        from boolattn.training.launch import open_data
        from experiments.tokenized_corpus import TokenizedCorpus

        del paths
        corpus = TokenizedCorpus(self.folder)
        if not corpus.exists:
            dataset = open_data(self.preset, self.data)
            tokenizer = _tokenizer(self.preset.model.encoder)
            before = os.environ.get("TOKENIZERS_PARALLELISM", "")
            # Runs wait for this job, so it may use all cores.
            os.environ["TOKENIZERS_PARALLELISM"] = "true"
            corpus.write(dataset, tokenizer, self.preset.model.document_length)
            os.environ["TOKENIZERS_PARALLELISM"] = before
        return f"tokenized {self.folder.name}"


@dataclass(frozen=True, kw_only=True)
class PretrainJob:
    """Pretrain a plug-in."""

    folder: Path
    preset: Preset

    def run(self, paths: Paths) -> str:
        """Pretrain, unless the folder has the model."""
        from boolattn.reproduction.execution import pretrain

        del paths
        return pretrain(self.preset, self.folder)


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """Train a system, where it is trained, and measure it."""

    inputs: RunInputs
    corpus: Path

    def run(self, paths: Paths) -> str:
        """Train, rank, measure, write the run file."""
        from boolattn.reproduction.execution import execute

        return execute(self.inputs, _open(self.corpus, self.inputs.preset), paths)


@dataclass(frozen=True, kw_only=True)
class Bm25Job:
    """Measure BM25."""

    spec: RunSpec
    preset: Preset
    corpus: Path

    def run(self, paths: Paths) -> str:
        """Index, rank, measure, write the run file."""
        from boolattn.evaluation.metrics import measure, needed_depth
        from boolattn.reproduction.execution import Stopwatch, judge, write_run
        from boolattn.reproduction.inputs import fingerprints
        from boolattn.reproduction.runs import Row
        from boolattn.search.ranker import Bm25Ranker

        clock = Stopwatch()
        corpus = _open(self.corpus, self.preset)
        ranker = Bm25Ranker([document.text for document in corpus.dataset.documents])
        clock.lap("index")
        judged = judge(self.spec.dataset, corpus)
        rows = []
        for split, judgements in judged.items():
            ranking = ranker.rank(judgements.texts, needed_depth(judgements))
            values = measure(ranking, judgements)
            rows.append(Row("plain_text", split, "none", judgements.n_documents, values))
        clock.lap("rank")
        own = fingerprints(self.spec, self.preset, corpus.dataset)
        details = {"seconds": clock.laps, "inputs": own}
        return write_run(self.spec.key, rows, details, judged, paths)


@lru_cache(maxsize=4)
def _tokenizer(encoder: str) -> PreTrainedTokenizerBase:
    from boolattn.training.towers import load_encoder

    return load_encoder(encoder)[1]


def _open(folder: Path, preset: Preset) -> SavedCorpus:
    return _open_cached(folder, preset.model.encoder, preset.model.document_length)


@lru_cache(maxsize=2)
def _open_cached(folder: Path, encoder: str, length: int) -> SavedCorpus:
    from experiments.tokenized_corpus import TokenizedCorpus

    return TokenizedCorpus(folder).open(_tokenizer(encoder), length)
