"""Presets: TOML files with one table for each part of the settings; an unknown key is an error.

May import: boolattn.training.settings, boolattn.settings, boolattn.errors.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError
from boolattn.settings import build
from boolattn.training.settings import TABLES, Preset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def preset_names() -> list[str]:
    """Return the presets that come with the package."""
    folder = files("boolattn.training").joinpath("presets")
    return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml"))


def load_preset(name: str, changes: Sequence[str] = (), *, first: str = "train") -> Preset:
    """Read a preset by name, or from a TOML file, with single values changed.

    Args:
        name: One of :func:`preset_names`, or the path of a TOML file.
        changes: ``key=value`` or ``table.key=value``; the value as TOML writes it, text also
            without quotes, and ``none`` for a setting that may be left out.
        first: Table that a key without a table is looked up in first.
    """
    if name.endswith(".toml"):
        source, text = name, _read(Path(name))
    elif name in preset_names():
        source = f"preset {name}"
        text = files("boolattn.training").joinpath("presets", f"{name}.toml").read_text("utf-8")
    else:
        raise ConfigError(f"no preset {name!r}; there are {', '.join(preset_names())}")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not TOML: {error}") from error
    return make_preset(Path(name).stem, values, changes, first=first, source=source)


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
        table, name_in_table = _owner(key.strip(), first)
        tables[table][name_in_table] = _value(raw.strip(), _type_of(table, name_in_table))
    built: dict[str, Any] = {
        table: build(kind, tables[table], source=f"{source} [{table}]")
        for table, kind in TABLES.items()
    }
    return Preset(name=name, **built)


def _owner(key: str, first: str) -> tuple[str, str]:
    """Find the table of a key."""
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


def _type_of(table: str, name: str) -> str:
    return next((str(item.type) for item in fields(TABLES[table]) if item.name == name), "")


def _value(raw: str, kind: str) -> Any:  # noqa: ANN401 - any value TOML has
    # TOML has no word for it; "none" is also a choice of settings that are text.
    if raw.lower() == "none" and "None" in kind:
        return None
    try:
        return tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        if raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        return raw


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
