"""Boolean sentences for auxiliary pretraining, generated or read from SetBERT's files."""

from __future__ import annotations

from boolattn.data.sentences.generator import (
    Mixture,
    Scope,
    Sentence,
    Triplet,
    generate,
    generate_triplets,
)

__all__ = ["Mixture", "Scope", "Sentence", "Triplet", "generate", "generate_triplets"]
