"""Document batches without padding: texts laid end to end, each with its own attention.

The vectors are those of padded batches. Texts of very different length cost no more than their
tokens, and all of a training step fit into one forward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from boolattn.encoder.bool_bert import BoolBertModel
from boolattn.encoder.towers import DOCUMENT, settings_of, tower_of
from boolattn.plugin.backend import BACKENDS, PACKED, Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

#: Families whose positions count from 0 and whose layers all attend to the whole text.
_FAMILIES = ("bert", "electra")
#: Batches are filled up to a multiple of so many tokens, so that few CUDA graphs serve all.
MULTIPLE = 1024
#: The filling is so many texts, some of them empty.
_N_FILLERS = 4


def can_pack(towers: SentenceTransformer) -> bool:
    """Whether the document tower can encode packed batches fast, on the device it is on."""
    encoder: Any = tower_of(towers, DOCUMENT).model
    bare = encoder.backbone if isinstance(encoder, BoolBertModel) else encoder
    if bare.config.model_type not in _FAMILIES:
        return False
    if bare.config._attn_implementation not in ("sdpa", BACKENDS["sdpa"]):
        return False
    if bare.config.hidden_size // bare.config.num_attention_heads % 8:  # flash attention's limit
        return False
    device = encoder.device
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def pack(texts: Sequence[NDArray[np.int32]], pad: int) -> dict[str, Tensor]:
    """Lay token ids end to end: ``input_ids`` and the ``starts`` of texts, with the end.

    >>> found = pack([np.array([101, 7, 102]), np.array([101, 102])], pad=0)
    >>> found["input_ids"].shape, found["starts"].tolist()
    (torch.Size([1024]), [0, 3, 5, 261, 517, 773, 1024])
    """
    ends = np.cumsum([len(text) for text in texts])
    n_tokens = -(-int(ends[-1]) // MULTIPLE) * MULTIPLE
    fillers = ends[-1] + MULTIPLE // _N_FILLERS * np.arange(1, _N_FILLERS + 1)
    ids = np.full(n_tokens, pad, dtype=np.int64)
    ids[: ends[-1]] = np.concatenate(texts)
    starts = np.concatenate([[0], ends, np.minimum(fillers, n_tokens)]).astype(np.int32)
    return {"input_ids": torch.from_numpy(ids), "starts": torch.from_numpy(starts)}


def encode_packed(towers: SentenceTransformer, features: dict[str, Tensor]) -> Tensor:
    """Encode documents that :func:`pack` laid end to end. Shape ``(texts, dim)``."""
    encoder: Any = tower_of(towers, DOCUMENT).model
    bare = encoder.backbone if isinstance(encoder, BoolBertModel) else encoder
    if bare.config._attn_implementation == "sdpa":
        bare.set_attn_implementation(BACKENDS["sdpa"])  # the same without PACKED
    ids, starts = features["input_ids"], features["starts"]
    longest = settings_of(towers).document_length
    at = torch.arange(len(ids), device=ids.device, dtype=starts.dtype)
    first = starts[torch.searchsorted(starts, at, right=True) - 1]
    options: dict[str, Any] = {} if encoder is bare else {"task": DOCUMENT}
    options[PACKED] = Packed(starts, max(longest, MULTIPLE // _N_FILLERS))
    hidden: Tensor = encoder(
        input_ids=ids[None],
        position_ids=(at - first).long()[None],
        token_type_ids=torch.zeros_like(ids)[None],
        **options,
    ).last_hidden_state[0]
    n_texts = len(starts) - 1 - _N_FILLERS
    column = torch.arange(longest, device=ids.device)
    mask = column < starts.diff()[:n_texts, None]
    # Beyond a text are the next ones, which the mask excludes.
    places = (starts[:n_texts, None] + column) % len(ids)
    rows = hidden.index_select(0, places.flatten()).view(n_texts, longest, -1)
    outputs: dict[str, Any] = {"token_embeddings": rows, "attention_mask": mask.long()}
    for part in list(towers.children())[1:]:  # pooling, after the router
        outputs = part(outputs)
    vectors: Tensor = outputs["sentence_embedding"]
    return vectors
