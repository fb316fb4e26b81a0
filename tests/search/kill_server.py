"""Runs writers in children of a process without threads, and kills them at an event.

Events are what a child does to files (Python's audit events) and its calls of a database's client.
The child kills itself just before an event, or just after it, when a file is open and still empty.
Reads a request a line, answers with a line; run by ``tests/search/test_kills.py``.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np

from boolattn.encoders.callables import CallableRetriever
from boolattn.errors import IndexFolderError
from boolattn.search import Document, Searcher

CLIENT = "client"
FILES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate")
EVENTS = (CLIENT, *FILES)
#: Flags of a file that is opened to be written.
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
BOTH = [Document(id="both", text="moths Borneo Sumatra", metadata={"place": "Borneo"})]
OLD = [Document(id=f"old-{n}", text=f"birds Kenya {n}", metadata={"n": n}) for n in range(20)]
NEW = [Document(id=f"new-{n}", text=f"moths Borneo {n}", metadata={"n": -n}) for n in range(4)]
CHANGED = [Document(id="both", text="birds Kenya"), *NEW[:2]]


def embed(texts: list[str]) -> list[np.ndarray]:
    """Encode texts by their words."""

    def word(text: str) -> np.ndarray:
        return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(16)

    return [sum(map(word, text.split()), np.zeros(16)) for text in texts]


MODEL = CallableRetriever(embed, None)


def build(folder: Path, documents: list[Document], **settings: object) -> None:
    Searcher.build(folder, documents, MODEL, segment_size=10, **settings)


def look(folder: Path, **_settings: object) -> dict[str, list[str]] | None:
    """Return the ids of an index: as the folder says, and as the engine finds them."""
    try:
        index = Searcher.open(folder, MODEL, verify=True)._index
    except IndexFolderError as error:
        if "never finished" in str(error) or "no index" in str(error):
            return None
        raise
    rows = index.rows
    live = range(rows.n_documents) if rows.live is None else np.flatnonzero(rows.live).tolist()
    [near] = index.engine.nearest(MODEL.encode_operands(["moths"]), 1000, index.selection(None))
    return {
        name: sorted(rows.document(number).id for number in numbers)
        for name, numbers in (("rows", live), ("engine", near.rows.tolist()))
    }


ACTIONS = {
    "look": look,
    "new": lambda folder, **own: build(folder, [*BOTH, *OLD], replace=True, **own),
    "add": lambda folder, **_: Searcher.open(folder, MODEL).add(NEW),
    "update": lambda folder, **_: Searcher.open(folder, MODEL).add(CHANGED, replace_old=True),
    "delete": lambda folder, **_: Searcher.open(folder, MODEL).delete(["both", "old-3"]),
    "replace": lambda folder, **own: build(folder, [*CHANGED, *NEW[2:]], replace=True, **own),
}


def clients() -> list[tuple[type, tuple[str, ...]]]:
    """Return the methods that change a database."""
    import psycopg
    from pymilvus import MilvusClient
    from qdrant_client import QdrantClient
    from qdrant_client.local.persistence import CollectionPersistence

    milvus = ("create_collection", "drop_collection", "insert", "delete", "flush")
    qdrant = ("create_collection", "delete_collection", "upsert", "delete")
    return [
        (MilvusClient, (*milvus, "release_collection", "load_collection")),
        (QdrantClient, qdrant),
        (CollectionPersistence, ("persist", "delete")),
        (psycopg.Connection, ("execute",)),
        (psycopg.Copy, ("write_row", "__exit__")),
    ]


def announce(owner: type, name: str) -> None:
    """Make a method an audit event."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def announced(*values: object, **options: object) -> object:
        if str(values[1:2]).startswith(("('SELECT", "('SET")):
            return method(*values, **options)
        sys.audit(CLIENT, f"{owner.__name__}.{name}")
        found = method(*values, **options)
        sys.audit(CLIENT, f"{owner.__name__}.{name} done")
        return found

    setattr(owner, name, announced)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watched(at: int, match: str, *, after: bool) -> list[str]:
    """Record events from now on, and kill this process at one of those that match."""
    seen: list[str] = []
    wanted = re.compile(match)

    def watch(event: str, values: tuple[object, ...]) -> None:
        if event not in EVENTS or (event == "open" and not values[2] & WRITING):
            return
        label = f"{event} {' '.join(map(str, values))[:300]}"
        if wanted.search(label):
            seen.append(label)
        if len(seen) != at or seen[-1] is not label:
            return
        if not after:
            kill()
        own = watch.__code__
        sys.setprofile(lambda frame, *_: None if frame.f_code is own else kill())

    sys.addaudithook(watch)
    return seen


def run(request: dict[str, object], answer: Path) -> None:
    """Act as a request says."""
    own = {name: request[name] for name in ("engine", "uri")}
    seen = watched(request["at"], request["match"], after=request["after"])
    if request["seconds"]:
        threading.Timer(request["seconds"], kill).start()
    result, error = None, ""
    try:
        result = ACTIONS[request["action"]](Path(request["folder"]), **own)
    except Exception as caught:  # noqa: BLE001 - is told to the test
        error = f"{type(caught).__name__}: {caught}"
    found = {"result": result, "error": error, "events": list(seen)}
    answer.write_text(json.dumps(found))


def main() -> None:
    answer = Path(sys.argv[1])
    for owner, names in clients():
        for name in names:
            announce(owner, name)
    gc.freeze()
    for line in sys.stdin:
        answer.unlink(missing_ok=True)
        start = time.perf_counter()
        child = os.fork()
        if not child:
            try:
                run(json.loads(line), answer)
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        # A child that is killed may have begun to answer.
        found = {} if is_killed else json.loads(answer.read_text())
        found["is_killed"] = is_killed
        found["seconds"] = time.perf_counter() - start
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
