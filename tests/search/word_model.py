"""An encoder that sees only which words a text has, and a corpus whose right answers are plain."""

from __future__ import annotations

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.search import Document

PLACES = ("Borneo", "Sumatra", "Java", "Peru", "Ecuador", "Kenya")
GROUPS = ("moths", "beetles", "orchids", "birds")
DIMENSION = 32
WORDS = [*PLACES, *GROUPS, "hawk", "large", "red", "old", "飞蛾", "мотылёк"]


def retriever(seed: int = 0) -> TorchEncoder:
    """Make an encoder: a text is the sum of its words' vectors, which are orthogonal."""
    vocabulary = {word: i for i, word in enumerate(["[UNK]", *(w.lower() for w in WORDS)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    random = np.random.default_rng(seed).standard_normal((DIMENSION, DIMENSION))
    weights = np.linalg.qr(random)[0][: len(vocabulary)].astype(np.float32)
    # A word nobody knows says next to nothing.
    weights[0] *= 0.001
    towers = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()],
        device="cpu",
        similarity_fn_name="cosine",
    )
    return TorchEncoder(towers)


def corpus() -> list[Document]:
    """Every group in every place, and one document in two places."""
    found = [
        Document(
            id=f"{group}-{place}".lower(),
            title=f"{group} {place}",
            # Not all alike, so that no two documents have the same score.
            text=f"{group} " * (10 + i) + f"{place} " * (12 + g),
            metadata={"place": place, "year": 1980 + 5 * i, "is_old": i < 3, "group": group},
        )
        for g, group in enumerate(GROUPS)
        for i, place in enumerate(PLACES)
    ]
    both = Document(id="both", text="moths Borneo Sumatra", metadata={"place": "Borneo"})
    return [*found, both]
