"""Queries, documents and where they come from; no torch.

May import: boolattn.logic, boolattn.settings, boolattn.errors.
"""
