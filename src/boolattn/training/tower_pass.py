"""The forward pass of both towers.

Documents may come without padding: texts laid end to end, each with its own attention. The vectors
are those of padded batches. Texts of very different length cost no more than their tokens, and all
of a training step fit into one forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from boolattn.encoder.towers import DOCUMENT, query_encoder, settings_of, tower_of
from boolattn.plugin.backend import BACKENDS, PACKED, recording
from boolattn.training.batches.tokens import MULTIPLE, N_FILLERS, Features
from boolattn.training.losses import scope_loss

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SCOPE = "scope"  # The task whose result is the scope loss of labelled sentences, not vectors
#: Families whose positions count from 0 and whose layers all attend to the whole text.
_PACKABLE = ("bert", "electra")


class TowerPass(nn.Module):
    """Both towers in one forward pass, which is what distributed training wraps.

    ``encode_batch`` encodes a batch of a task instead of :func:`encode`.
    """

    def __init__(
        self, towers: SentenceTransformer, encode_batch: Callable[..., Tensor] | None = None
    ) -> None:
        super().__init__()
        self.towers = towers
        self.encode_batch = encode_batch or partial(encode, towers)

    def forward(
        self,
        queries: Features,
        documents: list[Features],
        places: Tensor,
        scoped: Features | None = None,
    ) -> tuple[Tensor, ...]:
        """Encode a process's queries, ``(queries, dim)``, and documents, ``(documents, dim)``.

        ``places`` says where each document is in the batches laid end to end. With sentences whose
        scopes are supervised, their loss is a third result.
        """
        vectors = self.encode_documents(documents, places)
        encoded = (self.encode_batch(queries, "query"), vectors)
        return encoded if scoped is None else (*encoded, self.encode_batch(scoped, SCOPE))

    def encode_documents(self, documents: list[Features], places: Tensor) -> Tensor:
        """Encode a step's documents. Shape ``(documents, dim)``."""
        batches = [self.encode_batch(part, "document", slot) for slot, part in enumerate(documents)]
        return torch.cat(batches)[places]


def encode(towers: SentenceTransformer, features: Features, task: str, slot: int = 0) -> Tensor:
    """Encode one batch of "query" or "document" texts. Shape ``(texts, dim)``.

    For the task "scope" return the scope loss of labelled sentences. ``slot``, the number of the
    batch among the step's of this task, is for recorded passes.
    """
    if task == SCOPE:
        inputs = {name: value for name, value in features.items() if name != "scopes"}
        with recording() as record:
            query_encoder(towers)(**inputs)
        logits = [layer.logits for layer in record.biases.values()]
        used, mask = features["operators"], features["attention_mask"]
        return scope_loss(logits, features["scopes"], used, mask)
    if "starts" in features:
        return encode_packed(towers, features)
    # The task is given twice: the router reads the argument, and Bool-BERT, which encodes
    # documents without BoolAttn, the features. A copy, because modules write results into it.
    return cast("Tensor", towers({**features, "task": task}, task=task)["sentence_embedding"])


def can_pack(towers: SentenceTransformer) -> bool:
    """Whether the document tower can encode packed batches fast, on the device it is on."""
    encoder: Any = tower_of(towers, DOCUMENT).model
    config, device = encoder.base_model.config, encoder.device
    is_sdpa = config._attn_implementation in ("sdpa", BACKENDS["sdpa"])
    if config.model_type not in _PACKABLE or device.type != "cuda" or not is_sdpa:
        return False
    # Flash attention's limits.
    is_fit = config.hidden_size // config.num_attention_heads % 8 == 0
    return is_fit and torch.cuda.get_device_capability(device) >= (8, 0)


def encode_packed(towers: SentenceTransformer, features: Features) -> Tensor:
    """Encode documents that :func:`pack` laid end to end. Shape ``(texts, dim)``."""
    encoder: Any = tower_of(towers, DOCUMENT).model
    bare = encoder.base_model
    if bare.config._attn_implementation == "sdpa":
        bare.set_attn_implementation(BACKENDS["sdpa"])  # the same without PACKED
    ids, starts = features["input_ids"], features["starts"]
    longest = settings_of(towers).document_length
    at = torch.arange(len(ids), device=ids.device, dtype=starts.dtype)
    first = starts[torch.searchsorted(starts, at, right=True) - 1]
    options: dict[str, Any] = {} if encoder is bare else {"task": DOCUMENT}
    options[PACKED] = (starts, max(longest, MULTIPLE // N_FILLERS))
    hidden: Tensor = encoder(
        input_ids=ids[None],
        position_ids=(at - first).long()[None],
        token_type_ids=torch.zeros_like(ids)[None],
        **options,
    ).last_hidden_state[0]
    n_texts = len(starts) - 1 - N_FILLERS
    column = torch.arange(longest, device=ids.device)
    mask = column < starts.diff()[:n_texts, None]
    # Beyond a text are the next ones, which the mask excludes.
    places = (starts[:n_texts, None] + column) % len(ids)
    rows = hidden.index_select(0, places.flatten()).view(n_texts, longest, -1)
    outputs: dict[str, Any] = {"token_embeddings": rows, "attention_mask": mask.long()}
    for part in list(towers.children())[1:]:  # pooling, after the router
        outputs = part(outputs)
    return cast("Tensor", outputs["sentence_embedding"])
