"""The documents of each query at each step, and what one process computes of them.

Every draw is seeded by run, epoch, step and query, never by earlier draws: a resumed run makes the
same draws, and each of several processes knows the whole batch.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import Dataset

from boolattn.errors import DataError
from boolattn.query.tree import OPERATORS, Operator
from boolattn.training.batches.tokens import Features, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.data.records import Query
    from boolattn.training.batches.sentences import ScopeSentences
    from boolattn.training.settings import TrainSettings

#: Purposes of random generators, so that no two share draws.
_ORDER, _DRAW, _FIXED = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """A training query; documents are row numbers of the corpus, sorted."""

    id: str
    text: str
    operators: tuple[int, ...]  # 0 or 1 for AND, OR and NOT, from the query's template
    gold: tuple[int, ...]
    answers: frozenset[int]  # What is no negative: the relevant and the undecided documents
    pools: tuple[tuple[int, ...], ...] = ()  # Excluded and partly matching documents
    ranked: tuple[int, ...] = ()  # A ranking's best documents that are not relevant
    domain: str = ""


def make_examples(
    queries: Iterable[Query],
    rows: Mapping[str, int],
    rankings: Mapping[str, Sequence[int]] | None = None,
) -> list[TrainingExample]:
    """Turn queries into examples; those without a relevant document are left out.

    ``rows`` are by document id, ``rankings`` (another engine's, best first) by query id.
    """
    examples = []
    for query in queries:
        if not (gold := _rows(query.gold, rows)):
            continue
        answers = frozenset(gold).union(_rows(query.undecided, rows))
        pools = (_rows(query.excluded, rows), _rows(query.partial, rows))
        ranked = (rankings or {}).get(query.id, ())
        examples.append(
            TrainingExample(
                id=query.id,
                text=query.text,
                operators=tuple(int(operator in query.operators) for operator in OPERATORS),
                gold=gold,
                answers=answers,
                pools=tuple(pool for pool in pools if pool),
                ranked=tuple(row for row in ranked if row not in answers),
                domain=query.domain,
            )
        )
    return examples


def _rows(ids: Iterable[str], rows: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(sorted(rows[name] for name in ids if name in rows))


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """The batch of one step, of all processes."""

    step: int  # Counted from 0 over the run
    examples: tuple[TrainingExample, ...]
    #: Each query's positive, then its negatives. Shape ``(queries, 1 + negatives)``.
    documents: NDArray[np.int64]

    def blocked(self, start: int, end: int) -> NDArray[np.bool_]:
        """Return which documents are not negatives of the queries ``start`` to ``end``.

        Those are all relevant ones but the query's own positive. Other queries' documents are
        negatives. Shape ``(end - start, queries * (1 + negatives))``.
        """
        n_own = self.documents.shape[1]
        flat = self.documents.ravel().tolist()
        blocked = np.zeros((end - start, len(flat)), dtype=np.bool_)
        for row, index in enumerate(range(start, end)):
            answers = self.examples[index].answers
            blocked[row] = [document in answers for document in flat]
            blocked[row, index * n_own] = False
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
        self.settings = settings
        self.n_documents = n_documents
        self._epoch: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, np.int64))
        self._domains = [example.domain for example in examples] if domains else []
        self._rows = {
            name: np.flatnonzero(np.array(domains) == name) for name in set(self._domains)
        }
        # A query for which nearly every document is relevant has too few negatives.
        self.examples = [e for e in examples if len(e.answers) <= self._most(e)]
        if not self.examples:
            raise DataError(
                f"no usable query among {len(examples)}: each needs a relevant document in the "
                f"corpus of {n_documents}, and {settings.n_negatives} that are not relevant"
            )
        self._domains = [example.domain for example in self.examples] if domains else []
        self.steps_per_epoch = len(self._order(0)) // settings.batch_size
        self.n_steps = settings.n_steps(self.steps_per_epoch)

    def batch(self, step: int) -> TrainingBatch:
        """Draw the batch of a step."""
        epoch, position = divmod(step, self.steps_per_epoch)
        size = self.settings.batch_size
        chosen = self._order(epoch)[position * size : (position + 1) * size]
        examples = tuple(self.examples[index] for index in chosen)
        drawn = [
            self._draw(example, [self.settings.seed, _DRAW, epoch, position, int(index)])
            for example, index in zip(examples, chosen, strict=True)
        ]
        return TrainingBatch(step, examples, np.array(drawn, dtype=np.int64))

    def _most(self, example: TrainingExample) -> int:
        """Return how many answers leave enough negatives."""
        rows = self._rows.get(example.domain)
        return (self.n_documents if rows is None else len(rows)) - self.settings.n_negatives

    def _order(self, epoch: int) -> NDArray[np.int64]:
        """Return the examples of an epoch, shuffled into whole batches.

        With domains each batch is of one. Fewer examples than a batch are repeated.
        """
        if self._epoch[0] == epoch:
            return self._epoch[1]
        seed, size = [self.settings.seed, _ORDER, epoch], self.settings.batch_size
        order = np.random.default_rng(seed).permutation(len(self.examples))
        names = np.array(self._domains or [""] * len(order))[order]
        batches: list[NDArray[np.int64]] = []
        for name in sorted(set(names.tolist())):
            members = order[names == name]
            whole = np.resize(members, max(1, len(members) // size) * size)
            batches += list(whole.reshape(-1, size))
        if self._domains:
            shuffled = np.random.default_rng([*seed, 1]).permutation(len(batches))
            batches = [batches[index] for index in shuffled]
        self._epoch = epoch, np.concatenate(batches)
        return self._epoch[1]

    def _draw(self, example: TrainingExample, key: list[int]) -> list[int]:
        """Draw a positive and the negatives."""
        rng = np.random.default_rng(key)
        settings = self.settings
        if settings.positives == "fixed":
            first = np.random.default_rng([settings.seed, _FIXED, key[-1]])
            drawn = [int(first.choice(example.gold))]
        else:
            drawn = [example.gold[int(rng.integers(len(example.gold)))]]
        for number in range(settings.n_logical if example.pools else 0):
            pool = example.pools[number % len(example.pools)]
            _add(drawn, pool[int(rng.integers(len(pool)))])
        for _ in range(settings.n_bm25 if example.ranked else 0):
            _add(drawn, example.ranked[int(rng.integers(len(example.ranked)))])
        domain_rows = self._rows.get(example.domain)
        while len(drawn) <= settings.n_negatives:
            n_documents = self.n_documents if domain_rows is None else len(domain_rows)
            document = int(rng.integers(n_documents))
            document = document if domain_rows is None else int(domain_rows[document])
            if document not in example.answers:
                _add(drawn, document)
        return drawn


def _add(drawn: list[int], document: int) -> None:
    """Add a document once; a repeated draw is replaced by a random document."""
    if document not in drawn:
        drawn.append(document)


@dataclass(eq=False)
class Collator:
    """Turns the batch of a step into the share of one process."""

    queries: Tokens
    rows: dict[str, int]  # Row of each example's text in ``queries``, by example id
    documents: Tokens
    _: KW_ONLY
    chunk: int = 64  # Documents encoded at once, padded; 0: all, without padding
    operators: Sequence[str] | None = None  # Experts that oracle labels open; None: no labels
    scoped: ScopeSentences | None = None  # Sentences whose scopes are supervised

    def __call__(self, batch: TrainingBatch, process: int = 0, n_processes: int = 1) -> Features:
        """Return a process's share of a batch.

        Returns:
            ``queries`` and ``documents`` (a list of batches, and ``places`` to undo their order)
            for the encoders, ``targets`` and ``blocked`` for the loss over the whole batch, and
            as many sentences with scopes, where these are supervised.
        """
        share = len(batch.examples) // n_processes
        start, end = process * share, (process + 1) * share
        documents, places = self.documents.chunks(
            batch.documents[start:end].ravel().tolist(), self.chunk
        )
        blocked = batch.blocked(start, end)
        scoped = {}
        if self.scoped is not None:
            scoped["scoped"] = self.scoped.features(share, batch.step, process)
        return {
            **scoped,
            "queries": self._queries(batch.examples[start:end]),
            "documents": documents,
            "places": places,
            "targets": torch.arange(start, end) * batch.documents.shape[1],
            "blocked": torch.from_numpy(blocked),
        }

    def _queries(self, examples: Sequence[TrainingExample]) -> Features:
        """Return queries, with oracle operator labels where the model takes them."""
        queries = self.queries.features([self.rows[example.id] for example in examples])
        if self.operators is not None:
            labels = torch.tensor([example.operators for example in examples])
            queries["operators"] = labels[:, label_columns(self.operators)]
        return queries


@dataclass(eq=False)
class Steps(Dataset[Features]):
    """A whole run as one list of steps; item ``i`` is a process's share of step ``i``.

    One list, not epochs, so that a resumed run skips to an index.
    """

    sampler: Sampler
    collator: Collator
    process: int = 0
    n_processes: int = 1

    def __len__(self) -> int:
        return self.sampler.n_steps

    def __getitem__(self, step: int) -> Features:
        return self.collator(self.sampler.batch(step), self.process, self.n_processes)


def label_columns(operators: Sequence[str]) -> list[int]:
    """Return which of the labels AND, OR, NOT a model with these experts takes.

    >>> label_columns(("and", "not"))
    [0, 2]
    """
    return [OPERATORS.index(Operator(name)) for name in operators]
