"""Systems, encoders and data sets of the tables, as ``systems.toml`` defines them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.errors import ConfigError
from boolattn.reproduction.runs import NO_ENCODER, RunKey
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

KINDS = ("trained", "untrained", "bm25", "removed")


@dataclass(frozen=True, kw_only=True)
class SystemSpec:
    """One system; ``systems.toml`` explains the fields."""

    name: str
    label: str
    base: str = ""
    kind: str = "trained"
    set: tuple[str, ...] = ()
    pretrain: bool = False
    query_modes: tuple[str, ...] = ("plain_text",)
    seed_0_modes: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    formerly: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"{self.name}: kind must be one of {', '.join(KINDS)}")

    def modes(self, seed: int) -> tuple[str, ...]:
        """Return the query modes that are measured with a seed."""
        return self.query_modes + (() if seed else self.seed_0_modes)

    @property
    def has_seeds(self) -> bool:
        """Whether results depend on the seed."""
        return self.kind in ("trained", "removed")

    @property
    def composes(self) -> bool:
        """Whether the system composes the scores of operands."""
        return "parsed" in self.query_modes

    @property
    def full_label(self) -> str:
        """The label, marked where the recipe left the code."""
        return self.label + (" (recipe removed)" if self.kind == "removed" else "")


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """An encoder; ``systems.toml`` explains the fields."""

    name: str
    label: str
    source: str
    vocabulary: str
    presets: Mapping[str, str] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    query_prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """A data set and the splits that are reported; ``systems.toml`` explains the fields."""

    name: str
    label: str
    catalog: str
    splits: Mapping[str, str]
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class QueryMode:
    """How a model is queried: its name in run files and in tables, and in older run files."""

    name: str
    label: str
    formerly: str = ""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: a system on a data set and encoder, with a seed."""

    system: SystemSpec
    dataset: DatasetSpec
    encoder: EncoderSpec
    seed: int

    @property
    def key(self) -> RunKey:
        """What its file is named after."""
        encoder = NO_ENCODER if self.system.kind == "bm25" else self.encoder.name
        return RunKey(self.dataset.name, encoder, self.system.name, self.seed)


@dataclass(frozen=True)
class Registry:
    """All systems, encoders and data sets, by name."""

    systems: Mapping[str, SystemSpec]
    encoders: Mapping[str, EncoderSpec]
    datasets: Mapping[str, DatasetSpec]
    query_modes: Mapping[str, QueryMode]

    def __post_init__(self) -> None:
        for system in self.systems.values():
            for mode in system.query_modes + system.seed_0_modes:
                _find(self.query_modes, mode, "query mode")

    @classmethod
    def parse(cls, *texts: str) -> Registry:
        """Read one or several TOML texts; later ones add to the first."""
        tables = [tomllib.loads(text) for text in texts]

        def rows(table: str) -> dict[str, Any]:
            return dict(chain.from_iterable(one.get(table, {}).items() for one in tables))

        return cls(
            _specs(SystemSpec, _with_bases(rows("system"))),
            _specs(EncoderSpec, rows("encoder")),
            _specs(DatasetSpec, rows("dataset")),
            _specs(QueryMode, rows("query_mode")),
        )

    def system(self, name: str) -> SystemSpec:
        """Look up a system that can be run, by its present or former name."""
        found = _find(self.systems, self.present_name(name), "system")
        if found.kind == "removed":
            raise ConfigError(f"the recipe of {name!r} was removed; only its results are kept")
        return found

    def known(self, name: str) -> SystemSpec:
        """Look up a system for tables; one that is not defined is labelled by its name."""
        name = self.present_name(name)
        return self.systems.get(name) or SystemSpec(name=name, label=name)

    def encoder(self, name: str) -> EncoderSpec:
        """Look up an encoder."""
        return _find(self.encoders, name, "encoder")

    def dataset(self, name: str) -> DatasetSpec:
        """Look up a data set."""
        return _find(self.datasets, name, "data set")

    def present_name(self, system: str) -> str:
        """Translate the former name of a system."""
        return next((s.name for s in self.systems.values() if s.formerly == system), system)

    def query_mode(self, name: str) -> QueryMode:
        """Look up a query mode by its present or former name."""
        modes = self.query_modes.values()
        present = next((mode.name for mode in modes if mode.formerly == name), name)
        return _find(self.query_modes, present, "query mode")


def row_label(system: SystemSpec, mode: QueryMode) -> str:
    """Return the name of a table row."""
    is_vector = mode.name in ("plain_text", "oracle_operators")
    return system.full_label + ("" if is_vector and not system.composes else f", {mode.label}")


def paper_systems_toml() -> str:
    """Return the text of ``systems.toml``."""
    return files("boolattn.reproduction").joinpath("systems.toml").read_text("utf-8")


@lru_cache(maxsize=1)
def paper_registry() -> Registry:
    """Return the systems of the paper's tables."""
    return Registry.parse(paper_systems_toml())


def _with_bases(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    full: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        base = full.get(row.get("base", ""), {})
        if not base and "base" in row:
            raise ConfigError(f"systems.toml [{name}]: base {row['base']!r} must be defined before")
        # The changes of the base come first.
        changes = [*base.get("set", ()), *row.get("set", ())]
        full[name] = {**base, "formerly": "", **row, "set": changes}
    return full


def _specs(kind: type[T], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, T]:
    return {
        name: build(kind, {"name": name, **values}, source=f"systems.toml [{name}]")
        for name, values in rows.items()
    }


def _find(table: Mapping[str, T], name: str, what: str) -> T:
    if name not in table:
        raise ConfigError(f"no {what} {name!r}; there are {', '.join(table)}")
    return table[name]


def parse_seeds(text: str) -> list[int]:
    """Parse seeds separated by commas; one that comes twice counts once."""
    try:
        return list(dict.fromkeys(int(seed) for seed in text.split(",")))
    except ValueError:
        raise ConfigError(f"seeds are whole numbers separated by commas, got {text!r}") from None
