"""Kinds of things: what a document names by a narrower word than a query does."""
