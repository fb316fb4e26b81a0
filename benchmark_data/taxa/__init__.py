"""The taxa benchmark: exact sets of animals and plants, built from two installed packages."""

from __future__ import annotations

from benchmark_data.taxa.benchmark import build

__all__ = ["build"]
