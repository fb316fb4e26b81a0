"""Encoding a corpus with Ray, on several processes or machines.

The texts of a segment are encoded together, so the vectors are those of a build on one machine.
The model's files travel to the workers; these need only this package.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from boolattn.encoders.callables import Array
from boolattn.encoders.models import load_model, resolve
from boolattn.errors import ConfigError, IndexMismatchError
from boolattn.files import installed_by, scratch_folder

Encode = Callable[[Iterable[list[str]]], Iterator[Array]]

#: Segments that wait for each worker, with the one that it encodes.
_QUEUED = 2
_TIMEOUT = 10.0


class Worker:
    """Encodes texts in its own process."""

    def __init__(self, files: dict[str, bytes]) -> None:
        # Kept as long as the worker: a model may open its files late.
        self._stack = ExitStack()
        folder = self._stack.enter_context(scratch_folder())
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._encoder = load_model(str(folder))

    def fingerprint(self) -> str:
        """Return the model's fingerprint."""
        return self._encoder.fingerprint

    def encode(self, texts: list[str], batch_size: int | None) -> Array:
        """Encode the texts of one segment."""
        return np.concatenate([*self._encoder.encode_blocks(texts, batch_size)])


@contextmanager
def cluster(
    model: str, fingerprint: str, *, address: str = "local", batch_size: int | None = None
) -> Iterator[Encode]:
    """Start workers that encode segments; those with another fingerprint are refused.

    Without the address of a running cluster Ray starts here. By default there is a worker for each
    GPU of the cluster, or else for each core.
    """
    with installed_by("ray", "--ray"):
        import ray
    _check_address(address)
    # Otherwise Ray's workers reserve devices, with long warnings.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to its maker
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"no Ray cluster at {address!r}: {reason}") from error
    try:
        folder = resolve(model)
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = ray.put({p.relative_to(folder).as_posix(): p.read_bytes() for p in paths})
        resources = ray.cluster_resources()
        n_gpus = int(resources.get("GPU", 0))
        count = n_gpus or max(1, int(resources.get("CPU", 1)))
        kind = ray.remote(num_cpus=1, num_gpus=1 if n_gpus else 0)(Worker)
        workers = [kind.remote(files) for _ in range(count)]
        check_models(ray.get([worker.fingerprint.remote() for worker in workers]), fingerprint)

        def encode(batches: Iterable[list[str]]) -> Iterator[Array]:
            """Assign segments to workers in turn, and yield their vectors in order."""
            queue: deque[Any] = deque()
            for number, texts in enumerate(batches):
                queue.append(workers[number % count].encode.remote(texts, batch_size))
                if len(queue) >= _QUEUED * count:
                    yield ray.get(queue.popleft())
            yield from map(ray.get, queue)

        yield encode
    finally:
        ray.shutdown()


def check_models(fingerprints: Iterable[str], fingerprint: str) -> None:
    """Refuse workers whose model is not the index's."""
    if others := sorted(set(fingerprints) - {fingerprint}):
        reason = f"another model ({', '.join(others)}) than the index has ({fingerprint})"
        remedy = "install the same version everywhere"
        raise IndexMismatchError(f"Ray's workers loaded {reason}; {remedy}")


def _check_address(address: str) -> None:
    """Connect first: Ray itself takes minutes to find that there is no cluster."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()
    except OSError as error:
        raise ConfigError(f"no Ray cluster at {address}: {error.strerror or error}") from error
