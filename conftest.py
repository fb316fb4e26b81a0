"""What makes collection cheap: modules without examples are not imported for them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Pass over modules of the packages that have no doctest; tests import what they need."""
    if collection_path.suffix != ".py" or collection_path.name.startswith("test_"):
        return None
    return True if ">>> " not in collection_path.read_text(encoding="utf-8") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave the objects of imported modules out of later garbage collections: millions."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
