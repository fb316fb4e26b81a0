"""The taxa benchmark: exact sets of animals and plants, built from two installed packages.

Lineages define groups ("Cerambycidae"), places in the introductions restrict them ("of Peru"), and
queries of seven templates combine them, in wordings frozen under a version and a hash.
"""

from __future__ import annotations

from benchmark_data.taxa.benchmark import build

__all__ = ["build"]
