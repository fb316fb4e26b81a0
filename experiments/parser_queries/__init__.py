"""Generators of labelled queries for training the query parser."""
