"""Addresses of stores: a folder, ``postgresql://…``, ``qdrant://…`` or ``milvus://…``."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from boolattn.stores.base import Draft, Store, StoreSettings

_LOCAL = ("boolattn.stores.local.store", "LocalStore")
#: Module and class by the scheme of an address; a path has none.
_SCHEMES = {
    "postgresql": ("boolattn.stores.postgres", "PostgresStore"),
    "postgres": ("boolattn.stores.postgres", "PostgresStore"),
    "qdrant": ("boolattn.stores.points.qdrant", "QdrantStore"),
    "qdrant+https": ("boolattn.stores.points.qdrant", "QdrantStore"),
    "milvus": ("boolattn.stores.points.milvus", "MilvusStore"),
    "milvus+https": ("boolattn.stores.points.milvus", "MilvusStore"),
}
_FORMS = (
    "a folder, postgresql://HOST/DATABASE?table=NAME, qdrant://HOST:6333/NAME, "
    "milvus://HOST:19530/NAME, qdrant:FOLDER/NAME or milvus:FILE/NAME"
)


def is_local(address: str | Path) -> bool:
    """Return whether an address is a folder."""
    return _store_class(str(address)) == _LOCAL


def open_store(address: str | Path, *, verify: bool = False) -> Store:
    """Open the store at an address for reading and writing.

    With ``verify`` every byte of a folder is compared with its hash.
    """
    options = {"verify": verify} if is_local(address) else {}
    if is_local(address) and Path(address).is_file():
        command = f"boolattn index {shlex.quote(str(address))}"
        raise ConfigError(f"{address} is a file, not an index; make one of it: {command}")
    store: Store = _load(address).open(str(address), **options)
    return store


def create_store(
    address: str | Path, settings: StoreSettings, *, replace: bool = False, resume: bool = False
) -> AbstractContextManager[Draft]:
    """Build a store, which appears at its address when the context ends without an error.

    Args:
        address: Where to.
        settings: Of the store.
        replace: Whether to replace a store that is there, when the new one is complete.
        resume: Whether to go on with a build that was stopped.
    """
    draft: AbstractContextManager[Draft] = _load(address).create(
        str(address), settings, replace=replace, resume=resume
    )
    return draft


def _load(address: str | Path) -> Any:  # noqa: ANN401 - a class with open and create
    module, name = _store_class(str(address))
    return getattr(import_module(module), name)


def _store_class(address: str) -> tuple[str, str]:
    scheme, colon, _ = address.partition(":")
    if colon and scheme in _SCHEMES:
        return _SCHEMES[scheme]
    if "://" in address:
        raise ConfigError(f"{address!r} is no address of a store; there are {_FORMS}")
    return _LOCAL
