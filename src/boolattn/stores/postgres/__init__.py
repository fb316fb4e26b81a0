"""Postgres with pgvector as a store."""

from boolattn.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
