"""The generator of Boolean sentences for auxiliary pretraining."""

from experiments.sentences.generator import generate, generate_triplets

__all__ = ["generate", "generate_triplets"]
