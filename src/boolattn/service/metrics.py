"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        count = partial(Counter, registry=self._registry)
        time = partial(Histogram, registry=self._registry, buckets=SECONDS)
        self.requests = count("boolattn_requests_total", "Requests answered.", ["route", "status"])
        self.refused = count("boolattn_refused_total", "Requests refused, by error code.", ["code"])
        text = "Queries searched, by way of scoring."
        self.queries = count("boolattn_queries_total", text, ["way"])
        self.seconds = time("boolattn_request_seconds", "Time to answer.", ["route"])
        text = "Queries searched in one call."
        self.batches = time("boolattn_batch_queries", text, buckets=SIZES)
        self.search_seconds = time("boolattn_batch_seconds", "Time of one search call.")

    def count_batch(self, size: int, seconds: float) -> None:
        """Count one call of the searcher."""
        self.batches.observe(size)
        self.search_seconds.observe(seconds)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a value that is read whenever the metrics are."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def text(self) -> bytes:
        """Write all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
