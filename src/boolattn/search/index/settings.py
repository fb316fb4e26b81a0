"""Settings of an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from boolattn.errors import ConfigError
from boolattn.search.engines.registry import find_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

#: Encodes lists of texts, in order; a cluster may encode several at once.
Encode: TypeAlias = "Callable[[Iterable[list[str]]], Iterator[NDArray[np.float32]]]"
#: Documents of a segment: the most that a killed build loses.
SEGMENT_SIZE = 16_384


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Settings of an index.

    Attributes:
        engine: flat, ivf, hnsw or milvus.
        lexical: Whether to index words too, for hybrid search.
        uri: Of Milvus: a file or an address.
        model: What to load to search the index, for the manifest.
        segment_size: Documents in a segment.
        batch_size: Documents encoded at once; left out, chosen for the device.
        replace: Whether to replace an existing index.
        resume: Whether to resume a build that was stopped.
    """

    engine: str = "flat"
    lexical: bool = True
    uri: str = ""
    model: str = ""
    segment_size: int = SEGMENT_SIZE
    batch_size: int | None = None
    replace: bool = False
    resume: bool = False

    def __post_init__(self) -> None:
        for name in ("segment_size", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        find_engine(self.engine)
        if self.uri and self.engine != "milvus":
            raise ConfigError(f"only milvus takes a uri, and the engine is {self.engine}")
