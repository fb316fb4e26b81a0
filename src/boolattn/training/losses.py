"""The losses: cue, scope and gate for the heads, softmax for the vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor
from torch.nn import functional as F


def cue_loss(logits: Tensor, labels: Tensor, mask: Tensor, *, positive_weight: float = 1) -> Tensor:
    r"""Binary cross-entropy of every token as a cue of every operator.

    .. math:: -\frac{1}{\sum m \cdot E} \sum_{b,e,l} m_{bl}
              \big(w\, y_{bel} \log p_{bel} + (1 - y_{bel}) \log (1 - p_{bel})\big)

    Logits and labels are ``(batch, operators, tokens)``, the mask ``(batch, tokens)``; ``w`` is
    the weight of cues, about one token in ten.
    """
    return weighted_mean(_cross_entropy(logits, labels, positive_weight), mask[:, None])


def gate_loss(logits: Tensor, labels: Tensor, *, temperature: float) -> Tensor:
    """Binary cross-entropy of every operator of a text; the gate divides by the temperature.

    Logits and labels are ``(batch, operators)``.
    """
    return _cross_entropy(logits / temperature, labels).mean()


def scope_loss(logits: Sequence[Tensor], labels: Tensor, has_scope: Tensor, mask: Tensor) -> Tensor:
    """Binary cross-entropy of every token's scope, in every layer and every head.

    Each head has its own loss, not the mean of the heads: the threshold is applied head by head,
    and a mean can be right where no single head is. Logits, one for each layer, are ``(batch,
    tokens, operators, heads)``, labels ``(batch, operators, tokens)``, the mask ``(batch, tokens)``
    and ``has_scope``, the operators that are used and of known scope, ``(batch, operators)``.
    """
    wanted = labels.transpose(1, 2)[..., None]
    weights = (mask[:, :, None] * has_scope[:, None])[..., None]
    losses = [weighted_mean(_cross_entropy(layer, wanted), weights) for layer in logits]
    return torch.stack(losses).mean()


def softmax_loss(
    queries: Tensor,
    documents: Tensor,
    targets: Tensor,
    blocked: Tensor,
    *,
    similarity: str = "cosine",
    scale: float = 20,
) -> Tensor:
    r"""Cross-entropy of the positive against its negatives and the whole batch.

    .. math:: -\frac{1}{B} \sum_i \log \frac{e^{\lambda s(q_i, d_{t_i})}}
              {\sum_{j \notin \mathrm{blocked}_i} e^{\lambda s(q_i, d_j)}}

    ``targets`` are the positives' columns. ``blocked``, ``(batch, documents)``, is true where a
    document is relevant to the query too, so that it is no negative; never at the target.
    """
    compare = {"cosine": cos_sim, "dot": dot_score}[similarity]
    # Half precision has too few digits for the difference of two scores near 20.
    with torch.autocast(queries.device.type, enabled=False):
        scores = scale * compare(queries.float(), documents.float())
        return F.cross_entropy(scores.masked_fill(blocked, -torch.inf), targets)


def _cross_entropy(logits: Tensor, labels: Tensor, positive_weight: float = 1) -> Tensor:
    # Filled on the device: a recorded pass takes no value from the host.
    weight = torch.full((), positive_weight, device=logits.device, dtype=torch.float32)
    return F.binary_cross_entropy_with_logits(
        logits.float(), labels.float().expand_as(logits), pos_weight=weight, reduction="none"
    )


def weighted_mean(loss: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over elements of weight 1; 0 where there is none."""
    weights = weights.to(loss.dtype).expand_as(loss)
    return (loss * weights).sum() / weights.sum().clamp(min=1)
