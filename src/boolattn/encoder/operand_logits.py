"""Logits and probabilities of operands over a sample of queries and documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from boolattn.composition.arrays import same_type, to_numpy
from boolattn.composition.exact import exact_search
from boolattn.logic.parsed_query import words
from boolattn.logic.templates import template_tree
from boolattn.logic.tree import signed_atoms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from boolattn.composition.arrays import Array
    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever

#: Most queries whose operands are sampled.
N_QUERIES = 1000
#: Documents of each operand: the most similar ones, and a random sample.
NEAREST, OTHERS = 200, 200


@dataclass(frozen=True)
class JudgedOperand:
    """An operand, and the rows of the documents that belong to it."""

    text: str
    is_negated: bool
    rows: tuple[int, ...]


def sample_operands(
    queries: Sequence[Query], rows: Mapping[str, int], seed: int = 0
) -> list[JudgedOperand]:
    """Return the operands of at most :data:`N_QUERIES` queries whose documents are known.

    Queries of one operand are left out: no probability is computed for them. ``rows`` has the
    row of each document, by id.
    """
    known = [operands for operands in _judged(queries, rows) if operands]
    if len(known) > N_QUERIES:
        rng = np.random.default_rng([seed, 1])
        known = [known[index] for index in sorted(rng.choice(len(known), N_QUERIES, replace=False))]
    return [operand for operands in known for operand in operands]


def _judged(queries: Sequence[Query], rows: Mapping[str, int]) -> Iterator[list[JudgedOperand]]:
    """Yield each query's operands, in the words of the query where they are known."""
    for query in queries:
        n = len(query.operands)
        if n < 2 or query.template.count("_") != n:
            continue
        tree = template_tree(query.template, [str(index) for index in range(n)])
        is_negated = {int(atom.text): sign < 0 for atom, sign in signed_atoms(tree)}
        has_spans = all(operand.spans for operand in query.operands)
        yield [
            JudgedOperand(
                words(query.text, operand.spans) if has_spans else operand.text,
                is_negated[index],
                tuple(rows[name] for name in operand.members if name in rows),
            )
            for index, operand in enumerate(query.operands)
            if operand.members is not None
        ]


def operand_logits(
    retriever: Retriever, operands: Sequence[JudgedOperand], documents: Array, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return logits of operands, and whether each document belongs to the operand.

    Most documents are so far from an operand that any calibration is right about them; so the most
    similar ones are taken, and a random sample of all. Both results have the shape ``(operands,
    sampled documents)``; a document that is sampled twice has nan the second time.
    """
    n = len(documents)
    texts = {text: index for index, text in enumerate(dict.fromkeys(o.text for o in operands))}
    vectors = retriever.encode_operands(list(texts))[[texts[o.text] for o in operands]]
    is_negated = np.array([operand.is_negated for operand in operands])
    others = np.random.default_rng([seed, 2]).choice(n, min(OTHERS, n), replace=False)
    nearest = exact_search(vectors, documents, NEAREST)
    similar = to_numpy(same_type(vectors, documents) @ documents[others].T)
    similarities = np.concatenate([nearest.scores, similar.astype(np.float32)], 1)
    calibration = retriever.calibration_arrays
    logits = calibration.logits(similarities[:, None], vectors[:, None], is_negated[:, None])[:, 0]
    # Pairs of operand and document as one number.
    first = n * np.arange(len(operands))[:, None]
    pairs = np.concatenate([nearest.rows + first, others + first], 1)
    depth = nearest.rows.shape[1]
    logits[:, depth:][np.isin(pairs[:, depth:], pairs[:, :depth])] = np.nan
    members = [n * index + row for index, o in enumerate(operands) for row in o.rows]
    return logits.astype(np.float64), np.isin(pairs, np.array(members, np.int64))
