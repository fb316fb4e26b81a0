"""Tables of words that are shipped as TOML beside the modules that use them."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def package_table(package: str, name: str) -> dict[str, Any]:
    """Read a TOML file of a package, once."""
    return tomllib.loads(files(package).joinpath(name).read_text(encoding="utf-8"))
