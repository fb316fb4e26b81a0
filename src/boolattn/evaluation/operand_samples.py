"""Operands beside what belongs to them: what a calibration says of documents, and what is true.

May import: boolattn.composition, boolattn.data, boolattn.logic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from boolattn.composition.scores import signs
from boolattn.logic.parsed_query import words
from boolattn.logic.templates import template_tree
from boolattn.logic.tree import atoms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from boolattn.data.records import Query
    from boolattn.encoder.retriever import Retriever

#: Documents that each operand's probability is looked at for: the most similar, and some others.
NEAREST, OTHERS = 200, 200
#: Most queries whose operands are taken.
N_QUERIES = 1000
#: Similarities computed at once.
_NUMBERS = 1 << 25
_QUERIES, _DOCUMENTS = 1, 2


@dataclass(frozen=True)
class NamedOperand:
    """An operand, and the rows of the documents that belong to it."""

    text: str
    is_negated: bool
    rows: tuple[int, ...]


def _operands(queries: Sequence[Query], rows: Mapping[str, int]) -> Iterator[list[NamedOperand]]:
    """Yield each query's operands whose documents are known, in its own words if they are known."""
    for query in queries:
        n = len(query.operands)
        if n < 2 or query.template.count("_") != n:
            continue
        tree = template_tree(query.template, [str(place) for place in range(n)])
        pairs = zip(atoms(tree), signs(tree), strict=True)
        sign = {int(atom.text): sign for atom, sign in pairs}
        is_worded = all(operand.spans for operand in query.operands)
        yield [
            NamedOperand(
                words(query.text, operand.spans) if is_worded else operand.text,
                sign[place] < 0,
                tuple(rows[name] for name in operand.members if name in rows),
            )
            for place, operand in enumerate(query.operands)
            if operand.members is not None
        ]


def drawn_operands(
    queries: Sequence[Query], rows: Mapping[str, int], seed: int = 0
) -> list[NamedOperand]:
    """Draw queries, and return their operands whose documents are known.

    Args:
        queries: Those of one operand, for which no probability is asked, are passed over.
        rows: Row of each document, by id.
        seed: Of the draw.
    """
    known = [operands for operands in _operands(queries, rows) if operands]
    if len(known) > N_QUERIES:
        rng = np.random.default_rng([seed, _QUERIES])
        known = [known[place] for place in sorted(rng.choice(len(known), N_QUERIES, replace=False))]
    return [operand for operands in known for operand in operands]


def looked_at(
    retriever: Retriever, operands: Sequence[NamedOperand], documents: Tensor, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return logits, nan for a document drawn twice, and the truth.

    Of each operand the most similar documents are looked at, and others drawn from the corpus:
    most documents are so far away that any calibration is right about them.

    Args:
        retriever: With its calibration.
        operands: In words.
        documents: Vectors of the corpus. Shape ``(documents, dim)``.
        seed: Of the draw.

    Returns:
        Both shapes ``(operands, documents looked at)``.
    """
    n = len(documents)
    texts = {text: place for place, text in enumerate(dict.fromkeys(o.text for o in operands))}
    vectors = torch.from_numpy(retriever.encode_operands(list(texts)))
    own = vectors[[texts[operand.text] for operand in operands]]
    is_negated = torch.tensor([float(operand.is_negated) for operand in operands])
    rng = np.random.default_rng([seed, _DOCUMENTS])
    others = torch.from_numpy(rng.choice(n, min(OTHERS, n), replace=False)).to(documents.device)
    home = retriever.towers.device
    said, seen = [], []
    with torch.inference_mode():
        for part in torch.arange(len(operands)).split(max(1, _NUMBERS // n)):
            similarities = own[part].to(documents) @ documents.T
            nearest = similarities.topk(min(NEAREST, n))
            chosen = torch.cat([nearest.indices, others.expand(len(part), -1)], 1)
            similar = similarities.gather(1, chosen)
            logits = retriever.calibration(
                similar[:, None].float().to(home),
                own[part][:, None].to(home),
                is_negated[part][:, None].to(home),
            )
            own_logits = logits[:, 0].double().cpu()
            is_twice = (similar >= nearest.values[:, -1:]).cpu()
            is_twice[:, : nearest.indices.shape[1]] = False
            said.append(own_logits.masked_fill(is_twice, torch.nan))
            seen.append(chosen.cpu())
    # A document's place in a table of operands by documents tells both.
    cells = torch.cat(seen).numpy() + n * np.arange(len(operands))[:, None]
    members = [n * place + row for place, o in enumerate(operands) for row in o.rows]
    return torch.cat(said).numpy(), np.isin(cells, np.array(members, np.int64))
