"""Reading a query: which words belong to which operand, which operands are kept, and the joiner.

One small head on the query encoder's last states. A slot is an operand in the order of the text;
a word may belong to several slots, because in "moths of Borneo but not Sumatra" the moths are
both operands'. May import: boolattn.logic.parsed_query, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.errors import ConfigError
from boolattn.logic.operators import Operator
from boolattn.logic.parsed_query import ParsedQuery, in_text_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.logic.parsed_query import Span, Spans

ABSENT, POSITIVE, NEGATED = 0, 1, 2
N_SLOTS = 6


@dataclass(frozen=True, kw_only=True)
class ParserConfig:
    """What a reader is made of.

    Attributes:
        hidden_size: Of the encoder.
        n_slots: Most operands that are told apart.
        inner: Width of the hidden layers.
        width: Tokens that the convolution over the states sees; 1 reads each by itself.
        n_states: How many of the encoder's last layers are read, in a mixture that is learned.
        depth: Attention layers between the convolution and what is said of tokens and slots.
        n_heads: Of each of these.
    """

    hidden_size: int
    n_slots: int = N_SLOTS
    inner: int = 256
    width: int = 3
    n_states: int = 1
    depth: int = 0
    n_heads: int = 4

    def __post_init__(self) -> None:
        if self.n_states < 1:
            raise ConfigError(f"n_states must be at least 1, got {self.n_states}")
        if self.depth and self.inner % self.n_heads:
            raise ConfigError(f"inner {self.inner} must be a multiple of n_heads {self.n_heads}")
        if self.n_slots < 2:
            raise ConfigError(f"n_slots must be at least 2, got {self.n_slots}")
        if self.width % 2 == 0:
            raise ConfigError(f"width must be odd, got {self.width}")


class ParserLogits(NamedTuple):
    """What the head says of a batch, as logits.

    Attributes:
        tags: Whether a token belongs to a slot. Shape ``(batch, tokens, slots)``.
        roles: Whether a slot is absent, kept or excluded. Shape ``(batch, slots, 3)``.
        joiner: Whether OR joins the kept ones, rather than AND. Shape ``(batch,)``.
    """

    tags: Tensor
    roles: Tensor
    joiner: Tensor


class _Mixture(nn.Module):
    """One state a token out of several layers': a sentence's vector leaves the last one poorer."""

    def __init__(self, n_states: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(n_states))

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        shares = self.weights.softmax(-1)
        last = states[-len(shares) :]
        # Each is brought to one length first: layers differ in it, and the longest would win.
        parts = [F.layer_norm(state, state.shape[-1:]) for state in last]
        return torch.stack([share * part for share, part in zip(shares, parts, strict=True)]).sum(0)


class _Block(nn.Module):
    """Attention and a feed-forward layer, with the norms before them."""

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
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None] > 0)
        states = states + self._drop(self.output(seen.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.grown(self.outer_norm(states)))
        return states + self._drop(self.shrunk(inner))

    def _drop(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.dropout, self.training)


class ParserHead(nn.Module):
    """The head: a tag for each token and slot, and from the tagged tokens a role for each slot."""

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
        """Read a batch.

        Args:
            layers: The states of each of the encoder's layers, the last at the end; as many as
                are mixed are enough. Each ``(batch, tokens, hidden)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
        """
        states = layers[-1] if self.mixture is None else self.mixture(layers)
        # An encoder may compute in half precision, for speed; so small a head has no need to.
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
        # What no operand owns says how they are joined.
        rest = (1 - weights).prod(-1) * mask
        free = torch.einsum("bl,bld->bd", rest, mixed) / rest.sum(-1, keepdim=True).clamp(min=1)
        mean = mixed.sum(1) / mask.sum(-1, keepdim=True).clamp(min=1)
        whole = torch.cat([free, mean], -1)
        around = whole[:, None].expand(-1, self.config.n_slots, -1)
        roles = self.role(F.gelu(self.role_inner(torch.cat([owned + self.slots, around], -1))))
        return ParserLogits(tags, roles, self.joiner(F.gelu(self.joiner_inner(whole)))[..., 0])


class ParserLabels(NamedTuple):
    """What a batch should be read as.

    Attributes:
        tags: 0 or 1. Shape ``(batch, tokens, slots)``.
        roles: :data:`ABSENT`, :data:`KEPT` or :data:`EXCLUDED`. Shape ``(batch, slots)``.
        is_or: 0 or 1. Shape ``(batch,)``.
    """

    tags: Tensor
    roles: Tensor
    is_or: Tensor


def make_parser_labels(
    readings: Sequence[ParsedQuery], offsets: Sequence[Sequence[Span]], n_slots: int
) -> ParserLabels:
    """Turn readings into labels.

    Args:
        readings: How each text is to be read; one with more operands than slots loses the last.
        offsets: Characters of each token, ``(0, 0)`` for the marks around a text.
        n_slots: Of the reader.
    """
    longest = max(map(len, offsets))
    tags = torch.zeros(len(readings), longest, n_slots)
    roles = torch.zeros(len(readings), n_slots, dtype=torch.int64)
    is_or = torch.tensor([float(reading.joiner is Operator.OR) for reading in readings])
    for row, (reading, tokens) in enumerate(zip(readings, offsets, strict=True)):
        for slot, (spans, role) in enumerate(slots_of(reading)[:n_slots]):
            roles[row, slot] = role
            for place, (start, end) in enumerate(tokens):
                if start < end and any(start < stop and begin < end for begin, stop in spans):
                    tags[row, place, slot] = 1
    return ParserLabels(tags, roles, is_or)


def slots_of(reading: ParsedQuery) -> list[tuple[Spans, int]]:
    """Return a reading's operands in the order of the text, each with its role."""
    roles = dict.fromkeys(reading.positive, POSITIVE) | dict.fromkeys(reading.negated, NEGATED)
    operands = [*reading.positive, *reading.negated]
    return [(spans, roles[spans]) for spans in in_text_order(operands, operands)]


def parser_loss(
    read: ParserLogits, labels: ParserLabels, mask: Tensor, is_known: Tensor | None = None
) -> Tensor:
    """Cross-entropies of tags, roles and joiner, added; the joiner's where something is joined.

    Args:
        read: The head's logits.
        labels: What they should say.
        mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
        is_known: Which texts have labels; left out, all. Shape ``(batch,)``.
    """
    known = torch.ones(len(mask), device=mask.device) if is_known is None else is_known.float()
    weights = (mask * known[:, None])[..., None].expand_as(read.tags)
    tags = F.binary_cross_entropy_with_logits(read.tags, labels.tags, reduction="none")
    roles = F.cross_entropy(read.roles.transpose(1, 2), labels.roles, reduction="none").sum(-1)
    joined = ((labels.roles == POSITIVE).sum(-1) > 1) * known
    joiner = F.binary_cross_entropy_with_logits(read.joiner, labels.is_or, reduction="none")
    # Sums over slots: most are empty and soon learned, so a mean would hide the others.
    return (
        read.tags.shape[-1] * (tags * weights).sum() / weights.sum().clamp(min=1)
        + (roles * known).sum() / known.sum().clamp(min=1)
        + (joiner * joined).sum() / joined.sum().clamp(min=1)
    )


@dataclass(frozen=True)
class ParserOutput:
    """A reading, and how sure its structure is, and its least sure word."""

    parsed: ParsedQuery | None
    structure: float
    words: float

    @property
    def confidence(self) -> float:
        """How probable the structure is; 0 where words are missing.

        The least sure word says little: it is nearly always a small one, such as "of".
        """
        return self.structure if self.words else 0.0


def decode(read: ParserLogits, text: str, offsets: Sequence[Span], row: int) -> ParserOutput:
    """Turn the logits of one text into a reading.

    Tags are settled word by word, so that no operand begins inside one.

    Args:
        read: Of the batch, on the CPU.
        text: The query.
        offsets: Characters of each of its tokens.
        row: Of the batch.

    Returns:
        A reading of ``None`` where an operand has no words, or nothing is kept, or what is excluded
        has no word that is not also kept: "beetles of Spain, but no beetles" is misread.
    """
    roles = read.roles[row].float().softmax(-1)
    best = roles.argmax(-1)
    present = [slot for slot in range(len(best)) if best[slot] != ABSENT]
    structure = float(roles.amax(-1).prod())
    is_or = float(torch.sigmoid(read.joiner[row].float()))
    n_kept = sum(int(best[slot]) == POSITIVE for slot in present)
    if n_kept > 1:
        structure *= max(is_or, 1 - is_or)
    if not n_kept:
        return ParserOutput(None, structure, 0.0)
    spans, surest = word_spans(read.tags[row].float().sigmoid(), text, offsets, present)
    named = [(int(best[slot]), own) for slot, own in zip(present, spans, strict=True)]
    if (len(present) > 1 and not all(spans)) or _excludes_what_is_kept(named):
        return ParserOutput(None, structure, 0.0)
    reading = ParsedQuery(
        tuple(own for role, own in named if role == POSITIVE),
        tuple(own for role, own in named if role == NEGATED),
        Operator.OR if n_kept > 1 and is_or > 0.5 else Operator.AND,
    )
    return ParserOutput(reading, structure, surest)


def _excludes_what_is_kept(named: Sequence[tuple[int, Spans]]) -> bool:
    kept = {p for role, spans in named if role == POSITIVE for span in spans for p in range(*span)}
    return any(
        all(place in kept for span in spans for place in range(*span))
        for role, spans in named
        if role == NEGATED
    )


def word_spans(
    probabilities: Tensor, text: str, offsets: Sequence[Span], slots: Sequence[int]
) -> tuple[list[Spans], float]:
    """Return each slot's spans, neighbouring words as one, and the least sure word's certainty."""
    words: list[tuple[int, int, Tensor]] = []
    for place, (start, end) in enumerate(offsets):
        if start == end:
            continue
        if words and words[-1][1] == start and text[start - 1].isalnum() and text[start].isalnum():
            first, _, total = words[-1]
            words[-1] = (first, end, torch.maximum(total, probabilities[place]))
        else:
            words.append((start, end, probabilities[place]))
    found: list[Spans] = []
    surest = 1.0
    for slot in slots:
        spans: list[Span] = []
        for start, end, values in words:
            p = float(values[slot])
            surest = min(surest, max(p, 1 - p))
            if p <= 0.5:
                continue
            if spans and not text[spans[-1][1] : start].strip():
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        found.append(tuple(spans))
    return found, surest
