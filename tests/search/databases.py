"""Engines as the tests set them up: how each is started, killed and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from boolattn.search.engines.registry import find_engine
from boolattn.search.stores import milvus, qdrant
from tests.search.conftest import crash

#: Nothing listens there.
CLOSED = {
    "milvus-server": "http://127.0.0.1:9",
    "qdrant": "http://127.0.0.1:9",
    "postgres": "postgresql://127.0.0.1:9/x",
}


@dataclass
class Setup:
    """An engine and the address of its database."""

    name: str
    uri: str = ""
    server: object = None

    @property
    def engine(self) -> str:
        return self.name.removesuffix("-server")

    @property
    def is_exact(self) -> bool:
        return self.name in ("flat", "qdrant", "postgres-exact")

    @property
    def is_database(self) -> bool:
        return hasattr(find_engine(self.engine), "collection")

    def forget(self) -> None:
        """Close embedded databases, as a process does when it ends."""
        for client in qdrant._folders.values():
            client.close()
        qdrant._folders.clear()
        milvus.connect.cache_clear()
        if self.name == "milvus":
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_all()


class MilvusServer:
    """Milvus Lite as a server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._folder, self.uri = folder, f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        program, port = Path(sys.executable).with_name("milvus-lite"), str(self._port)
        options = ["--data-dir", self._folder, "--host", "127.0.0.1", "--port", port]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([program, "server", *options], **quiet)
        for _ in range(600):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError("milvus-lite does not start")

    def crash(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class PostgresServer:
    """The tests' Postgres."""

    def __init__(self, server: object) -> None:
        self._server, self.uri = server, server.get_uri()

    def start(self) -> None:
        self._server.start()

    def crash(self) -> None:
        crash(self._server)
