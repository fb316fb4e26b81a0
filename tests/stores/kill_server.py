"""Runs writers in children of a process without threads, and kills them at an event.

Events are what a child does to files (Python's audit events) and its calls of a database's client,
for the databases that are named. The child kills itself just before an event, or just after it,
when a file is open and still empty. Reads a request a line, answers with a line; run by
``tests/stores/test_kills.py``.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import pkgutil
import re
import signal
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np

from boolattn.encoders.callables import CallableEncoder
from boolattn.errors import IndexFolderError
from boolattn.search import Document, Searcher
from boolattn.stores.filters import Filter

CLIENT = "client"
FILES = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate")
EVENTS = (CLIENT, *FILES)
#: The methods that change a database, by the class of a client.
CLIENTS = {
    "milvus": {
        "pymilvus.MilvusClient": (
            *("create_collection", "drop_collection", "insert", "upsert", "delete", "flush"),
            *("create_alias", "alter_alias", "release_collection", "load_collection"),
        ),
    },
    "qdrant": {
        "qdrant_client.QdrantClient": (
            *("create_collection", "delete_collection", "upsert", "delete"),
            "update_collection_aliases",
        ),
        "qdrant_client.local.persistence.CollectionPersistence": ("persist", "delete"),
    },
    "postgres": {
        "psycopg.Connection": ("execute",),
        "psycopg.Cursor": ("executemany",),
    },
}
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


MODEL = CallableEncoder(embed)


def build(address: str, documents: list[Document], **settings: object) -> None:
    Searcher.build(address, documents, MODEL, parser=None, segment_size=10, **settings)


def opened(address: str, **options: object) -> Searcher:
    return Searcher.open(address, MODEL, parser=None, **options)


def look(address: str, **_settings: object) -> dict[str, list[str]] | None:
    """Return the ids of a store: as its documents, its vectors and its words say."""
    try:
        searcher = opened(address, verify=True)
    except IndexFolderError as error:
        if "never finished" in str(error) or "no index" in str(error):
            return None
        raise
    with searcher.store.reading() as reader:
        [near] = reader.nearest(MODEL.encode_operands(["moths"]), 1000, Filter())
        [worded] = reader.words([["moth", "bird"]], 1000, Filter())
        return {
            "documents": sorted(document.id for document in reader.sample(1000)),
            "near": sorted(document.id for document in reader.documents(near.rows)),
            "worded": sorted(document.id for document in reader.documents(worded.rows)),
        }


ACTIONS = {
    "look": look,
    "new": lambda address, **own: build(address, [*BOTH, *OLD], replace=True, **own),
    "add": lambda address, **_: opened(address).add(NEW),
    "update": lambda address, **_: opened(address).add(CHANGED, replace_old=True),
    "complete": lambda address, **_: opened(address).add(NEW, replace_old=True),
    "delete": lambda address, **_: opened(address).delete(["both", "old-3"]),
    "replace": lambda address, **own: build(address, [*CHANGED, *NEW[2:]], replace=True, **own),
}


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
        if not seen or len(seen) != at or seen[-1] is not label:
            return
        if not after:
            kill()
        own = watch.__code__
        sys.setprofile(lambda frame, *_: None if frame.f_code is own else kill())

    sys.addaudithook(watch)
    return seen


def run(request: dict[str, object], answer: Path) -> None:
    """Act as a request says."""
    seen = watched(request["at"], request["match"], after=request["after"])
    if request["seconds"]:
        threading.Timer(request["seconds"], kill).start()
    result, error = None, ""
    try:
        result = ACTIONS[request["action"]](request["address"], vectors=request["vectors"])
    except Exception as caught:  # noqa: BLE001 - is told to the test
        error = f"{type(caught).__name__}: {caught}"
    found = {"result": result, "error": error, "events": list(seen)}
    answer.write_text(json.dumps(found))


def main() -> None:
    answer = Path(sys.argv[1])
    for database in sys.argv[2:]:
        for owner, names in CLIENTS[database].items():
            for name in names:
                announce(pkgutil.resolve_name(owner), name)
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
