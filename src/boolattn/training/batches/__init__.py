"""Batches: sampled documents, token ids, labels, and what one process computes of a step."""
