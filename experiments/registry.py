"""All systems: those of the paper's tables and the ablations of ``experiments/systems.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from boolattn.reproduction.systems import Registry, paper_systems_toml
from boolattn.settings import build

_FILE = Path(__file__).parent / "systems.toml"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Systems that the report expects on every one of some data sets and encoders."""

    datasets: tuple[str, ...]
    encoders: tuple[str, ...]
    systems: tuple[str, ...]


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Return all systems, encoders, data sets and query modes."""
    return Registry.parse(paper_systems_toml(), _FILE.read_text("utf-8"))


@lru_cache(maxsize=1)
def grids() -> tuple[Grid, ...]:
    """Return the runs that the report expects; the first grid gives the order of tables."""
    rows = tomllib.loads(_FILE.read_text("utf-8"))["grid"]
    return tuple(build(Grid, row, source=f"{_FILE.name} [grid]") for row in rows)
