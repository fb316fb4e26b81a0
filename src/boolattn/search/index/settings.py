"""How an index is made, and who encodes its documents.

May import: boolattn.search, boolattn.errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from boolattn.errors import ConfigError
from boolattn.search.engines.registry import find_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

#: Documents of a segment: what a build that is killed loses at most.
SEGMENT_SIZE = 16_384


class Encode(Protocol):
    """Encodes lists of texts, in their order; a cluster may work on several at once."""

    def __call__(self, batches: Iterable[list[str]], /) -> Iterator[Array]:
        """Yield the vectors of each list."""
        ...


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """How an index is made.

    Attributes:
        engine: What finds the nearest vectors: flat, ivf, hnsw or milvus.
        lexical: Whether words are indexed too, for hybrid search.
        uri: Of Milvus: a file's name, or an address.
        model: What to load to search the index, for the manifest.
        segment_size: Documents encoded before something is kept.
        batch_size: Documents encoded at once.
        replace: Whether an index that is there may be replaced.
        resume: Whether a build that was stopped goes on.
    """

    engine: str = "flat"
    lexical: bool = True
    uri: str = ""
    model: str = ""
    segment_size: int = SEGMENT_SIZE
    batch_size: int = 32
    replace: bool = False
    resume: bool = False

    def __post_init__(self) -> None:
        for name in ("segment_size", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        find_engine(self.engine)
        if self.uri and self.engine != "milvus":
            raise ConfigError(f"a uri is Milvus's, and the engine is {self.engine}; name milvus")
