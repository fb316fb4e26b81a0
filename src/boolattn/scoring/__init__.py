"""Composition of operand scores over a query tree, on numpy arrays and torch tensors alike."""
