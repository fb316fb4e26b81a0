"""Stores: documents, metadata, vectors and words behind one address."""
