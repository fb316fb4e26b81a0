"""Settings of one service: limits, batching and the API key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from boolattn.errors import ConfigError
from boolattn.settings import check_types, limited

# A shorter key could be guessed over a fast network.
_MIN_KEY_LENGTH = 16
#: Names of this machine for itself.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """Limits of one service; a request beyond them is refused.

    Lengths are in characters, ``max_body`` and ``max_upload`` (of documents) in bytes, times in
    seconds. ``per_client`` is how many of the active requests one client may have, ``max_work`` the
    operands of a query times its results and 200 candidates. ``allowed_hosts`` are the names under
    which the service is asked; ``trusted_proxies`` are the addresses whose ``X-Forwarded-For``
    names the client. ``snippet`` is the length of a document's text in a list of results,
    ``refresh`` the time between checks whether the index has changed. ``label`` names the model on
    the page.
    """

    max_length: int = 1000
    max_k: int = 100
    max_body: int = 65_536
    max_upload: int = 1 << 24
    max_work: int = 1 << 15
    concurrency: int = 64
    per_client: int = 48
    timeout: float = limited(10.0, above=0, below=86_400)
    batch_size: int = 32
    batch_wait: float = limited(0.002, least=0)
    snippet: int = 600
    refresh: float = limited(5.0, least=0)
    label: str = "the Boolean model"
    allowed_hosts: tuple[str, ...] = LOOPBACK
    trusted_proxies: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_types(self, least=1)
        if self.batch_wait >= self.timeout:
            raise ConfigError(
                f"batch_wait must be below the timeout ({self.timeout} s); got {self.batch_wait}"
            )
        if self.api_key is not None and len(self.api_key) < _MIN_KEY_LENGTH:
            raise ConfigError(f"an API key needs at least {_MIN_KEY_LENGTH} characters")


def key_from(variable: str) -> str:
    """Read the API key from an environment variable, which process lists do not show."""
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"the environment variable {variable} is empty; set it to the API key")
    return value
