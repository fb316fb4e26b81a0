r"""Composition of operand logits by the operators of a query, in log space.

Every operand gives a document a logit ``z``; ``p = σ(z)`` is the probability that the document
belongs to the operand. The query tree combines them:

.. math::
    \log p(A \land B) = \log p_A + \log p_B \qquad
    \log p(A \lor B) = \log(1 - (1 - p_A)(1 - p_B)) \qquad
    \log p(\lnot A) = \log(1 - p_A)

The logit of a negated operand is first reduced by a share of the positive operands' logits, the
negation margin (:func:`with_negation_margin`): a document that matches "moths of Borneo" very well
must match "moths of Sumatra" even better to be ranked lower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from boolattn.composition.arrays import Array, log1mexp, log_sigmoid, namespace
from boolattn.errors import QueryError
from boolattn.logic.tree import And, Atom, Not, Or, QueryTree, atoms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class _LogProbability(NamedTuple):
    """Log-probability that a part of the tree holds, and that it does not."""

    holds: Array
    fails: Array


def compose(tree: QueryTree, logits: Array) -> Array:
    """Score documents by a tree.

    Args:
        tree: The query.
        logits: One row for each operand, left to right. Shape ``(operands, ..., documents)``.

    Returns:
        The log-probability that a document satisfies the query. Shape ``(..., documents)``.

    >>> import numpy as np
    >>> tree = And((Atom("moths of Borneo"), Not(Atom("moths of Sumatra"))))
    >>> np.exp(compose(tree, np.array([[4.0, 4.0], [-4.0, 4.0]]))).round(2).tolist()
    [0.96, 0.02]
    """
    n_operands = sum(1 for _ in atoms(tree))
    if len(logits) != n_operands:
        raise QueryError(f"the query has {n_operands} operands, but {len(logits)} were scored")
    rows = iter(logits)

    def walk(node: QueryTree) -> _LogProbability:
        match node:
            case Atom():
                z = next(rows)
                return _LogProbability(log_sigmoid(z), log_sigmoid(-z))
            case Not(part):
                holds, fails = walk(part)
                return _LogProbability(fails, holds)
            case And(parts):
                holds = sum(walk(part).holds for part in parts)
                return _LogProbability(holds, log1mexp(holds))
            case Or(parts):
                fails = sum(walk(part).fails for part in parts)
                return _LogProbability(log1mexp(fails), fails)

    return walk(tree).holds


def with_negation_margin(tree: QueryTree, logits: Array, margin: Array | float) -> Array:
    """Reduce negated operands' logits by a share of the positive operands' logits beside them.

    Beside a NOT are the other parts of its AND. A NOT without such parts is left as it is.

    Args:
        tree: The query.
        logits: Shape ``(operands, ..., documents)``.
        margin: The share.

    >>> import numpy as np
    >>> tree = And((Atom("a"), Atom("b"), Not(Atom("c"))))
    >>> with_negation_margin(tree, np.array([[4.0], [2.0], [3.0]]), 0.5).ravel().tolist()
    [4.0, 2.0, 2.0]
    """
    return namespace(logits).stack(list(_reduced(tree, logits, margin, None)))


def _reduced(
    node: QueryTree, logits: Array, margin: Array | float, positive: Array | None
) -> Iterator[Array]:
    """Yield the operand logits of a part of the tree; ``positive`` stands beside it."""
    match node:
        case Atom():
            yield logits[0] if positive is None else logits[0] - margin * positive
        case Not(part):
            yield from _reduced(part, logits, margin, positive)
        case Or(parts):
            for part, own in _split(parts, logits):
                yield from _reduced(part, own, margin, positive)
        case And(parts):
            split = _split(parts, logits)
            others = [_fuzzy(part, own) for part, own in split if not isinstance(part, Not)]
            xp = namespace(logits)
            least = xp.amin(xp.stack(others), axis=0) if others else None
            for part, own in split:
                yield from _reduced(part, own, margin, least if isinstance(part, Not) else positive)


def _fuzzy(node: QueryTree, logits: Array) -> Array:
    """Return one logit for a part of the tree: AND the least, OR the greatest, NOT the negative."""
    xp = namespace(logits)
    match node:
        case Atom():
            return logits[0]
        case Not(part):
            return -_fuzzy(part, logits)
        case And(parts):
            return xp.amin(xp.stack([_fuzzy(*one) for one in _split(parts, logits)]), axis=0)
        case Or(parts):
            return xp.amax(xp.stack([_fuzzy(*one) for one in _split(parts, logits)]), axis=0)


def _split(parts: Sequence[QueryTree], logits: Array) -> list[tuple[QueryTree, Array]]:
    """Give each part the logits of its own operands."""
    found, start = [], 0
    for part in parts:
        end = start + sum(1 for _ in atoms(part))
        found.append((part, logits[start:end]))
        start = end
    return found


def compose_batch(
    logits: Array, positive: Array, negated: Array, is_or: Array, margin: Array | float = 0.0
) -> Array:
    """Score documents for a batch of parsed queries at once; what training uses.

    Args:
        logits: Shape ``(batch, slots, documents)``; slots without an operand may hold anything.
        positive: Whether a slot holds a positive operand. Shape ``(batch, slots)``.
        negated: Whether it holds a negated one. Same shape.
        is_or: Whether OR joins the positive operands, rather than AND. Shape ``(batch,)``.
        margin: As in :func:`with_negation_margin`.

    Returns:
        As :func:`compose`. Shape ``(batch, documents)``.
    """
    xp = namespace(logits)
    inside, outside = positive[..., None], negated[..., None]
    least = xp.amin(xp.where(inside, logits, xp.inf), axis=1)
    greatest = xp.amax(xp.where(inside, logits, -xp.inf), axis=1)
    beside = xp.where(is_or[:, None], greatest, least)
    # Without a positive operand there is nothing to reduce by.
    beside = xp.where(positive.any(-1)[:, None], beside, 0.0)
    logits = logits - margin * beside[:, None] * outside
    holds, fails = log_sigmoid(logits), log_sigmoid(-logits)
    all_hold = xp.where(inside, holds, 0.0).sum(1)
    none_holds = xp.where(inside, fails, 0.0).sum(1)
    no_negated = xp.where(outside, fails, 0.0).sum(1)
    return xp.where(is_or[:, None], log1mexp(none_holds), all_hold) + no_negated
