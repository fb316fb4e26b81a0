"""The torch encoder: any sentence-transformers model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from sentence_transformers.util import batch_to_device
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from boolattn.encoder.bool_bert import QUERY, BoolBertModel
from boolattn.encoder.towers import load_towers, query_encoder, settings_of
from boolattn.encoders.callables import Array, Encoder
from boolattn.encoders.models import torch_folder
from boolattn.errors import ConfigError, GateError
from boolattn.plugin.storage import tensors_hash
from boolattn.query.parser import vocabulary_sum
from boolattn.settings import checked

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Settings that change vectors, and neither names nor shapes of tensors.
_CONFIGURATION = (
    *("model_type", "hidden_act", "hidden_activation", "activation", "layer_norm_eps", "norm_eps"),
    *("num_attention_heads", "n_heads", "relative_attention_num_buckets", "local_attention"),
    *("global_attn_every_n_layers", "boolattn"),
)
_QUERIES_AT_ONCE = 32


class TorchEncoder(Encoder):
    """Any sentence-transformers model as an encoder.

    ``labels`` are oracle labels, operators by query text; they open the gates, not the model's own.

    >>> import boolattn
    >>> encoder = boolattn.TorchEncoder.load(boolattn.shipped_model())
    >>> encoder.encode_queries(["moths of Borneo", "ants"]).shape
    (2, 384)
    """

    def __init__(self, towers: SentenceTransformer) -> None:
        if not hasattr(towers, "eval"):
            raise ConfigError(f"towers are a SentenceTransformer, not {type(towers).__name__}")
        self.towers, self.settings, encoder = towers.eval(), None, None
        with suppress(ConfigError, ValueError):  # a model of another kind, with one tower
            encoder = query_encoder(towers)
            self.settings = settings_of(towers)
        self._bool_bert = encoder if isinstance(encoder, BoolBertModel) else None
        if self._bool_bert is not None:
            self.gate = self._bool_bert.config.boolattn_config.gate.replace("label", "closed")
        self.labels: dict[str, Sequence[str]] = {}
        self.dimension = int(towers.get_embedding_dimension() or 0)
        self.similarity = str(towers.similarity_fn_name)
        # Models without a limit have none, or infinity; no encoder reads more than 8192 tokens.
        self.max_tokens = int(min(getattr(towers, "max_seq_length", None) or 512, 8192))
        if towers.device.type != "cpu":
            self.block_size = 1 << 14  # a whole segment
        self._must_normalise = must_normalise(towers)  # of others no bit may change

    @classmethod
    @checked
    def load(cls, folder: str | Path, *, device: str | None = None) -> TorchEncoder:
        """Load any sentence-transformers folder."""
        return cls(load_towers(torch_folder(folder), device=device))

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Identifies what made a document's vector; an index is bound to it."""
        # Not the weights alone: with another pooling they make other vectors.
        towers, settings = self.towers, str(self.settings)
        if self.settings is None:
            modules = [part for part in towers.modules() if hasattr(part, "pooling_mode")]
            settings = f"{towers.max_seq_length} {[str(part.pooling_mode) for part in modules]}"
        head = f"{self.similarity} {settings} {sorted(towers.prompts.items())}"
        return tensors_hash(towers.state_dict(), head)[:32]

    @property
    def digests(self) -> dict[str, str]:
        """Tokenizer and configuration."""
        digests: dict[str, str] = {}
        tokenizer = getattr(self.towers, "tokenizer", None)
        tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if isinstance(tokenizer, Tokenizer):
            # A copy without the settings that sentence-transformers changes at every call.
            tokenizer = cast("Any", Tokenizer.from_str(tokenizer.to_str()))
            tokenizer.no_padding()
            tokenizer.enable_truncation(self.max_tokens)
            digests["tokenizer"] = vocabulary_sum(tokenizer)
        models = [part for part in self.towers.modules() if isinstance(part, PreTrainedModel)]
        values = [{n: getattr(m.config, n, None) for n in _CONFIGURATION} for m in models]
        if values:
            digests["configuration"] = hashlib.sha256(str(values).encode()).hexdigest()
        return digests

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands by the query tower with every gate closed."""
        if not texts or self._bool_bert is None:
            return self.encode_queries(texts)
        return self._array(encode_queries(self.towers, texts, operators=[()] * len(texts)))

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries by the query tower with its own gate, or by :attr:`labels`."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        if unknown := [text for text in texts if self.labels and text not in self.labels]:
            raise GateError(f"there are no operator labels for the query {unknown[0]!r}")
        if self.labels and self._bool_bert is None:
            raise GateError("this model has no BoolAttn, so labels can open no gate")
        operators = [self.labels[text] for text in texts] if self.labels else None
        return self._array(encode_queries(self.towers, texts, operators=operators))

    def encode_documents(self, texts: Sequence[str], *, batch_size: int | None = None) -> Array:
        """Encode documents. Shape ``(texts, dim)``."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._array(encode_documents(self.towers, texts, batch_size=batch_size))

    def _array(self, vectors: Tensor) -> Array:
        vectors = F.normalize(vectors, dim=-1) if self._must_normalise else vectors
        return cast("Array", vectors.detach().float().cpu().numpy())


@checked
def encode_queries(
    model: SentenceTransformer,
    texts: Sequence[str],
    *,
    operators: Sequence[Sequence[str]] | None = None,
) -> Tensor:
    """Encode queries with oracle operator labels; without these the model's own gate is used.

    ``operators`` has the names of each query's operators; empty for none. Returns ``(texts, dim)``.

    >>> from boolattn import BoolAttnConfig, build_towers
    >>> from boolattn.encoders.models import minilm_folder
    >>> towers = build_towers(minilm_folder(), BoolAttnConfig(gate="label"))
    >>> encode_queries(towers, ["moths but not ants"], operators=[["not"]]).shape
    torch.Size([1, 384])
    """
    if operators is None:
        return model.encode_query(list(texts), convert_to_tensor=True, show_progress_bar=False)
    if not isinstance(query_encoder(model), BoolBertModel):
        raise GateError("this model has no BoolAttn, so operators have no effect")
    if len(texts) != len(operators):
        raise GateError(f"got {len(texts)} texts and operators for {len(operators)}")
    if not texts:
        return torch.zeros(0, model.get_embedding_dimension() or 0)
    model.eval()
    # Sorted by length, as in encode, for less padding.
    order = torch.tensor([-len(text) for text in texts]).argsort(stable=True)
    rows: list[Tensor] = []
    with torch.inference_mode():
        for chosen in order.split(_QUERIES_AT_ONCE):
            features = model.preprocess([texts[i] for i in chosen], task=QUERY)
            features = batch_to_device(features, model.device)
            features["operators"] = [operators[i] for i in chosen]
            rows.append(model(features, task=QUERY)["sentence_embedding"])
    return torch.cat(rows)[order.argsort().to(model.device)]


def encode_documents(
    model: SentenceTransformer, texts: Sequence[str], *, batch_size: int | None = None
) -> Tensor:
    """Encode documents, on a GPU in half precision; the vectors differ by at most 1e-3.

    Returns ``(texts, dim)`` in float32, on the model's device.
    """
    is_half = model.device.type == "cuda"
    options: dict[str, Any] = {"convert_to_tensor": True, "show_progress_bar": False}
    options["batch_size"] = batch_size or (256 if is_half else 32)
    with torch.autocast(model.device.type, torch.float16, enabled=is_half):
        vectors: Tensor = model.encode_document(list(texts), **options).float()
    overflowed = (~vectors.isfinite().all(-1)).nonzero()[:, 0].tolist()
    if is_half and overflowed:
        again = model.encode_document([texts[row] for row in overflowed], **options)
        vectors = vectors.clone()  # encode's own cannot be written
        vectors[overflowed] = again.float()
    return vectors


def must_normalise(model: SentenceTransformer) -> bool:
    """Whether vectors are compared by cosine, and the model does not bring them to length 1."""
    has_lengths = not any(isinstance(part, Normalize) for part in model.children())
    return model.similarity_fn_name == "cosine" and has_lengths
