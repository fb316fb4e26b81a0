"""Servers of databases as the tests start, kill and start them again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from boolattn.stores.points import qdrant
from tests.search.conftest import crash


def close_folders():
    """Close folders of Qdrant's local mode, as if the process had ended."""
    for client in qdrant._folders.values():
        client.close()
    qdrant._folders.clear()


class MilvusServer:
    """Milvus Lite as a server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._folder, self.address = folder, f"127.0.0.1:{self._port}"
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
        self._server, self.address = server, server.get_uri()

    def start(self) -> None:
        self._server.start()

    def crash(self) -> None:
        crash(self._server)
