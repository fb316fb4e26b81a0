"""The scope and bias experts of one encoder layer: the reference of every faster form."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.attention.config import BoolAttnConfig  # noqa: TC001
from boolattn.attention.factors import AttentionBias, Factors, bias_factors
from boolattn.attention.gate import Gate, straight_through

N_COMPARED = 64  # tokens of the longest text for which all pairs of tokens are compared


class ScopePredictor(nn.Module):
    r"""Conv1D over hidden state and cue, FiLM by operator, Gumbel-sigmoid, threshold.

    .. math:: S_e = \gamma(o_e) \odot \mathrm{Conv1D}_e([H; p_e]) + \beta(o_e), \qquad
              s = \mathbf{1}[P(S) > \theta_e]

    A learned :math:`\theta` leaves the range of a probability, and then every token is in scope or
    none (error 6); bounded, it is :math:`\sigma(t_e)`.

    The experts of all operators are stacked: one output channel for each operator and head. The
    convolution is one matrix product followed by shifts, which needs no transposed hidden state.
    """

    def __init__(self, config: BoolAttnConfig, feature_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        self.shape = (config.kernel, len(config.operators), n_heads)
        # Initialised as a Conv1d of (feature_size + 1) channels.
        bound = 1 / math.sqrt((feature_size + 1) * config.kernel)
        self.hidden_weight = nn.Parameter(uniform(bound, math.prod(self.shape), feature_size))
        self.cue_weight = nn.Parameter(uniform(bound, *self.shape))
        self.bias = nn.Parameter(uniform(bound, len(config.operators), n_heads))
        self.film = nn.Linear(config.d_o, 2 * n_heads)  # scale and shift
        first = torch.full((len(config.operators),), config.threshold)
        self.threshold = nn.Parameter(first.logit() if config.bounded_scope else first)

    def forward(
        self, hidden: Tensor, cue: Tensor, mask: Tensor, operators: Tensor, scopable: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Predict which tokens are in scope: logits and result, as in :class:`LayerBias`.

        Args:
            hidden: Input of the layer's self-attention. Shape ``(batch, tokens, features)``.
            cue: Cue probabilities, 0 on padding. Shape ``(batch, tokens, operators)``.
            mask: 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
            operators: Operator embeddings. Shape ``(operators, d_o)``.
            scopable: 1 for tokens that can be in scope. Shape as the mask.
        """
        scale, shift = self.film(operators).chunk(2, dim=-1)
        shift = torch.addcmul(shift, scale, self.bias)
        logits = torch.addcmul(shift, scale, self.conv(hidden, cue, mask))
        if self.training and self.config.use_noise:
            probability = gumbel_sigmoid(logits, self.config.scope_temperature)
        else:
            probability = torch.sigmoid(logits / self.config.scope_temperature)
        threshold: Tensor = self.threshold
        if self.config.bounded_scope:
            logits = logits / self.config.scope_temperature - threshold[:, None]
            threshold = torch.sigmoid(threshold)
        margin = probability - threshold[:, None]
        return logits, straight_through(margin > 0, margin) * scopable[..., None, None]

    def conv(self, hidden: Tensor, cue: Tensor, mask: Tensor) -> Tensor:
        """Convolve ``[H; p]`` without the bias. Shape ``(batch, tokens, operators, heads)``."""
        taps = F.linear(hidden, self.hidden_weight).view(*hidden.shape[:2], *self.shape)
        taps = torch.addcmul(taps, cue[:, :, None, :, None], self.cue_weight)
        reach = self.config.kernel // 2
        # Padding must not change its neighbours.
        taps = F.pad(taps * mask[:, :, None, None, None], (0, 0, 0, 0, 0, 0, reach, reach))
        # unbind: its backward pass is one stack, where indexing makes a tensor for each tap.
        shifted = [tap[:, k : k + hidden.shape[1]] for k, tap in enumerate(taps.unbind(2))]
        return torch.stack(shifted).sum(0) if len(shifted) > 3 else sum(shifted[1:], shifted[0])


def gumbel_sigmoid(logits: Tensor, temperature: float) -> Tensor:
    r"""Sample a relaxed Bernoulli: :math:`\sigma((z + g_1 - g_2)/\tau)`, g standard Gumbel.

    The difference of two Gumbel draws is one logistic draw. It comes from torch's global
    generator, which gradient checkpointing restores.
    """
    # Clipped, because at 0 and 1 the noise is infinite.
    noise = torch.logit(torch.rand_like(logits, dtype=torch.float32), eps=1e-6)
    return torch.sigmoid((logits + noise.to(logits.dtype)) / temperature)


def is_traced(device: torch.device) -> bool:
    """Whether a compiler or a CUDA graph records; a graph's tensors live in its own memory."""
    is_captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return torch.compiler.is_compiling() or is_captured


def squared_distance(config: BoolAttnConfig, n_tokens: int, device: torch.device) -> Tensor:
    """Return squared relative positions. Shape ``(operators, tokens, cues)``.

    For AND and OR the distance is symmetric and clipped to the window. NOT acts forward only:
    the paper's ``max(0, i - c)`` gives every earlier token distance 0, where the weight is
    largest (error 2); in the corrected variant an earlier token has weight 0.
    """
    at = torch.arange(n_tokens, device=device, dtype=torch.float32)
    offset = at[:, None] - at
    mutual = offset.clamp(-config.window, config.window).square()
    forward = offset.clamp(min=0).square()
    if not config.is_paper:
        forward = forward.masked_fill(offset < 0, 1e12)  # its weight and gradient are exactly 0
    return torch.stack([mutual, mutual, forward])


def words(mask: Tensor) -> Tensor:
    """Mark all tokens of a text but the first and the last, [CLS] and [SEP]. As the mask."""
    count = (mask != 0).cumsum(-1)
    return (mask != 0) & (count > 1) & (count < count[:, -1:])


def position_precision(sigma: Tensor) -> Tensor:
    """Return what squared distances are multiplied by; training can move sigma to 0."""
    return 0.5 / sigma.float().square().clamp(min=1e-4)


def position_weight(config: BoolAttnConfig, cue: Tensor, sigma: Tensor) -> Tensor:
    r"""Weight of every token, by the nearest probable cue. Shape as ``cue``.

    .. math:: w_i = \max_c \; p_c \exp(-r_{ic}^2 / 2\sigma^2)

    The paper has one cue position ``c``, undefined for several cues (error 4); the paper variant
    takes the most probable, ``argmax p``, without ``p``. Long texts need no tensor of all pairs.

    Cue probabilities are ``(batch, operators, tokens)``; ``sigma``, widths, is ``(operators,)``.
    """
    precision = position_precision(sigma)
    n_tokens = cue.shape[-1]
    if n_tokens > N_COMPARED and not config.is_paper and not is_traced(cue.device):
        rows = zip(cue.unbind(1), precision, config.operators, strict=True)
        return torch.stack([_along(*row, config.window) for row in rows], 1)
    squared = squared_distance(config, n_tokens, cue.device)
    if config.is_paper:
        # (operators, cues, tokens) at each operator's most probable cue.
        at = torch.arange(len(sigma), device=cue.device)
        distance = squared.transpose(1, 2)[at, cue.argmax(-1)]
        return torch.exp(-distance * precision[:, None])
    return (torch.exp(-squared * precision[:, None, None]) * cue[:, :, None]).amax(-1)


def _along(cue: Tensor, precision: Tensor, operator: str, window: int) -> Tensor:
    """Return one operator's weights, in memory that grows with the tokens; ``(batch, tokens)``.

    Only cues within reach are compared: for AND and OR those of the window, because beyond it
    the distance is clipped; for NOT those whose weight is not 0 in float32.
    """
    before = after = window
    if operator == "not":
        reach = math.ceil(math.sqrt(104 / precision.item()))  # exp(-104) is 0 in float32
        before, after = min(cue.shape[-1] - 1, reach), 0
    near = F.pad(cue, (before, after)).unfold(-1, before + after + 1, 1)
    offset = torch.arange(-before, after + 1, device=cue.device)
    weight = (near * torch.exp(-offset.square() * precision)).amax(-1)
    if operator == "not":
        return weight
    beyond = cue.amax(-1, keepdim=True) * torch.exp(-(window**2) * precision)
    return torch.maximum(weight, beyond)


class BiasPredictor(nn.Module):
    r"""Predicts a strength for each head from the hidden state and the distance to the cue.

    .. math:: b_e = \mathrm{softplus}\big(\mathrm{FFN}_e([H; w_e]) \odot \sigma(W_{op} o_e)\big)

    The experts of all operators are stacked in one matrix product. With a ``rank`` the hidden
    state is already projected, and that projection is the first layer of every expert's FFN.
    """

    def __init__(self, config: BoolAttnConfig, feature_size: int, n_heads: int) -> None:
        super().__init__()
        n_operators = len(config.operators)
        n_inner = config.rank or feature_size // 2
        self.inner = nn.Linear(feature_size, n_operators * n_inner) if not config.rank else None
        bound = 1 / math.sqrt(feature_size + 1)
        if config.rank:
            self.inner_bias = nn.Parameter(uniform(bound, n_operators, n_inner))
        self.position_weight = nn.Parameter(uniform(bound, n_operators, n_inner))
        bound = 1 / math.sqrt(n_inner)
        self.outer_weight = nn.Parameter(uniform(bound, n_operators, n_inner, n_heads))
        self.outer_bias = nn.Parameter(uniform(bound, n_operators, 1, n_heads))
        self.operator = nn.Linear(config.d_o, n_heads, bias=False)
        self.sigma = nn.Parameter(torch.full((n_operators,), float(config.sigma)))

    def forward(self, hidden: Tensor, position: Tensor, operators: Tensor) -> Tensor:
        """Return strengths, at least 0. Shape ``(batch, tokens, operators, heads)``.

        The input of self-attention is ``(batch, tokens, features)``, the weight around the cues
        ``(batch, operators, tokens)``, the operators' embeddings are ``(operators, d_o)``.
        """
        if self.inner is None:
            inner = hidden[:, :, None] + self.inner_bias
        else:
            inner = self.inner(hidden).unflatten(-1, self.position_weight.shape)
        near = position.transpose(1, 2)[..., None].to(hidden.dtype)
        inner = torch.addcmul(inner, near, self.position_weight).relu_()
        # (batch, tokens, operators, inner) as one matrix for each operator.
        experts = inner.flatten(0, 1).transpose(0, 1)
        scores = torch.baddbmm(self.outer_bias, experts, self.outer_weight)
        scores = F.softplus(scores * torch.sigmoid(self.operator(operators))[:, None])
        return scores.view(len(scores), *hidden.shape[:2], -1).permute(1, 2, 0, 3)


def uniform(bound: float, *shape: int) -> Tensor:
    """Initial values of a linear layer or a convolution."""
    return torch.empty(shape).uniform_(-bound, bound)


@dataclass(frozen=True)
class CueState:
    """Cues and gate of a batch, computed before the first layer and used by every layer."""

    mask: Tensor  # 1 for tokens, 0 for padding. Shape ``(batch, tokens)``.
    scopable: Tensor  # 1 for tokens that can be in scope. Same shape.
    gate: Gate
    cue_logits: Tensor  # shape ``(batch, operators, tokens)``
    cue: Tensor  # cue probabilities, 0 on padding. Same shape.


@dataclass(frozen=True)
class LayerBias(AttentionBias):
    """One layer's scopes, ``(batch, tokens, operators, heads)``, and its bias as factors."""

    logits: Tensor  # without noise; less a bounded threshold's, so that above 0 is in scope
    inside: Tensor  # 1 in scope, 0 outside or where none can be, with straight-through gradients
    factors: Factors

    def attention_before(self, attention: Tensor) -> Tensor:
        """Return what attention weights would be without this bias, in float64."""
        # softmax(z + b) / e^b, normalised, is softmax(z).
        before = attention.double() * torch.exp(-self.factors.dense().double())
        return before / before.sum(-1, keepdim=True)


class BoolAttnLayer(nn.Module):
    """Scope and bias experts of one encoder layer.

    A strength that is above 0 from the start disturbs the encoder before anything is learned
    (error 7); corrected, a learned factor of each operator and head multiplies it, 0 at first.
    """

    factor: Tensor | None

    def __init__(self, config: BoolAttnConfig, hidden_size: int, n_heads: int) -> None:
        super().__init__()
        self.config = config
        n_features = config.rank or hidden_size
        self.head_size = hidden_size // n_heads
        self.reduce = nn.Linear(hidden_size, config.rank) if config.rank else nn.Identity()
        self.scope = ScopePredictor(config, n_features, n_heads)
        self.bias = BiasPredictor(config, n_features, n_heads)
        factor = nn.Parameter(torch.zeros(len(config.operators), n_heads))
        self.register_parameter("factor", factor if config.use_factor else None)

    def forward(self, hidden: Tensor, cues: CueState, operators: Tensor) -> LayerBias:
        r"""Compute the bias that is added to this layer's scores.

        .. math:: \sum_{e \in \{and, or\}} G_e\, f_e\, s_i s_j b_j \;-\; G_{not}\, f_{not}\, s_j b_j

        The input of self-attention is ``(batch, tokens, hidden)``, the operators' embeddings are
        ``(operators, d_o)``, and the cues are from :meth:`BoolAttn.find_cues`.
        """
        hidden = self.reduce(hidden)
        cue = cues.cue.transpose(1, 2).to(hidden.dtype)
        mask, scopable = (part.to(hidden.dtype) for part in (cues.mask, cues.scopable))
        logits, inside = self.scope(hidden, cue, mask, operators, scopable)
        position = position_weight(self.config, cues.cue, self.bias.sigma)
        strength = self.bias(hidden, position, operators)
        if self.config.fixed_bias is not None:
            # The predictor keeps a gradient, of 0.
            strength = 0.0 * strength + self.config.fixed_bias
        if self.factor is not None:
            strength = strength * self.factor
        weight = strength * cues.gate.open[:, None, :, None]
        weight = inside * weight.to(inside.dtype)
        factors = bias_factors(inside, weight, self.head_size, is_paper=self.config.is_paper)
        return LayerBias(logits, inside, factors)
