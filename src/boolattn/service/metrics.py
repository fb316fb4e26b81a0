"""Counters of the service, in the text form that Prometheus reads.

Touched only from the event loop, so nothing is locked. May import: nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Type of the text, as Prometheus wants it named.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

Labels = tuple[tuple[str, str], ...]


@dataclass
class Counter:
    """A number that only grows, one for each set of labels."""

    name: str
    help: str
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count once more."""
        key = tuple(sorted(labels.items()))
        self.values[key] = self.values.get(key, 0) + amount

    def lines(self) -> Iterator[str]:
        """Write it out."""
        yield from _head(self.name, self.help, "counter")
        for labels, value in sorted(self.values.items()):
            yield f"{self.name}{_labels(labels)} {_number(value)}"


@dataclass
class Gauge:
    """A number that is asked for when it is read."""

    name: str
    help: str
    read: Callable[[], float]

    def lines(self) -> Iterator[str]:
        """Write it out."""
        yield from _head(self.name, self.help, "gauge")
        yield f"{self.name} {_number(self.read())}"


@dataclass
class Histogram:
    """How often a value fell below each bound, one for each set of labels."""

    name: str
    help: str
    bounds: Sequence[float]
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=dict)

    def observe(self, value: float, **labels: str) -> None:
        """Add one value."""
        key = tuple(sorted(labels.items()))
        row = self.counts.setdefault(key, [0] * (len(self.bounds) + 1))
        row[bisect_left(self.bounds, value)] += 1
        self.sums[key] = self.sums.get(key, 0.0) + value

    def lines(self) -> Iterator[str]:
        """Write it out, cumulative as the format wants it."""
        yield from _head(self.name, self.help, "histogram")
        for labels, row in sorted(self.counts.items()):
            total = 0
            names = (*map(_number, self.bounds), "+Inf")
            for name, count in zip(names, row, strict=True):
                total += count
                yield f"{self.name}_bucket{_labels((*labels, ('le', name)))} {total}"
            yield f"{self.name}_sum{_labels(labels)} {_number(self.sums[labels])}"
            yield f"{self.name}_count{_labels(labels)} {total}"


class Metrics:
    """Everything one service counts."""

    def __init__(self) -> None:
        self.requests = Counter("boolattn_requests_total", "Requests answered.")
        self.refused = Counter("boolattn_refused_total", "Requests refused, by error code.")
        self.queries = Counter("boolattn_queries_total", "Queries searched, by way of scoring.")
        self.seconds = Histogram("boolattn_request_seconds", "Time to answer.", SECONDS)
        self.batches = Histogram("boolattn_batch_queries", "Queries searched in one call.", SIZES)
        self.search_seconds = Histogram(
            "boolattn_batch_seconds", "Time of one call of the searcher.", SECONDS
        )
        self.gauges: list[Gauge] = []

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a number that is asked for at every reading."""
        self.gauges.append(Gauge(name, text, read))

    def text(self) -> str:
        """Write everything out."""
        everything: tuple[Counter | Gauge | Histogram, ...] = (
            self.requests,
            self.refused,
            self.queries,
            self.seconds,
            self.batches,
            self.search_seconds,
            *self.gauges,
        )
        return "".join(line + "\n" for part in everything for line in part.lines())


def _head(name: str, text: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    """Write a number as Prometheus reads it.

    >>> _number(3.0), _number(0.25)
    ('3', '0.25')
    """
    return str(int(value)) if value == int(value) else repr(value)
