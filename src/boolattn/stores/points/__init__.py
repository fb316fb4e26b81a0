"""Stores in vector databases, whose points hold the passages of documents."""
