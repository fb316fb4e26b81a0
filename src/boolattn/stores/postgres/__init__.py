"""Postgres with pgvector as a store."""

from boolattn.files import require

require("Postgres", ("psycopg", "pgvector"), "pgvector")
