"""The query parser in torch: a small encoder of its own, and a head of slots.

Slots and logits are described in :mod:`boolattn.query.parsed_query`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

from boolattn.checksums import check_sums, write_sums
from boolattn.encoders.int8 import dequantise, quantise
from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_folder
from boolattn.query.parsed_query import ABSENT, GAPS, NEGATED, POSITIVE, ParserLogits, span_labels

if TYPE_CHECKING:
    from boolattn.query.parsed_query import ParsedQuery, Span

SETTINGS, TOKENIZER, WEIGHTS = "parser.json", "tokenizer.json", "model.safetensors"
N_SLOTS, MAX_TOKENS = 8, 128  # most operands of a query, and most tokens; the rest is cut off
_INNER, _N_HEADS = 256, 4  # width of the head, and heads of its attention
_MIN_VALUES = 65_536  # smaller matrices are not rounded


class _Block(nn.Module):
    """A pre-norm layer of attention and feed-forward."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.inputs = nn.Linear(size, 3 * size)
        self.output = nn.Linear(size, size)
        self.outer_norm = nn.LayerNorm(size)
        self.grown = nn.Linear(size, 2 * size)
        self.shrunk = nn.Linear(2 * size, size)
        self.dropout = nn.Dropout(0.1)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        shape = (*states.shape[:2], _N_HEADS, -1)
        projected = self.inputs(self.norm(states)).chunk(3, -1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in projected)
        # In full size: onnxruntime does not broadcast a mask over the queries.
        keys = (mask[:, None, None] > 0).expand(-1, -1, mask.shape[1], -1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=keys)
        states = states + self.dropout(self.output(seen.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.grown(self.outer_norm(states)))
        mixed: Tensor = states + self.dropout(self.shrunk(inner))
        return mixed


class ParserModel(nn.Module):
    """Tags each token for each slot; slots, as the mean of their tokens, attend to the text.

    From the slots' states come their roles and the gaps between them.
    """

    def __init__(self, encoder: Any) -> None:  # noqa: ANN401 - Hugging Face
        super().__init__()
        self.encoder, inner = encoder, _INNER
        self.input = nn.Linear(encoder.config.hidden_size, inner)
        self.tag = nn.Linear(inner, N_SLOTS)
        self.slots = nn.Parameter(torch.randn(N_SLOTS, inner) * 0.02)
        self.block = _Block(inner)
        self.norm = nn.LayerNorm(inner)
        self.role = nn.Linear(inner, 3)
        self.gap_inner = nn.Linear(2 * inner, inner)
        self.gap = nn.Linear(inner, len(GAPS))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> ParserLogits:
        """Return the logits of a batch; shapes of the inputs ``(batch, tokens)``."""
        return self.parse_words(self.encoder.get_input_embeddings()(input_ids), attention_mask)

    def parse_words(self, words: Tensor, attention_mask: Tensor) -> ParserLogits:
        """Return the logits for word vectors, ``(batch, tokens, hidden)``."""
        output = self.encoder(inputs_embeds=words, attention_mask=attention_mask)
        states = F.gelu(self.input(output.last_hidden_state))
        tags = self.tag(states)
        weights = torch.sigmoid(tags) * attention_mask[..., None].to(tags.dtype)
        owned = weights.transpose(1, 2) @ states / weights.sum(1).clamp(min=1)[..., None]
        joined = torch.cat([owned + self.slots, states], 1)
        ones = torch.ones_like(attention_mask[:, :1]).expand(-1, N_SLOTS)
        mixed = self.block(joined, torch.cat([ones, attention_mask], 1))
        slots = self.norm(mixed[:, :N_SLOTS])
        pairs = torch.cat([slots[:, :-1], slots[:, 1:]], -1)
        return ParserLogits(tags, self.role(slots), self.gap(F.gelu(self.gap_inner(pairs))))

    def round_weights(self) -> None:
        """Round large matrices to the 7 bits that an export stores."""
        for weight in self.parameters():
            if weight.ndim == 2 and weight.numel() >= _MIN_VALUES:
                values = dequantise(*quantise(weight.detach().float().cpu().numpy(), 0))
                weight.data.copy_(torch.from_numpy(values))

    def save(self, folder: Path, tokenizer: Path, **settings: Any) -> None:
        """Write a folder, complete or not at all.

        ``tokenizer`` is a tokenizer's file. Of the settings, ``threshold`` is the least confidence
        of a parse that is used, ``report`` what was measured.
        """
        with atomic_folder(folder, replace=True, marker=SETTINGS, finish=write_sums) as draft:
            self.encoder.config.save_pretrained(draft)
            shutil.copyfile(tokenizer, draft / TOKENIZER)
            save_file(self.state_dict(), draft / WEIGHTS)
            text = json.dumps({"threshold": 0.5, "report": {}, **settings}, indent=1)
            (draft / SETTINGS).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ParserModel:
        """Read a folder."""
        check_sums(folder)
        try:
            config: Any = AutoConfig.from_pretrained(folder)
            model = cls(AutoModel.from_config(config, add_pooling_layer=False))
            model.load_state_dict(load_file(folder / WEIGHTS))
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"{folder} is no trained parser: {reason}; train it again") from error
        return model.eval()

    @classmethod
    def from_base(cls, base: Path, layers: Sequence[int] = ()) -> ParserModel:
        """Start from a pretrained encoder, or from some of its layers."""
        encoder: Any = AutoModel.from_pretrained(base, add_pooling_layer=False)
        n_layers = len(encoder.encoder.layer)
        if unknown := [layer for layer in layers if not 0 <= layer < n_layers]:
            raise ConfigError(f"{base} has no layer {unknown[0]}; it has {n_layers}, from 0")
        if layers:
            encoder.encoder.layer = nn.ModuleList(encoder.encoder.layer[layer] for layer in layers)
            encoder.config.num_hidden_layers = len(layers)
        return cls(encoder)


class ParserLabels(NamedTuple):
    """Targets of one query or of a batch, which has one dimension more."""

    tags: Tensor  # 0 or 1. Shape ``(tokens, slots)``.
    roles: Tensor  # ``ABSENT``, ``POSITIVE`` or ``NEGATED``. Shape ``(slots,)``.
    gaps: Tensor  # number in ``GAPS``, -1 where there is none. Shape ``(slots - 1,)``.


def make_parser_labels(parsed: ParsedQuery, offsets: Sequence[Span]) -> ParserLabels:
    """Turn one parsed query into targets; operands beyond the slots are left out.

    ``offsets`` has the characters of each token, ``(0, 0)`` for special tokens.
    """
    tags = torch.zeros(len(offsets), N_SLOTS, dtype=torch.uint8)
    roles = torch.full((N_SLOTS,), ABSENT)
    gaps = torch.full((N_SLOTS - 1,), -1)
    for slot, spans in enumerate(parsed.operands[:N_SLOTS]):
        roles[slot] = NEGATED if parsed.is_negated[slot] else POSITIVE
        tags[:, slot] = torch.tensor(span_labels(spans, offsets))
    for at, gap in enumerate(parsed.gaps[: N_SLOTS - 1]):
        gaps[at] = GAPS.index(gap)
    return ParserLabels(tags, roles, gaps)


def parser_loss(logits: ParserLogits, labels: ParserLabels, mask: Tensor) -> Tensor:
    """Sum of the cross-entropies of tags, roles and gaps; ``mask`` is ``(batch, tokens)``.

    Sums over slots, because most are empty and soon learned: a mean would hide the others.
    """
    tags = F.binary_cross_entropy_with_logits(logits.tags, labels.tags, reduction="none")
    roles = F.cross_entropy(logits.roles.transpose(1, 2), labels.roles, reduction="none")
    gaps = F.cross_entropy(
        logits.gaps.transpose(1, 2), labels.gaps, ignore_index=-1, reduction="none"
    )
    by_token: Tensor = (tags.sum(-1) * mask).sum() / mask.sum()
    return by_token + (roles.sum() + gaps.sum()) / len(mask)
