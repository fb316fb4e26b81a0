"""The taxa benchmark: exact sets of animals and plants, rebuilt from two installed packages.

Lineages make sets ("Cerambycidae"), places named in the introductions cut them ("of Peru"), and
seven structures of queries combine them, in wordings that are frozen under a version and a hash.
May import: boolattn.logic, boolattn.data.records, boolattn.files, boolattn.errors.
"""

from __future__ import annotations

from boolattn.data.taxa.benchmark import Manifest, TaxaBenchmark, build, load

__all__ = ["Manifest", "TaxaBenchmark", "build", "load"]
