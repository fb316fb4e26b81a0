"""Addresses of stores: a folder, ``postgresql://…``, ``qdrant://…`` or ``milvus://…``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from boolattn.stores.base import Store
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Draft

#: Module and class by the scheme of an address; a path has none.
_STORES = {
    "": ("local.store", "LocalStore"),
    "postgresql": ("postgres.store", "PostgresStore"),
    "postgres": ("postgres.store", "PostgresStore"),
    "qdrant": ("points.qdrant", "QdrantStore"),
    "milvus": ("points.milvus", "MilvusStore"),
}
_FORMS = (
    "a folder, postgresql://HOST/DATABASE?table=NAME, qdrant://HOST:6333/NAME, "
    "milvus://HOST:19530/NAME, qdrant:FOLDER/NAME or milvus:FILE/NAME"
)


def open_store(address: str | Path, *, verify: bool = False) -> Store:
    """Open the store at an address for reading and writing.

    With ``verify`` every byte of a folder is compared with its hash.

    >>> import boolattn
    >>> searcher = boolattn.Searcher.from_texts(["moths", "ants"])
    >>> open_store(searcher.store.label).n_documents
    2
    """
    store: Store = _store_class(str(address)).open(str(address), verify=verify)
    return store


def create_store(
    address: str | Path, settings: StoreSettings, *, replace: bool = False, resume: bool = False
) -> AbstractContextManager[Draft]:
    """Build a store, which appears at its address when the context ends without an error.

    A store that is there is kept until then, and only replaced if that is asked for. A build that
    was stopped is resumed, or begun again.
    """
    draft: AbstractContextManager[Draft] = _store_class(str(address)).create(
        str(address), settings, replace=replace, resume=resume
    )
    return draft


def _store_class(address: str) -> Any:  # noqa: ANN401 - a class with open and create
    scheme, colon, _ = address.partition(":")
    scheme = scheme.removesuffix("+https") if colon else ""
    if scheme not in _STORES and "://" in address:
        raise ConfigError(f"{address!r} is no address of a store; there are {_FORMS}")
    module, name = _STORES.get(scheme, _STORES[""])
    return getattr(import_module(f"boolattn.stores.{module}"), name)
