"""The query parser's head: tags, roles and the joiner, from the states of the query encoder.

Slots and logits are described in :mod:`boolattn.parsing.decoding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.parsing.decoding import NEGATED, POSITIVE, ParserLogits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.logic.parsed_query import ParsedQuery, Span, Spans

N_SLOTS = 6


@dataclass(frozen=True, kw_only=True)
class ParserConfig:
    """Sizes of the head."""

    hidden_size: int  # of the encoder
    n_slots: int = N_SLOTS  # most operands of a query
    inner: int = 256  # width of the hidden layers
    width: int = 3  # tokens in the window of the convolution over the states; 1 for none
    n_states: int = 1  # how many of the encoder's last layers are mixed, with learned weights
    depth: int = 0  # attention layers after the convolution
    n_heads: int = 4  # of each attention layer

    def __post_init__(self) -> None:
        if self.n_states < 1:
            raise ConfigError(f"n_states must be at least 1, got {self.n_states}")
        if self.depth and self.inner % self.n_heads:
            raise ConfigError(f"inner {self.inner} must be a multiple of n_heads {self.n_heads}")
        if self.n_slots < 2:
            raise ConfigError(f"n_slots must be at least 2, got {self.n_slots}")
        if self.width % 2 == 0:
            raise ConfigError(f"width must be odd, got {self.width}")


class _Mixture(nn.Module):
    """A learned mixture of several layers' states; the last alone is shaped by retrieval."""

    def __init__(self, n_states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_states))

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        shares = self.weights.softmax(-1)
        last = states[-len(shares) :]
        # Normalised first: layers differ in scale, and the largest would dominate.
        parts = [F.layer_norm(state, state.shape[-1:]) for state in last]
        return torch.stack([share * part for share, part in zip(shares, parts, strict=True)]).sum(0)


class _Block(nn.Module):
    """A pre-norm layer of attention and feed-forward."""

    def __init__(self, size: int, n_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.norm = nn.LayerNorm(size)
        self.inputs = nn.Linear(size, 3 * size)
        self.output = nn.Linear(size, size)
        self.outer_norm = nn.LayerNorm(size)
        self.grown = nn.Linear(size, 2 * size)
        self.shrunk = nn.Linear(2 * size, size)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        shape = (*states.shape[:2], self.n_heads, -1)
        parts = self.inputs(self.norm(states)).chunk(3, -1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        # In full size: onnxruntime does not broadcast a mask over the queries.
        keys = (mask[:, None, None] > 0).expand(-1, -1, mask.shape[1], -1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=keys)
        states = states + self._drop(self.output(seen.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.grown(self.outer_norm(states)))
        return states + self._drop(self.shrunk(inner))

    def _drop(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.dropout, self.training)


class ParserHead(nn.Module):
    """Tags each token for each slot, and from the tagged tokens predicts the slots' roles."""

    def __init__(self, config: ParserConfig) -> None:
        super().__init__()
        self.config = config
        hidden, inner, n_slots = config.hidden_size, config.inner, config.n_slots
        self.mixture = _Mixture(config.n_states) if config.n_states > 1 else None
        self.norm = nn.LayerNorm(hidden)
        self.mix = nn.Conv1d(hidden, inner, config.width, padding=config.width // 2)
        self.blocks = nn.ModuleList(_Block(inner, config.n_heads) for _ in range(config.depth))
        self.tag = nn.Linear(inner, n_slots)
        self.slots = nn.Parameter(torch.randn(n_slots, inner) * 0.02)
        self.role_inner = nn.Linear(3 * inner, inner)
        self.role = nn.Linear(inner, 3)
        self.joiner_inner = nn.Linear(2 * inner, inner)
        self.joiner = nn.Linear(inner, 1)

    def forward(self, layers: Sequence[Tensor], mask: Tensor) -> ParserLogits:
        """Return the logits of a batch.

        ``layers`` are states of the encoder's layers, the last one last, at least as many as are
        mixed, each ``(batch, tokens, hidden)``; ``mask`` is ``(batch, tokens)``.
        """
        states = layers[-1] if self.mixture is None else self.mixture(layers)
        # The encoder may run in half precision; the head stays in its own.
        states = states.to(self.norm.weight.dtype)
        mask = mask.to(states.dtype)
        states = self.norm(states) * mask[..., None]
        mixed = F.gelu(self.mix(states.transpose(1, 2)).transpose(1, 2)) * mask[..., None]
        for block in self.blocks:
            mixed = block(mixed, mask) * mask[..., None]
        tags = self.tag(mixed)
        weights = torch.sigmoid(tags) * mask[..., None]
        owned = torch.einsum("blk,bld->bkd", weights, mixed)
        owned = owned / weights.sum(1).clamp(min=1)[..., None]
        # Words of no operand say how the operands are joined.
        rest = (1 - weights).prod(-1) * mask
        free = torch.einsum("bl,bld->bd", rest, mixed) / rest.sum(-1, keepdim=True).clamp(min=1)
        mean = mixed.sum(1) / mask.sum(-1, keepdim=True).clamp(min=1)
        whole = torch.cat([free, mean], -1)
        around = whole[:, None].expand(-1, self.config.n_slots, -1)
        roles = self.role(F.gelu(self.role_inner(torch.cat([owned + self.slots, around], -1))))
        return ParserLogits(tags, roles, self.joiner(F.gelu(self.joiner_inner(whole)))[..., 0])


class ParserLabels(NamedTuple):
    """Targets of a batch."""

    tags: Tensor  # 0 or 1. Shape ``(batch, tokens, slots)``.
    roles: Tensor  # ``ABSENT``, ``POSITIVE`` or ``NEGATED``. Shape ``(batch, slots)``.
    is_or: Tensor  # 0 or 1. Shape ``(batch,)``.


def make_parser_labels(
    parses: Sequence[ParsedQuery], offsets: Sequence[Sequence[Span]], n_slots: int
) -> ParserLabels:
    """Turn parsed queries into targets; operands beyond the slots are left out.

    ``offsets`` has the characters of each token, ``(0, 0)`` for special tokens.
    """
    longest = max(map(len, offsets))
    tags = torch.zeros(len(parses), longest, n_slots)
    roles = torch.zeros(len(parses), n_slots, dtype=torch.int64)
    is_or = torch.tensor(
        [float(any(gap.operator is Operator.OR for gap in parsed.gaps)) for parsed in parses]
    )
    for row, (parsed, tokens) in enumerate(zip(parses, offsets, strict=True)):
        for slot, (spans, role) in enumerate(slots_of(parsed)[:n_slots]):
            roles[row, slot] = role
            for place, (start, end) in enumerate(tokens):
                if start < end and any(start < stop and begin < end for begin, stop in spans):
                    tags[row, place, slot] = 1
    return ParserLabels(tags, roles, is_or)


def slots_of(parsed: ParsedQuery) -> list[tuple[Spans, int]]:
    """Return the operands in the order of the text, each with its role."""
    roles = [NEGATED if negated else POSITIVE for negated in parsed.is_negated]
    return list(zip(parsed.operands, roles, strict=True))


def parser_loss(
    logits: ParserLogits, labels: ParserLabels, mask: Tensor, is_known: Tensor | None = None
) -> Tensor:
    """Sum of the cross-entropies of tags, roles and joiner; the joiner's only where it matters.

    ``mask`` has the shape ``(batch, tokens)``. ``is_known`` says which texts have targets, by
    default all; its shape is ``(batch,)``.
    """
    known = torch.ones(len(mask), device=mask.device) if is_known is None else is_known.float()
    weights = (mask * known[:, None])[..., None].expand_as(logits.tags)
    tags = F.binary_cross_entropy_with_logits(logits.tags, labels.tags, reduction="none")
    roles = F.cross_entropy(logits.roles.transpose(1, 2), labels.roles, reduction="none").sum(-1)
    joined = ((labels.roles == POSITIVE).sum(-1) > 1) * known
    joiner = F.binary_cross_entropy_with_logits(logits.joiner, labels.is_or, reduction="none")
    # Sums over slots, because most are empty and soon learned: a mean would hide the others.
    total: Tensor = (
        logits.tags.shape[-1] * (tags * weights).sum() / weights.sum().clamp(min=1)
        + (roles * known).sum() / known.sum().clamp(min=1)
        + (joiner * joined).sum() / joined.sum().clamp(min=1)
    )
    return total
