"""Presets: TOML files with one table for each part of the settings."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, fields
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.attention.config import OLDER, BoolAttnConfig
from boolattn.errors import ConfigError
from boolattn.settings import build
from boolattn.training.settings import TABLES, Preset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PRESETS = files("boolattn.training").joinpath("presets")
#: Old names of settings, in saved runs.
RENAMED = {
    "pretrain.wide": "varied_share",
    "train.hold_heads": "freeze_heads",
}


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    return sorted(item.name[:-5] for item in _PRESETS.iterdir() if item.name.endswith(".toml"))


def load_preset(name: str, changes: Sequence[str] = (), *, first: str = "train") -> Preset:
    """Read a preset by name, or from a TOML file, with single values changed.

    Args:
        name: One of :func:`preset_names`, or the path of a TOML file.
        changes: ``key=value`` or ``table.key=value``; the value as in TOML, text also without
            quotes, and ``none`` for a setting that may be left out.
        first: Table in which a key without a table is looked up first.
    """
    source = name if name.endswith(".toml") else f"preset {name}"
    return make_preset(Path(name).stem, read_preset(name), changes, first=first, source=source)


def read_preset(name: str) -> dict[str, Any]:
    """Read the plain values of a preset by name, or of a TOML file."""
    is_file = name.endswith(".toml")
    if not is_file and name not in preset_names():
        raise ConfigError(f"no preset {name!r}; there are {', '.join(preset_names())}")
    path = Path(name) if is_file else _PRESETS.joinpath(f"{name}.toml")
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def make_preset(
    name: str,
    values: Mapping[str, Any],
    changes: Sequence[str] = (),
    *,
    first: str = "train",
    source: str = "",
) -> Preset:
    """Build a preset from plain values; arguments as in :func:`load_preset`."""
    if unknown := sorted(set(values) - set(TABLES)):
        raise ConfigError(f"{source}: no table {unknown[0]!r}; there are {', '.join(TABLES)}")
    tables = {table: dict(values.get(table, {})) for table in TABLES}
    for change in changes:
        key, equals, raw = change.partition("=")
        if not equals:
            raise ConfigError(f"--set takes key=value, got {change!r}")
        table, field_name = _owner(key.strip(), first)
        types = {item.name: str(item.type) for item in fields(TABLES[table])}
        tables[table][field_name] = _value(raw.strip(), types.get(field_name, ""))
    built: dict[str, Any] = {
        table: build(kind, tables[table], source=f"{source} [{table}]")
        for table, kind in TABLES.items()
    }
    return Preset(name=name, **built)


def saved_tables(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of a saved run; what older versions lack is as it was then."""
    tables: dict[str, dict[str, Any]] = {}
    for table, kind in TABLES.items():
        known = {item.name for item in fields(kind)}
        named = {RENAMED.get(f"{table}.{k}", k): v for k, v in values.get(table, {}).items()}
        tables[table] = {key: value for key, value in named.items() if key in known}
    plugin = build(BoolAttnConfig, OLDER | tables["plugin"], source="a saved run")
    tables["plugin"] = json.loads(json.dumps(asdict(plugin)))
    return tables


def _owner(key: str, first: str) -> tuple[str, str]:
    table, dot, name = key.rpartition(".")
    if dot:
        if table not in TABLES:
            raise ConfigError(f"--set {key}: no table {table!r}; there are {', '.join(TABLES)}")
        return table, name
    for table in (first, *TABLES):
        if name in {item.name for item in fields(TABLES[table])}:
            return table, name
    known = sorted({item.name for kind in TABLES.values() for item in fields(kind)})
    raise ConfigError(f"--set {key}: no setting has that name; there are {', '.join(known)}")


def _value(raw: str, kind: str) -> Any:  # noqa: ANN401 - any value TOML has
    # TOML has no null; "none" is also a choice of settings that are text.
    if raw.lower() == "none" and "None" in kind:
        return None
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        return {"true": True, "false": False}.get(raw.lower(), raw)
