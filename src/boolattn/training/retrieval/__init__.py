"""Retrieval training of two towers: transformers' ``Trainer``, checkpoints, composed scores."""
