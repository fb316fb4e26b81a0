r"""Composing operand scores by the operators of a query, in log space.

Every operand of a query gives a document a logit ``z``, so ``p = σ(z)`` is the probability that
it belongs. The tree of the query says what becomes of them:

.. math::
    \log p(A \land B) = \log p_A + \log p_B \qquad
    \log p(A \lor B) = \log(1 - (1 - p_A)(1 - p_B)) \qquad
    \log p(\lnot A) = \log(1 - p_A)

What is excluded is held against what is wanted beside it (:func:`with_negation_margin`): a
document that fits "moths of Borneo" very well must fit "moths of Sumatra" better still to be
put down.

May import: boolattn.logic, boolattn.errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional as F

from boolattn.errors import ConfigError, QueryError
from boolattn.logic.tree import And, Atom, Not, Or, QueryTree, atoms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

#: Where 1 - exp(x) would be 0: far below any difference that a score in float32 shows.
_SMALLEST = -1e-7


def log1mexp(x: Tensor) -> Tensor:
    r"""``log(1 - exp(x))`` for ``x <= 0``, exact at both ends and with a gradient everywhere.

    >>> log1mexp(torch.tensor([-1e-3, -50.0])).tolist()
    [-6.908255100250244, -1.9287498933537385e-22]
    """
    x = x.clamp(max=_SMALLEST)
    # Both branches are computed, and the one not chosen must not make its gradient infinite.
    near = x > -0.6931
    small = torch.log(-torch.expm1(torch.where(near, x, -1.0)))
    large = torch.log1p(-torch.exp(torch.where(near, -1.0, x)))
    return torch.where(near, small, large)


class _Held(NamedTuple):
    """Log-probability that a part of the tree holds, and that it does not."""

    yes: Tensor
    no: Tensor


def _by_probability(query: QueryTree, logits: Tensor) -> Tensor:
    rows = iter(logits)

    def walk(node: QueryTree) -> _Held:
        match node:
            case Atom():
                z = next(rows)
                return _Held(F.logsigmoid(z), F.logsigmoid(-z))
            case Not(part):
                yes, no = walk(part)
                return _Held(no, yes)
            case And(parts):
                yes = torch.stack([walk(part).yes for part in parts]).sum(0)
                return _Held(yes, log1mexp(yes))
            case Or(parts):
                no = torch.stack([walk(part).no for part in parts]).sum(0)
                return _Held(log1mexp(no), no)

    return walk(query).yes


def _by_extremes(query: QueryTree, logits: Tensor) -> Tensor:
    """Fuzzy logic: AND is the least, OR the greatest, NOT the negative."""
    rows = iter(logits.unbind())

    def walk(node: QueryTree) -> Tensor:
        match node:
            case Atom():
                z: Tensor = next(rows)
                return z
            case Not(part):
                return -walk(part)
            case And(parts):
                return torch.stack([walk(part) for part in parts]).amin(0)
            case Or(parts):
                return torch.stack([walk(part) for part in parts]).amax(0)

    return walk(query)


def with_negation_margin(query: QueryTree, logits: Tensor, lean: Tensor | float) -> Tensor:
    """Lessen the logits of what is excluded by a part of those of what is wanted beside it.

    Beside a NOT stand the other parts of its AND; a NOT that stands alone has nothing to lean on.

    Args:
        query: The tree.
        logits: Shape ``(operands, ..., documents)``.
        lean: Which part.

    >>> tree = And((Atom("a"), Atom("b"), Not(Atom("c"))))
    >>> with_negation_margin(tree, torch.tensor([[4.0], [2.0], [3.0]]), 0.5).flatten().tolist()
    [4.0, 2.0, 2.0]
    """
    return torch.stack(list(_lean(query, logits, lean, None)))


def _lean(
    node: QueryTree, logits: Tensor, lean: Tensor | float, beside: Tensor | None
) -> Iterator[Tensor]:
    """Yield the logits of a part of the tree, less a part of what is wanted beside it."""
    match node:
        case Atom():
            yield logits[0] if beside is None else logits[0] - lean * beside
        case Not(part):
            yield from _lean(part, logits, lean, beside)
        case Or(parts):
            for part, own in _divided(parts, logits):
                yield from _lean(part, own, lean, beside)
        case And(parts):
            divided = _divided(parts, logits)
            wanted = [_by_extremes(part, own) for part, own in divided if not isinstance(part, Not)]
            least = torch.stack(wanted).amin(0) if wanted else None
            for part, own in divided:
                yield from _lean(part, own, lean, least if isinstance(part, Not) else beside)


def _divided(parts: Sequence[QueryTree], logits: Tensor) -> list[tuple[QueryTree, Tensor]]:
    """Give each part the logits of its own operands."""
    sizes = [sum(1 for _ in atoms(part)) for part in parts]
    return list(zip(parts, logits.split(sizes), strict=True))


def _by_sum(query: QueryTree, logits: Tensor) -> Tensor:
    """Add what is wanted, subtract what is not: what one vector with subtraction would score."""
    own = torch.tensor(list(signs(query)), dtype=logits.dtype, device=logits.device)
    total: Tensor = torch.tensordot(own, logits, dims=1)
    return total


def signs(query: QueryTree) -> Iterator[int]:
    """Yield 1 for each operand that is wanted, -1 for each that is excluded, left to right.

    >>> list(signs(And((Atom("a"), Not(Or((Atom("b"), Atom("c"))))))))
    [1, -1, -1]
    """

    def walk(node: QueryTree, sign: int) -> Iterator[int]:
        match node:
            case Atom():
                yield sign
            case Not(part):
                yield from walk(part, -sign)
            case And(parts) | Or(parts):
                for part in parts:
                    yield from walk(part, sign)

    yield from walk(query, 1)


def in_words(query: QueryTree) -> str:
    """Say a tree in words.

    >>> in_words(And((Atom("moths"), Or((Atom("Borneo"), Atom("Java"))), Not(Atom("Sumatra")))))
    'moths and Borneo or Java but not Sumatra'
    """
    match query:
        case Atom(text):
            return text
        case Not(part):
            return f"not {in_words(part)}"
        case Or(parts):
            return " or ".join(map(in_words, parts))
        case And(parts):
            kept = " and ".join(in_words(part) for part in parts if not isinstance(part, Not))
            drop = " and ".join(in_words(part) for part in parts if isinstance(part, Not))
            return f"{kept} but {drop}" if kept and drop else kept or drop


def structure(query: QueryTree) -> str:
    """Say a tree without its operands: trees that say the same are composed alike.

    >>> structure(And((Atom("a"), Or((Atom("b"), Atom("c"))), Not(Atom("d")))))
    'and(_,or(_,_),not(_))'
    """
    match query:
        case Atom():
            return "_"
        case Not(part):
            return f"not({structure(part)})"
        case And(parts) | Or(parts):
            inner = ",".join(map(structure, parts))
            return f"{'and' if isinstance(query, And) else 'or'}({inner})"


#: Ways to compose, by name.
RULES: dict[str, Callable[[QueryTree, Tensor], Tensor]] = {
    "probability": _by_probability,
    "extremes": _by_extremes,
    "sum": _by_sum,
}


def compose(query: QueryTree, logits: Tensor, rule: str = "probability") -> Tensor:
    """Score documents by a tree.

    Args:
        query: The tree.
        logits: One row for each operand, left to right. Shape ``(operands, ..., documents)``.
        rule: One of :data:`RULES`.

    Returns:
        Higher is better; under "probability" the log-probability. Shape ``(..., documents)``.

    >>> tree = And((Atom("moths of Borneo"), Not(Atom("moths of Sumatra"))))
    >>> compose(tree, torch.tensor([[4.0, 4.0], [-4.0, 4.0]])).exp().round(decimals=2).tolist()
    [0.9599999785423279, 0.019999999552965164]
    """
    if rule not in RULES:
        raise ConfigError(f"no rule {rule!r} to compose by; there are {', '.join(RULES)}")
    n_operands = sum(1 for _ in atoms(query))
    if len(logits) != n_operands:
        raise QueryError(f"the query has {n_operands} operands, and {len(logits)} were scored")
    return RULES[rule](query, logits)


def compose_forms(
    logits: Tensor,
    kept: Tensor,
    excluded: Tensor,
    is_or: Tensor,
    lean: Tensor | float = 0.0,
) -> Tensor:
    """Score documents for a batch of readings at once, by probability: for training.

    Args:
        logits: Shape ``(batch, slots, documents)``; slots that hold no operand may hold anything.
        kept: Whether a slot's operand is wanted. Shape ``(batch, slots)``.
        excluded: Whether it is excluded. Same shape.
        is_or: Whether OR joins the kept operands. Shape ``(batch,)``.
        lean: As in :func:`with_negation_margin`.

    Returns:
        Shape ``(batch, documents)``.
    """
    least = logits.masked_fill(~kept[..., None], torch.inf).amin(1)
    greatest = logits.masked_fill(~kept[..., None], -torch.inf).amax(1)
    wanted = torch.where(is_or[:, None], greatest, least)
    # A reading that keeps nothing has nothing to lean on.
    wanted = wanted.masked_fill(~kept.any(-1)[:, None], 0)
    logits = logits - lean * wanted[:, None] * excluded[..., None]
    yes, no = F.logsigmoid(logits), F.logsigmoid(-logits)
    all_kept = yes.masked_fill(~kept[..., None], 0).sum(1)
    none_kept = no.masked_fill(~kept[..., None], 0).sum(1)
    none_excluded = no.masked_fill(~excluded[..., None], 0).sum(1)
    return torch.where(is_or[:, None], log1mexp(none_kept), all_kept) + none_excluded
