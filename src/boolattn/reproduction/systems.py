"""Systems, encoders and data sets of the tables, as ``systems.toml`` defines them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.errors import ConfigError
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

KINDS = ("trained", "untrained", "bm25")
QUERY_MODES = ("plain_text", "oracle_operators")
#: Of the files of runs.
ENDING = ".json.gz"
#: Name of the encoder in runs of systems that have none.
NO_ENCODER = "none"


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
    datasets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"{self.name}: kind must be one of {', '.join(KINDS)}")
        if unknown := [mode for mode in self.query_modes if mode not in QUERY_MODES]:
            raise ConfigError(f"no query mode {unknown[0]!r}; there are {', '.join(QUERY_MODES)}")


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """An encoder; ``systems.toml`` explains the fields."""

    name: str
    label: str
    source: str
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


@dataclass(frozen=True, order=True)
class RunKey:
    """Identifies a run."""

    dataset: str
    encoder: str
    system: str
    seed: int

    @property
    def path(self) -> Path:
        """File of the run, below the folder of all runs."""
        return Path(self.dataset, self.encoder, f"{self.system}-{self.seed}{ENDING}")

    @classmethod
    def of(cls, path: Path) -> RunKey:
        """Read the path of a run's file."""
        system, _, seed = path.name.removesuffix(ENDING).rpartition("-")
        return cls(path.parent.parent.name, path.parent.name, system, int(seed))

    def __str__(self) -> str:
        return f"{self.dataset} {self.encoder} {self.system} {self.seed}"


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


class Table(dict[str, T]):
    """Systems, encoders or data sets by name; an unknown name is a user's error."""

    def __missing__(self, name: str) -> T:
        kind = type(next(iter(self.values()))).__name__.removesuffix("Spec").lower()
        raise ConfigError(f"no {kind} {name!r}; there are {', '.join(self)}")


@dataclass(frozen=True)
class Registry:
    """All systems, encoders and data sets."""

    systems: Table[SystemSpec]
    encoders: Table[EncoderSpec]
    datasets: Table[DatasetSpec]

    @classmethod
    def parse(cls, text: str) -> Registry:
        """Read a TOML text."""
        tables = tomllib.loads(text)
        return cls(
            _specs(SystemSpec, _with_bases(tables.get("system", {}))),
            _specs(EncoderSpec, tables.get("encoder", {})),
            _specs(DatasetSpec, tables.get("dataset", {})),
        )


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Return what ``systems.toml`` defines."""
    return Registry.parse(
        files("boolattn.reproduction").joinpath("systems.toml").read_text("utf-8")
    )


def _with_bases(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    full: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        base = full.get(row.get("base", ""), {})
        if not base and "base" in row:
            raise ConfigError(f"systems.toml [{name}]: base {row['base']!r} must be defined before")
        # The changes of the base come first.
        full[name] = {**base, **row, "set": [*base.get("set", ()), *row.get("set", ())]}
    return full


def _specs(kind: type[T], rows: Mapping[str, Mapping[str, Any]]) -> Table[T]:
    return Table(
        (name, build(kind, {"name": name, **values}, source=f"systems.toml [{name}]"))
        for name, values in rows.items()
    )


def parse_seeds(text: str) -> list[int]:
    """Parse seeds separated by commas; one that comes twice counts once."""
    try:
        return list(dict.fromkeys(int(seed) for seed in text.split(",")))
    except ValueError:
        raise ConfigError(f"seeds are whole numbers separated by commas, got {text!r}") from None
