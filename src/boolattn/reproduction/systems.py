"""The systems that are compared, the encoders they stand on, and the data they are measured on.

One readable file, ``systems.toml``, says what each is. May import: boolattn.training.settings,
boolattn.settings, boolattn.errors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.errors import ConfigError
from boolattn.settings import build
from boolattn.training.preset_files import make_preset, preset_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.training.settings import Preset

T = TypeVar("T")

KINDS = ("towers", "as-is", "bm25")
ASKS: Mapping[str, str] = {
    "own": "plain text",
    "label": "operators told",
    "read": "operands read",
    "always": "operands read, no fall-back",
    "given": "operands given",
    "explicit": "explicit syntax",
    "bare": "explicit syntax, bare operands",
    "typed": "operands read, the whole as typed",
    "single": "operands read, one vector with subtraction",
    "extremes": "operands read, least and greatest",
    "sum": "operands read, sums",
}
_NEVER = 1_000_000


@dataclass(frozen=True, kw_only=True)
class System:
    """One thing that is compared; ``systems.toml`` says what its fields mean."""

    name: str
    label: str
    like: str = ""
    kind: str = "towers"
    set: tuple[str, ...] = ()
    heads: bool = False
    asks: tuple[str, ...] = ("own",)
    once: tuple[str, ...] = ()
    on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"{self.name}: kind must be one of {', '.join(KINDS)}")
        if unknown := {*self.asks, *self.once} - set(ASKS):
            raise ConfigError(f"{self.name}: no way to ask {unknown.pop()!r}; {', '.join(ASKS)}")

    def asked(self, seed: int) -> tuple[str, ...]:
        """Return the ways in which a model of this seed is asked."""
        return self.asks + (() if seed else self.once)

    @property
    def has_seeds(self) -> bool:
        """Whether two seeds give two results."""
        return self.kind == "towers"

    @property
    def needs_encoder(self) -> bool:
        """Whether it stands on an encoder."""
        return self.kind != "bm25"


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """What towers are made of.

    Attributes:
        name: Names it in files.
        label: What tables call it.
        source: A folder, a hub name, or "minilm".
        vocabulary: Encoders of the same vocabulary share a tokenised corpus.
        presets: Preset for each data set.
        set: Changes of that preset.
        query_prefix: Put before a query, for the encoder as it is.
    """

    name: str
    label: str
    source: str
    vocabulary: str
    presets: Mapping[str, str] = field(default_factory=dict)
    set: tuple[str, ...] = ()
    query_prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A data set and the splits that are reported.

    Attributes:
        name: Names it in files.
        label: What tables call it.
        catalog: Its name in the catalogue.
        splits: What tables call each split; those a data set lacks are passed over.
        data: Splits to train and choose by, where they are not the preset's.
    """

    name: str
    label: str
    catalog: str
    splits: Mapping[str, str]
    data: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Systems that are to be run on every one of some data sets and encoders."""

    datasets: tuple[str, ...]
    encoders: tuple[str, ...]
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Systems:
    """Everything ``systems.toml`` says."""

    systems: Mapping[str, System]
    encoders: Mapping[str, Encoder]
    suites: Mapping[str, Suite]
    grids: tuple[Grid, ...] = ()

    def system(self, name: str) -> System:
        """Look up a system."""
        return _find(self.systems, name, "system")

    def encoder(self, name: str) -> Encoder:
        """Look up an encoder."""
        return _find(self.encoders, name, "encoder")

    def suite(self, name: str) -> Suite:
        """Look up a data set."""
        return _find(self.suites, name, "data set")


@lru_cache(maxsize=1)
def known() -> Systems:
    """Read ``systems.toml``."""
    text = files("boolattn.reproduction").joinpath("systems.toml").read_text("utf-8")
    return read_systems(text)


def read_systems(text: str) -> Systems:
    """Read systems from TOML."""
    values = tomllib.loads(text)
    return Systems(
        _table(System, _with_bases(values["system"])),
        _table(Encoder, values["encoder"]),
        _table(Suite, values["dataset"]),
        tuple(build(Grid, row, source="systems.toml [grid]") for row in values.get("grid", ())),
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of every system alike.

    Attributes:
        preset: Instead of the preset of the data set and encoder.
        size: Of a benchmark that is built; empty: the preset's.
        sources: Folders of encoders, by name.
        changes: ``key=value``, after the system's own.
    """

    preset: str = ""
    size: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()


def resolve(system: System, suite: Suite, encoder: Encoder, seed: int, request: Request) -> Preset:
    """Return every number of one run."""
    name = request.preset or encoder.presets.get(suite.name, "")
    if not name:
        raise ConfigError(
            f"no preset for {encoder.name} on {suite.name}; name one with --preset, or take "
            f"{', '.join(e.name for e in known().encoders.values() if suite.name in e.presets)}"
        )
    values = raw_preset(name)
    # A system has the paper's size unless it says otherwise, whatever the preset ships.
    values.get("plugin", {}).pop("rank", None)
    values.setdefault("model", {})["encoder"] = request.sources.get(encoder.name, encoder.source)
    # A person's own preset says by itself what it is trained on.
    own = {} if request.preset else suite.data
    values.setdefault("data", {}).update(own, name=suite.catalog)
    if request.size:
        values["data"]["size"] = request.size
    changes = [
        *encoder.set,
        *system.set,
        *_unchosen(values, system, suite),
        *request.changes,
        f"train.seed={seed}",
        f"pretrain.seed={seed}",
    ]
    return make_preset(Path(name).stem, values, changes, source=f"preset {name}")


def _unchosen(values: Mapping[str, Any], system: System, suite: Suite) -> list[str]:
    """Take out a check that chooses nothing, or would choose by what is reported."""
    data = values.get("data", {})
    if data.get("validation") in suite.splits:
        # A few numbers are chosen on what was learned from, rather than on what is reported.
        needs = "compose.fit_numbers=true" in system.set
        other = [f"data.validation={data.get('train', '')}", f"train.evaluate_every={_NEVER}"]
        return [*(other if needs else ["data.validation="]), "train.keep=last"]
    if values.get("train", {}).get("keep") != "last":
        return []
    if "compose.use_reader=true" in system.set:
        # The composition's numbers may be chosen on it, at the end.
        return [f"train.evaluate_every={_NEVER}"]
    return ["data.validation="]


def raw_preset(name: str) -> dict[str, Any]:
    """Read the plain values of a preset, by name or from a TOML file."""
    try:
        if name.endswith(".toml"):
            return tomllib.loads(Path(name).read_text("utf-8"))
        if name not in preset_names():
            raise ConfigError(f"no preset {name!r}; there are {', '.join(preset_names())}")
        home = files("boolattn.training").joinpath("presets", f"{name}.toml")
        return tomllib.loads(home.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read preset {name}: {error}") from error


def _with_bases(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Give a system that is like another what the other has; its own changes come after."""
    full: dict[str, dict[str, Any]] = {}
    for name, row in rows.items():
        if (base := row.get("like")) is None:
            full[name] = dict(row)
        elif base not in full:
            raise ConfigError(
                f"systems.toml [{name}]: like {base!r}, which does not stand before it"
            )
        else:
            changes = [*full[base].get("set", ()), *row.get("set", ())]
            full[name] = {**full[base], **row, "set": changes}
    return full


def _table(kind: type[T], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, T]:
    return {
        name: build(kind, {"name": name, **values}, source=f"systems.toml [{name}]")
        for name, values in rows.items()
    }


def _find(table: Mapping[str, T], name: str, what: str) -> T:
    if name not in table:
        raise ConfigError(f"no {what} {name!r}; there are {', '.join(table)}")
    return table[name]


def names_of(text: str | Sequence[str]) -> list[str]:
    """Split names at commas, each once.

    >>> names_of("plain, light,plain")
    ['plain', 'light']
    """
    parts = text.split(",") if isinstance(text, str) else text
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))


def pairs(given: Sequence[str], names: Sequence[str]) -> Mapping[str, str]:
    """Read NAME=VALUE; a value alone belongs to the only name there is."""
    pairs = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals and len(names) != 1:
            raise ConfigError(f"which one is {one!r} for? write NAME={one}")
        pairs[name if equals else names[0]] = value if equals else one
    return pairs


def seeds_of(text: str) -> list[int]:
    """Read seeds, by commas."""
    try:
        return [int(seed) for seed in names_of(text)]
    except ValueError:
        raise ConfigError(f"seeds are whole numbers by commas, got {text!r}") from None
