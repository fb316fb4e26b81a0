"""What one service allows: limits, batching and its key.

May import: boolattn.errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from boolattn.errors import ConfigError

# A shorter key falls to guessing over a fast network.
_SHORTEST_KEY = 16


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Limits of one service; what exceeds them is refused with one line.

    Attributes:
        max_length: Characters of a query.
        max_k: Results of one search.
        max_body: Bytes of a request's body.
        concurrency: Requests that may be under way at once; the next one is told to come back.
        timeout: Seconds until a request is given up.
        batch_size: Queries encoded and searched in one call; 1 turns batching off.
        batch_wait: Seconds that the first query of a batch waits for others.
        snippet: Characters of a document's text in a list of results.
        refresh: Seconds after which a changed index is looked for; it is taken up by the next
            search.
        compare: Whether a search may be laid beside the plain encoder's.
        label: What people are told of the model.
        plain_label: And of the plain encoder.
        api_key: What a caller must show; ``None`` lets everybody in.
    """

    max_length: int = 1000
    max_k: int = 100
    max_body: int = 65_536
    concurrency: int = 64
    timeout: float = 10.0
    batch_size: int = 32
    batch_wait: float = 0.002
    snippet: int = 600
    refresh: float = 5.0
    compare: bool = True
    label: str = "the Boolean model"
    plain_label: str = "the same index, searched by one vector of the query"
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("max_length", "max_k", "max_body", "concurrency", "batch_size", "snippet"):
            if (value := getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 1, got {value}")
        if not self.timeout > 0:
            raise ConfigError(f"timeout must be above 0 seconds, got {self.timeout}")
        if not 0 <= self.batch_wait < self.timeout:
            raise ConfigError(
                f"batch_wait must be from 0 to below the timeout ({self.timeout} s), "
                f"got {self.batch_wait}"
            )
        if self.api_key is not None and len(self.api_key) < _SHORTEST_KEY:
            raise ConfigError(f"an API key needs at least {_SHORTEST_KEY} characters")


def key_from(variable: str) -> str:
    """Read the API key from an environment variable, where process lists do not show it."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"the environment variable {variable} is empty; put the API key into it")
    return value
