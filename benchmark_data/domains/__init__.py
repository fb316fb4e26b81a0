"""The domains benchmark: Boolean queries over many kinds of documents, split by domain."""

from __future__ import annotations

from benchmark_data.domains.benchmark import DOMAINS, build

__all__ = ["DOMAINS", "build"]
