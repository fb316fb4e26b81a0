"""Settings of one service: limits, batching and the API key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from boolattn.errors import ConfigError
from boolattn.settings import check_types, limited

_MIN_KEY_LENGTH = 16  # a shorter key could be guessed over a fast network
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # names of this machine for itself


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Limits of one service; a request beyond them is refused.

    What has a help text is an option of ``boolattn serve``.
    """

    max_length: int = limited(1000, least=1, help="Most characters of a query.")
    max_k: int = limited(100, least=1, help="Maximum number of results.")
    max_body: int = limited(65_536, least=1, help="Most bytes of a request.")
    max_upload: int = limited(1 << 24, least=1, help="Most bytes of documents in a request.")
    max_work: int = limited(
        1 << 15, least=1, help="Most operands of a query times its results and 200 candidates."
    )
    workers: int = limited(1, least=1, help="Processes; each has the other limits.")
    concurrency: int = limited(64, least=1, help="Most active requests.")
    per_client: int = limited(48, least=1, help="Most active requests of one client.")
    timeout: float = limited(10.0, above=0, below=86_400, help="Seconds that a request may take.")
    batch_size: int = limited(32, least=1, help="Queries of a batch; 1: no batching.")
    batch_wait: float = limited(0.002, least=0)  # seconds that the first query of a batch waits
    snippet: int = limited(600, least=1)  # characters of a document's text in a list of results
    refresh: float = limited(5.0, least=0)  # seconds between checks whether the index has changed
    label: str = "the Boolean model"  # on the page
    allowed_hosts: tuple[str, ...] = LOOPBACK  # names under which the service is asked
    trusted_proxies: tuple[str, ...] = ()  # addresses whose ``X-Forwarded-For`` names the client
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_types(self)
        if self.batch_wait >= self.timeout:
            limit = f"the timeout ({self.timeout} s)"
            raise ConfigError(f"batch_wait must be below {limit}; got {self.batch_wait}")
        if self.api_key is not None and len(self.api_key) < _MIN_KEY_LENGTH:
            raise ConfigError(f"an API key needs at least {_MIN_KEY_LENGTH} characters")


def key_from(variable: str) -> str:
    """Read the API key from an environment variable, which process lists do not show."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"the environment variable {variable} is empty; set it to the API key")
    return value
