"""The domains benchmark: Boolean queries over many kinds of documents, split by domain."""

from __future__ import annotations

from boolattn.data.domains.benchmark import DOMAINS, DomainsBenchmark, Manifest, build, load

__all__ = ["DOMAINS", "DomainsBenchmark", "Manifest", "build", "load"]
