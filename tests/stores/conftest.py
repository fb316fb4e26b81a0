"""The fixtures of the search tests, for the stores."""

from tests.search.conftest import folder, own_postgres, postgres, retriever, second_postgres, shared

__all__ = ["folder", "own_postgres", "postgres", "retriever", "second_postgres", "shared"]
