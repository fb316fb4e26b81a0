"""Systems, encoders and data sets of the tables, as ``systems.toml`` defines them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.errors import ConfigError
from boolattn.files import package_table
from boolattn.settings import build

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

#: Of the files of runs.
ENDING = ".jsonl.xz"
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


@lru_cache(maxsize=1)
def registry() -> Registry:
    """Return what ``systems.toml`` defines."""
    tables = package_table("boolattn.reproduction", "systems.toml")
    return Registry(
        _specs(SystemSpec, _with_bases(tables["system"])),
        _specs(EncoderSpec, tables["encoder"]),
        _specs(DatasetSpec, tables["dataset"]),
    )


def _with_bases(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    full: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        base = full[row["base"]] if "base" in row else {}
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
