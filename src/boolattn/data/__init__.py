"""Data sets: documents and queries with exact answers; no torch."""
