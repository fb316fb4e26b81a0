"""Addresses of stores: a folder, ``postgresql://…``, ``qdrant://…`` or ``milvus://…``."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from boolattn.stores.base import Store
    from boolattn.stores.settings import StoreSettings
    from boolattn.stores.writer import Draft

#: Module and class of a database by the scheme of an address; a folder has none.
_STORES = {
    "postgresql": ("postgres", "PostgresCollection"),
    "postgres": ("postgres", "PostgresCollection"),
    "qdrant": ("qdrant", "QdrantCollection"),
    "milvus": ("milvus", "MilvusCollection"),
}
_FORMS = (
    "a folder, postgresql://HOST/DATABASE?table=NAME, qdrant://HOST:6333/NAME, "
    "milvus://HOST:19530/NAME, qdrant:FOLDER/NAME or milvus:FILE/NAME"
)
_SERVER = re.compile(r"//(\[[\da-fA-F:.]+\]|[\w.-]+)(:\d+)?")
_FORM = "postgresql://[user@]host[:port]/database?table=NAME"
#: A schema may stand before the name. Longer names would be cut, with what is appended to them.
_TABLE, _MAX_NAME = re.compile(r"(?:[\w$-]+\.)?[\w$-]+"), 39


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
    is_database = ":" in address and _scheme(address) in _STORES
    if not is_database and "://" in address:
        raise ConfigError(f"{address!r} is no address of a store; there are {_FORMS}")
    module, name = ("points", "PointStore") if is_database else ("local", "LocalStore")
    return getattr(import_module(f"boolattn.stores.{module}.store"), name)


def database_class(address: str) -> Any:  # noqa: ANN401 - a kind of ``Database``
    """Return the class of the database at an address."""
    module, name = _STORES[_scheme(address)]
    return getattr(import_module(f"boolattn.stores.points.{module}"), name)


def _scheme(address: str) -> str:
    return address.partition(":")[0].removesuffix("+https")


def parse_server(address: str, kind: str, secret: str) -> tuple[str, str]:
    """Return the URL of a server or the path of a folder or file, and the name of the store.

    >>> parse_server("qdrant+https://example.org:6333/recipes", "qdrant", "QDRANT_API_KEY")
    ('https://example.org:6333', 'recipes')
    >>> parse_server("milvus:data/notes.db/notes", "milvus", "MILVUS_TOKEN")
    ('data/notes.db', 'notes')
    """
    is_server = "://" in address
    if is_server and re.search("[@?]", address):
        raise ConfigError(f"an address holds no key: set {secret} in the environment")
    name = r"[A-Za-z_][\w-]{0,200}"
    match = re.fullmatch(rf"{kind}(\+https)?:(.+)/({name})", address, re.ASCII)
    if match is None or (is_server and not _SERVER.fullmatch(match[2])):
        forms = f"{kind}://HOST:PORT/NAME or {kind}:PATH/NAME, NAME of letters, digits, - and _"
        raise ConfigError(f"{address!r} is no address of a store: write {forms}")
    scheme = f"http{'s' if match[1] else ''}:" if is_server else ""
    return scheme + match[2], match[3]


def parse_postgres(address: str) -> tuple[str, str]:
    """Split the address of a store from its table; refuse one with a password or without a table.

    >>> parse_postgres("postgresql://me@db/shop?sslmode=require&table=docs")
    ('postgresql://me@db/shop?sslmode=require', 'docs')
    """
    server, _, query = address.partition("?")
    values = dict(parse_qsl(query, keep_blank_values=True))
    if re.search("//[^/]*:[^/]+@", server) or "password" in values:
        raise ConfigError("an address holds no password: set the password in PGPASSWORD")
    table = values.pop("table", "")
    if not server.startswith(("postgresql://", "postgres://")) or not table:
        raise ConfigError(f"a Postgres address is {_FORM}, not {address!r}")
    if not _TABLE.fullmatch(table) or len(table.rpartition(".")[2].encode()) > _MAX_NAME:
        form = f"letters, digits, _, $ and -, at most {_MAX_NAME}"
        raise ConfigError(f"a table's name is made of {form}, not {table!r}")
    options = urlencode(values, quote_via=quote)
    return server + (f"?{options}" if options else ""), table
