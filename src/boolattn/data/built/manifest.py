"""The manifest of a benchmark that was built into a folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

from boolattn.errors import DataError, MissingDataError
from boolattn.settings import build

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


def read_built(kind: type[T], folder: Path, *, name: str, expected: str) -> T:
    """Read the manifest of a built benchmark, which must be in the expected format."""
    path = folder / "manifest.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingDataError(
            f"no {name} benchmark in {folder}; build it with: boolattn data build {name}"
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}); build the benchmark again") from error
    found = values.get("format") if isinstance(values, dict) else None
    if found != expected:
        raise DataError(f"{path} is in format {found!r}, this reads {expected!r}; build it again")
    return build(kind, values, source=str(path))
