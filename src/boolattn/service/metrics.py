"""Metrics of the service, for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self.requests = Counter(
            "boolattn_requests_total", "Requests answered.", ["route", "status"], registry=own
        )
        self.refused = Counter(
            "boolattn_refused_total", "Requests refused, by error code.", ["code"], registry=own
        )
        self.queries = Counter(
            "boolattn_queries_total", "Queries searched, by way of scoring.", ["way"], registry=own
        )
        self.seconds = Histogram(
            "boolattn_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, registry=own
        )
        self.batches = Histogram(
            "boolattn_batch_queries", "Queries searched in one call.", buckets=SIZES, registry=own
        )
        self.search_seconds = Histogram(
            "boolattn_batch_seconds", "Time of one search call.", buckets=SECONDS, registry=own
        )

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
