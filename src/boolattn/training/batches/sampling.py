"""The documents of each query at each step, and what one process computes of them.

Every draw is seeded by run, epoch, step and query, never by earlier draws: a resumed run makes the
same draws, and each of several processes knows the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import Dataset

from boolattn.attention.config import OPERATORS
from boolattn.errors import DataError
from boolattn.training.batches.tokens import Features, LabelledSentences, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from boolattn.data.records import Query
    from boolattn.training.settings import TrainSettings

#: Purposes of random generators, so that no two share draws.
_ORDER, _DRAW, _FIXED, _SCOPES = 0, 1, 2, 13


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A training query; documents are row numbers of the corpus, sorted."""

    query: Query
    gold: tuple[int, ...]
    answers: frozenset[int]  # What is no negative: the relevant and the undecided documents
    pools: tuple[tuple[int, ...], ...]  # Excluded and partly matching documents
    ranked: tuple[int, ...]  # A ranking's best documents that are not relevant


def make_examples(
    queries: Iterable[Query],
    rows: Mapping[str, int],
    rankings: Mapping[str, Sequence[int]] | None = None,
) -> list[TrainingExample]:
    """Turn queries into examples; those without a relevant document are left out.

    ``rows`` are by document id, ``rankings`` (best first, -1 after the last) by query id.
    """

    def known(ids: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted(rows[name] for name in ids if name in rows))

    examples, ranked = [], rankings or {}
    for query in queries:
        if gold := known(query.gold):
            answers = frozenset(gold).union(known(query.undecided))
            pools = tuple(filter(None, (known(query.excluded), known(query.partial))))
            unlike = (r for r in ranked.get(query.id, ()) if r >= 0 and r not in answers)
            examples.append(TrainingExample(query, gold, answers, pools, tuple(unlike)))
    return examples


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """The batch of one step, of all processes."""

    rows: Sequence[int]  # Numbers of the examples
    examples: Sequence[TrainingExample]
    #: Each query's positive, then its negatives. Shape ``(queries, 1 + negatives)``.
    documents: NDArray[np.int64]

    def blocked(self, start: int, end: int) -> NDArray[np.bool_]:
        """Return which documents are not negatives of the queries ``start`` to ``end``.

        Those are all relevant ones but the query's own positive. Other queries' documents are
        negatives. Shape ``(end - start, queries * (1 + negatives))``.
        """
        flat = self.documents.ravel().tolist()
        answers = [example.answers for example in self.examples[start:end]]
        blocked = np.array([[document in known for document in flat] for known in answers])
        rows = np.arange(end - start)
        blocked[rows, (rows + start) * self.documents.shape[1]] = False
        return blocked


class Sampler:
    """Draws the batch of every step.

    ``domains`` are those of the documents. With them, a batch has queries of one domain only, and
    random negatives of the same: documents of other domains would be told apart too easily.
    """

    def __init__(
        self,
        examples: Sequence[TrainingExample],
        n_documents: int,
        settings: TrainSettings,
        domains: Sequence[str] | None = None,
    ) -> None:
        self.settings, self._has_domains = settings, domains is not None
        self._batches = lru_cache(maxsize=1)(self._shuffle)
        names = np.array(domains or [""] * n_documents)
        self._rows = {name: np.flatnonzero(names == name) for name in set(names.tolist())}
        # A query for which nearly every document is relevant has too few negatives.
        self.examples = [
            e for e in examples if len(e.answers) <= len(self._near(e)) - settings.n_negatives
        ]
        if not self.examples:
            raise DataError(
                f"no usable query among {len(examples)}: each needs a relevant document in the "
                f"corpus of {n_documents}, and {settings.n_negatives} that are not relevant"
            )
        self.steps_per_epoch = len(self._batches(0))
        self.n_steps = settings.n_steps(self.steps_per_epoch)

    def batch(self, step: int) -> TrainingBatch:
        """Draw the batch of a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        rows = self._batches(epoch)[position].tolist()
        key = [self.settings.seed, _DRAW, epoch, position]
        drawn = [self._draw(self.examples[row], [*key, row]) for row in rows]
        return TrainingBatch(rows, [self.examples[row] for row in rows], np.array(drawn, np.int64))

    def _domain(self, example: TrainingExample) -> str:
        return example.query.domain if self._has_domains else ""

    def _near(self, example: TrainingExample) -> NDArray[np.int64]:
        """Return the documents of an example's domain, or all."""
        return self._rows.get(self._domain(example), np.zeros(0, np.int64))

    def _shuffle(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the examples of an epoch, shuffled into whole batches.

        With domains each batch is of one. Fewer examples than a batch are repeated.
        """
        seed, size = [self.settings.seed, _ORDER, epoch], self.settings.batch_size
        order = np.random.default_rng(seed).permutation(len(self.examples))
        names = np.array([self._domain(example) for example in self.examples])[order]
        batches: list[NDArray[np.int64]] = []
        for name in sorted(set(names.tolist())):
            members = order[names == name]
            whole = np.resize(members, max(1, len(members) // size) * size)
            batches += list(whole.reshape(-1, size))
        if self._has_domains:
            shuffled = np.random.default_rng([*seed, 1]).permutation(len(batches))
            batches = [batches[index] for index in shuffled]
        return batches

    def _draw(self, example: TrainingExample, key: list[int]) -> list[int]:
        """Draw a positive and the negatives; a repeated draw is replaced by a random document."""
        rng, settings = np.random.default_rng(key), self.settings
        if settings.positives == "fixed":
            first = np.random.default_rng([settings.seed, _FIXED, key[-1]])
            drawn = [int(first.choice(example.gold))]
        else:
            drawn = [example.gold[rng.integers(len(example.gold))]]
        n_logical = settings.n_logical if example.pools else 0
        pools = [example.pools[number % len(example.pools)] for number in range(n_logical)]
        pools += [example.ranked] * (settings.n_bm25 if example.ranked else 0)
        for pool in pools:
            if (document := pool[int(rng.integers(len(pool)))]) not in drawn:
                drawn.append(document)
        near = self._near(example)
        while len(drawn) <= settings.n_negatives:
            document = int(near[rng.integers(len(near))])
            if document not in example.answers and document not in drawn:
                drawn.append(document)
        return drawn


@dataclass(eq=False)
class Steps(Dataset[Features]):
    """A whole run as one list of steps; item ``i`` is a process's share of step ``i``.

    One list, not epochs, so that a resumed run skips to an index.
    """

    sampler: Sampler
    queries: Tokens  # Of the sampler's examples
    documents: Tokens
    _: KW_ONLY
    chunk: int = 64  # Documents encoded at once, padded; 0: all, without padding
    takes_labels: bool = False  # Whether oracle labels open the experts
    scoped: LabelledSentences | None = None  # Sentences whose scopes are supervised
    process: int = 0
    n_processes: int = 1

    def __len__(self) -> int:
        return self.sampler.n_steps

    def __getitem__(self, step: int) -> Features:
        """Return a process's share of a batch.

        ``queries`` and ``documents`` (a list of batches, and ``places`` to undo their order) are
        for the encoders, ``targets`` and ``blocked`` for the loss over the whole batch; with as
        many sentences with scopes, where these are supervised.
        """
        batch = self.sampler.batch(step)
        share = len(batch.examples) // self.n_processes
        start, end = self.process * share, (self.process + 1) * share
        rows = batch.documents[start:end].ravel().tolist()
        documents, places = self.documents.chunks(rows, self.chunk)
        queries = self.queries.features(batch.rows[start:end])
        if self.takes_labels:
            used = [example.query.operators for example in batch.examples[start:end]]
            labels = [[int(name in names) for name in OPERATORS] for names in used]
            queries["operators"] = torch.tensor(labels)
        features: Features = {"queries": queries, "documents": documents, "places": places}
        features["targets"] = torch.arange(start, end) * batch.documents.shape[1]
        features["blocked"] = torch.from_numpy(batch.blocked(start, end))
        if self.scoped is not None:
            rng = np.random.default_rng([self.sampler.settings.seed, _SCOPES, step, self.process])
            part = self.scoped.batch(rng.integers(len(self.scoped.sentences), size=share).tolist())
            targets = {"operators": part.operators, "scopes": part.scopes}
            features["scoped"] = {**part.features, **targets}
        return features
