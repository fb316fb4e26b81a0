"""Writers killed at their events: the index is the old one or the new one, and is written again."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WAYS = ("exact", "hnsw")
OLD = {"both", *(f"old-{n}" for n in range(20))}
NEW = {f"new-{n}" for n in range(4)}
#: What the index holds before and after.
STATES = {
    "new": (None, OLD),
    "add": (OLD, OLD | NEW),
    "update": (OLD, OLD | {"new-0", "new-1"}),
    "delete": (OLD, OLD - {"both", "old-3"}),
    "replace": (OLD, NEW | {"both"}),
}
#: Events that change the manifest, which is when a local store changes.
COMMIT = r"^(open|os.rename|os.remove) .*manifest\.json"
#: A kill of each other way to search, amid its rows.
AMID = (
    ("hnsw", "add", r"os.rename .*words-", 1),
    ("hnsw", "update", COMMIT, 1),
)


class KillServer:
    """Runs actions in children of a process of its own."""

    def __init__(self, folder: Path, *databases: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.stores.kill_server"]
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._process = subprocess.Popen(
            [*command, str(folder / "answer"), *databases],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"TMPDIR": str(self.temporary)},
        )

    def run(self, action, index, *, at=0, match="", after=False, seconds=0.0):
        request = {"address": str(index.address), "vectors": index.vectors, "action": action}
        request |= {"match": match, "at": at, "after": after, "seconds": seconds}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def stop(self):
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    own = KillServer(tmp_path_factory.mktemp("server"))
    yield own
    own.stop()


class Index:
    """An index that can be put back as it was."""

    def __init__(self, server, folder, vectors):
        self._server, self.folder, self.vectors = server, folder, vectors
        self.address = folder
        self._saved = folder.with_name("saved")

    def do(self, action, **options):
        answer = self._server.run(action, self, **options)
        assert not answer.get("error"), answer["error"]
        return answer

    def ids(self):
        """Return what the index holds: its documents, its vectors and its words alike."""
        answer = self.do("look")["result"]
        if answer is None:
            return None
        assert answer["documents"] == answer["near"] == answer["worded"]
        return set(answer["documents"])

    def save(self):
        shutil.copytree(self.folder, self._saved)

    def restore(self, *, is_new):
        # What killed writers leave is cleaned by later ones, who would have more events.
        for folder in (self.folder, *self._server.temporary.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)
        if not is_new:
            shutil.copytree(self._saved, self.folder)


@pytest.fixture(scope="module")
def index(request, server, tmp_path_factory):
    own = Index(server, tmp_path_factory.mktemp("index") / "index", request.param)
    own.do("new")
    own.save()
    return own


def check(index, action, **options):
    """Kill an action at a moment; return whether it was."""
    before, after = STATES[action]
    index.restore(is_new=action == "new")
    is_killed = index.do(action, **options)["is_killed"]
    found = index.ids()
    assert found == after if not is_killed else found in (before, after)
    # The next writer goes on, and leaves nothing of the killed one.
    if found != after:
        index.do(action)
        assert index.ids() == after
    return is_killed


@pytest.mark.parametrize("index", ["exact"], indirect=True)
@pytest.mark.parametrize("action", STATES)
def test_a_writer_killed_while_the_manifest_changes(index, action):
    at = 1
    while check(index, action, at=at, match=COMMIT, after=True):
        at += 1
    assert at > 2


@pytest.mark.slow
@pytest.mark.parametrize(("index", "action", "match", "at"), AMID, indirect=["index"])
def test_a_writer_killed_amid_its_rows(index, action, match, at):
    assert check(index, action, at=at, match=match, after=True)
    assert not [*index.folder.rglob("*.part")]


@pytest.mark.slow
@pytest.mark.parametrize("action", STATES)
@pytest.mark.parametrize("index", WAYS, indirect=True)
def test_a_writer_killed_at_every_event(index, action):
    counts = []
    for _ in range(2):  # a build of a graph does not always have as many
        index.restore(is_new=action == "new")
        counts.append(len(index.do(action)["events"]))
    n_events = min(counts)
    n_killed = sum(check(index, action, at=at, after=True) for at in range(1, n_events + 1))
    assert n_killed > 0.9 * n_events


@pytest.mark.slow
@pytest.mark.parametrize("action", STATES)
@pytest.mark.parametrize("index", WAYS, indirect=True)
def test_a_writer_killed_at_any_moment(index, action):
    index.restore(is_new=action == "new")
    seconds, generator = index.do(action)["seconds"], random.Random(action)
    moments = [seconds * generator.random() for _ in range(20)]
    assert sum(check(index, action, seconds=moment) for moment in moments) > 5
