"""Composition of operand scores over a query tree."""
