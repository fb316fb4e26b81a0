"""The engines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.errors import ConfigError
from boolattn.search.engines.faiss import Hnsw, Ivf
from boolattn.search.engines.flat import Flat
from boolattn.search.engines.milvus import Milvus
from boolattn.search.engines.postgres import Postgres, PostgresExact
from boolattn.search.engines.qdrant import Qdrant

if TYPE_CHECKING:
    from boolattn.search.engines.base import Engine

ENGINES: dict[str, type[Engine]] = {
    "flat": Flat,
    "ivf": Ivf,
    "hnsw": Hnsw,
    "milvus": Milvus,
    "qdrant": Qdrant,
    "postgres": Postgres,
    "postgres-exact": PostgresExact,
}


def find_engine(name: str) -> type[Engine]:
    """Return the class of an engine."""
    if name not in ENGINES:
        raise ConfigError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    return ENGINES[name]
