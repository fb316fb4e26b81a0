"""The query parser in torch: a small encoder of its own, and a head of slots.

Slots and logits are described in :mod:`boolattn.query.parsed_query`.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

from boolattn.checksums import check_sums, write_sums
from boolattn.encoders.int8 import dequantise, quantise, read_tensors, write_parts
from boolattn.errors import BoolattnError, ConfigError, DataError
from boolattn.files import atomic_folder
from boolattn.query.parsed_query import ABSENT, GAPS, NEGATED, POSITIVE, ParserLogits, span_labels
from boolattn.settings import build, check_types, limited

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from boolattn.query.parsed_query import ParsedQuery, Span

SETTINGS, TOKENIZER = "parser.json", "tokenizer.json"
_SCALE = ".scale"
#: Smaller matrices are not rounded.
_MIN_VALUES = 65_536
_MAX_BYTES = 15_000_000


@dataclass(frozen=True, kw_only=True)
class ParserConfig:
    """Sizes of the parser.

    Attributes:
        layers: Numbers of the base encoder's layers that are used; empty for all.
        n_slots: Most operands of a query.
        inner: Width of the head.
        n_heads: Of its attention.
        max_tokens: Of a query; the rest is cut off.
    """

    layers: tuple[int, ...] = ()
    n_slots: int = limited(8, least=2)
    inner: int = 256
    n_heads: int = 4
    max_tokens: int = 128

    def __post_init__(self) -> None:
        check_types(self, least=0)
        if self.inner % self.n_heads:
            raise ConfigError(f"inner {self.inner} must be a multiple of n_heads {self.n_heads}")


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
        projected = self.inputs(self.norm(states)).chunk(3, -1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in projected)
        # In full size: onnxruntime does not broadcast a mask over the queries.
        keys = (mask[:, None, None] > 0).expand(-1, -1, mask.shape[1], -1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=keys)
        states = states + self._drop(self.output(seen.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.grown(self.outer_norm(states)))
        return states + self._drop(self.shrunk(inner))

    def _drop(self, values: Tensor) -> Tensor:
        return F.dropout(values, self.dropout, self.training)


class ParserModel(nn.Module):
    """Tags each token for each slot; slots, as the mean of their tokens, attend to the text.

    From the slots' states come their roles and the gaps between them.
    """

    def __init__(self, encoder: Any, config: ParserConfig) -> None:  # noqa: ANN401 - Hugging Face
        super().__init__()
        self.encoder, self.config = encoder, config
        inner, n_slots = config.inner, config.n_slots
        self.input = nn.Linear(encoder.config.hidden_size, inner)
        self.tag = nn.Linear(inner, n_slots)
        self.slots = nn.Parameter(torch.randn(n_slots, inner) * 0.02)
        self.block = _Block(inner, config.n_heads)
        self.norm = nn.LayerNorm(inner)
        self.role = nn.Linear(inner, 3)
        self.gap_inner = nn.Linear(2 * inner, inner)
        self.gap = nn.Linear(inner, len(GAPS))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> ParserLogits:
        """Return the logits of a batch; shapes of the inputs ``(batch, tokens)``."""
        words = self.encoder.get_input_embeddings()(input_ids)
        return self.parse_words(words, attention_mask)

    def parse_words(self, words: Tensor, attention_mask: Tensor) -> ParserLogits:
        """Return the logits for word vectors, ``(batch, tokens, hidden)``."""
        output = self.encoder(inputs_embeds=words, attention_mask=attention_mask)
        states = output.last_hidden_state
        states = F.gelu(self.input(states))
        tags = self.tag(states)
        weights = torch.sigmoid(tags) * attention_mask[..., None].to(tags.dtype)
        owned = weights.transpose(1, 2) @ states / weights.sum(1).clamp(min=1)[..., None]
        joined = torch.cat([owned + self.slots, states], 1)
        ones = torch.ones_like(attention_mask[:, :1]).expand(-1, self.config.n_slots)
        mixed = self.block(joined, torch.cat([ones, attention_mask], 1))
        slots = self.norm(mixed[:, : self.config.n_slots])
        pairs = torch.cat([slots[:, :-1], slots[:, 1:]], -1)
        return ParserLogits(tags, self.role(slots), self.gap(F.gelu(self.gap_inner(pairs))))

    def save(
        self,
        folder: Path,
        tokenizer: Path,
        threshold: float = 0.5,
        report: dict[str, Any] | None = None,
    ) -> None:
        """Write a folder, complete or not at all, with large matrices rounded to 7 bits.

        ``tokenizer`` is a tokenizer's file, ``threshold`` the least confidence of a parse that
        is used, ``report`` what was measured.
        """
        with atomic_folder(folder, replace=True, marker=SETTINGS, finish=write_sums) as draft:
            self.encoder.config.save_pretrained(draft)
            shutil.copyfile(tokenizer, draft / TOKENIZER)
            tensors = {}
            for name, value in self.state_dict().items():
                tensors[name] = value.float().cpu().numpy()
                if value.ndim == 2 and value.numel() >= _MIN_VALUES:
                    tensors[name], tensors[name + _SCALE] = quantise(tensors[name], 0)
            write_parts(tensors, draft, _MAX_BYTES)
            values = {
                "parser": asdict(self.config),
                "threshold": threshold,
                "report": report or {},
            }
            (draft / SETTINGS).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> ParserModel:
        """Read a folder."""
        check_sums(folder)
        try:
            values = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
            config = build(ParserConfig, values["parser"], source=str(folder / SETTINGS))
            settings: Any = AutoConfig.from_pretrained(folder)
            model = cls(AutoModel.from_config(settings, add_pooling_layer=False), config)
        except BoolattnError:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise DataError(f"{folder} is no trained parser: {reason}; train it again") from error
        tensors = read_tensors(sorted(folder.glob("weights-*.safetensors")))
        restored = {
            name: dequantise(value, tensors[name + _SCALE]) if name + _SCALE in tensors else value
            for name, value in tensors.items()
            if not name.endswith(_SCALE)
        }
        try:
            model.load_state_dict({name: torch.tensor(value) for name, value in restored.items()})
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"the weights in {folder} do not fit {SETTINGS}: {reason}") from error
        return model.eval()

    @classmethod
    def from_base(cls, base: Path, config: ParserConfig) -> ParserModel:
        """Start from a pretrained encoder, or from some of its layers."""
        encoder: Any = AutoModel.from_pretrained(base, add_pooling_layer=False)
        n_layers = len(encoder.encoder.layer)
        if unknown := [layer for layer in config.layers if not 0 <= layer < n_layers]:
            raise ConfigError(f"{base} has no layer {unknown[0]}; it has {n_layers}, from 0")
        if config.layers:
            layers = [encoder.encoder.layer[layer] for layer in config.layers]
            encoder.encoder.layer = nn.ModuleList(layers)
            encoder.config.num_hidden_layers = len(layers)
        return cls(encoder, config)


class ParserLabels(NamedTuple):
    """Targets of one query or of a batch, which has one dimension more."""

    tags: Tensor  # 0 or 1. Shape ``(tokens, slots)``.
    roles: Tensor  # ``ABSENT``, ``POSITIVE`` or ``NEGATED``. Shape ``(slots,)``.
    gaps: Tensor  # number in ``GAPS``, -1 where there is none. Shape ``(slots - 1,)``.


def make_parser_labels(parsed: ParsedQuery, offsets: Sequence[Span], n_slots: int) -> ParserLabels:
    """Turn one parsed query into targets; operands beyond the slots are left out.

    ``offsets`` has the characters of each token, ``(0, 0)`` for special tokens.
    """
    tags = torch.zeros(len(offsets), n_slots, dtype=torch.uint8)
    roles = torch.full((n_slots,), ABSENT)
    gaps = torch.full((n_slots - 1,), -1)
    for slot, spans in enumerate(parsed.operands[:n_slots]):
        roles[slot] = NEGATED if parsed.is_negated[slot] else POSITIVE
        tags[:, slot] = torch.tensor(span_labels(spans, offsets))
    for at, gap in enumerate(parsed.gaps[: n_slots - 1]):
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
    total: Tensor = (tags.sum(-1) * mask).sum() / mask.sum() + (roles.sum() + gaps.sum()) / len(
        mask
    )
    return total
