"""Connections to Milvus: a server or cluster by its address, or a file (Milvus Lite).

The token of a cluster is read from ``MILVUS_TOKEN`` and never stored.
"""

from __future__ import annotations

import logging
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from boolattn.errors import MissingDataError, ServerError
from boolattn.stores.points.database import one_line

try:
    import grpc
    from pymilvus import DataType, MilvusClient
    from pymilvus.exceptions import MilvusException
except ImportError as error:
    raise MissingDataError("Milvus needs: pip install 'boolattn[milvus]'") from error

__all__ = ["LIMIT", "TIMEOUT", "Connection", "DataType", "MilvusClient", "connect"]

#: Maximum number of results of one search; Milvus's own limit.
LIMIT = 16_384
#: Seconds that an answer may take, and seconds for a graph to be built or read.
TIMEOUT, _LOAD_TIMEOUT = 30.0, 3600.0
_ERRORS = (MilvusException, grpc.RpcError)


class Connection:
    """A server, which is connected to again where a connection broke, or a file.

    Args:
        client: A ``MilvusClient``, an address with ``://``, or a file.
        label: Names it in errors.
        timeout: Seconds that an answer may take; left out, :data:`TIMEOUT`.
    """

    def __init__(self, client: MilvusClient | str, label: str, timeout: float = 0) -> None:
        self._client, self._label, self._timeout = client, label, timeout

    def call(self, method: str, *values: Any, **options: Any) -> Any:  # noqa: ANN401
        """Call a method of the client; read a collection that a new server process has not read."""
        options = {"timeout": self._timeout or TIMEOUT} | options
        client = self._client
        with one_line(self._label, _ERRORS):
            client = connect(client) if isinstance(client, str) else client
            try:
                return getattr(client, method)(*values, **options)
            except MilvusException as error:
                if not re.search("not loaded|not been loaded|released", str(error)):
                    raise
        self.load(values[0])
        with one_line(self._label, _ERRORS):
            return getattr(client, method)(*values, **options)

    def load(self, collection: str) -> None:
        """Make a collection ready to be searched."""
        try:
            self.call("load_collection", collection, timeout=_LOAD_TIMEOUT)
        except ServerError:
            # A killed writer may have cut a graph of Milvus Lite, which makes missing ones anew.
            name = self.call("describe_collection", collection)["collection_name"]
            folder = Path(str(self._client), "collections", name)
            if not (graphs := [*folder.glob("partitions/*/indexes/*.idx")]):
                raise
            for path in graphs:
                path.unlink()
            self.call("load_collection", collection, timeout=_LOAD_TIMEOUT)


@cache
def connect(address: str) -> MilvusClient:
    """Connect once: a file of Milvus Lite allows one connection."""
    # They log a traceback of every error that they raise.
    for name in ("pymilvus", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    token = os.environ.get("MILVUS_TOKEN", "")
    try:
        return MilvusClient(address, token=token, timeout=TIMEOUT)
    except MilvusException as error:
        if "://" in address:
            raise
        raise ServerError(
            f"{address}: {error.message}; a file allows one process; is it open in another?"
        ) from error
