"""Writers killed at every event: the index is the old one or the new one, and is written again.

The child counts what it does to files (Python's audit events) and kills itself at one of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys

import numpy as np
import pytest

from boolattn.search import Document, Searcher
from tests.search import word_model

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree", "os.truncate")
NEW = [Document(id=f"new-{n}", text=f"moths Borneo {n}") for n in range(4)]
OLD = [Document(id="both", text="birds Kenya"), *NEW[:2]]
#: Default: a few kills, spread over the events. As slow tests: every event.
N_KILLS = 4


@pytest.fixture(scope="module", params=["flat", "hnsw", "ivf"])
def base(request, tmp_path_factory):
    """An index, with everything imported and every vector known before a process forks."""
    import faiss

    faiss.omp_set_num_threads(1)  # threads do not survive a fork
    retriever = word_model.retriever()
    assert retriever.fingerprint
    folder = tmp_path_factory.mktemp("base") / "index"
    searcher = Searcher.build(
        folder, word_model.corpus(), retriever, segment_size=10, engine=request.param
    )
    texts = [d.text for d in (*word_model.corpus(), *NEW, *OLD)]
    vectors = dict(zip(texts, retriever.encode_documents(texts), strict=True))
    known = retriever.parts
    titles = retriever.encode_operands(["moths"])

    class Known(type(retriever)):
        """No torch in a child."""

        def __init__(self):
            pass

        parser, dimension, similarity, max_tokens = None, retriever.dimension, "cosine", 512
        fingerprint, parts = retriever.fingerprint, known

        def encode_operands(self, texts):
            return np.repeat(titles, len(texts), 0)

        def encode_documents(self, texts, **_options):
            return np.stack([vectors[text] for text in texts])

    return searcher, Known()


ACTIONS = {
    "add": lambda folder, model: Searcher.open(folder, model).add(NEW),
    "update": lambda folder, model: Searcher.open(folder, model).add(OLD, replace_old=True),
    "delete": lambda folder, model: Searcher.open(folder, model).delete(["both", "moths-java"]),
    "replace": lambda folder, model: Searcher.build(folder, [*OLD, *NEW[2:]], model, replace=True),
}


def run(action, folder, model, at):
    """Act in a child that kills itself at an event; return the number of events, if it ends."""
    counter = folder.parent / "events"
    child = os.fork()
    if not child:
        count = 0

        def watch(event, _arguments):
            nonlocal count
            if event in EVENTS:
                count += 1
                if count == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(watch)
            ACTIONS[action](folder, model)
            counter.write_text(str(count))
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    return int(counter.read_text())


def ids(folder, model):
    index = Searcher.open(folder, model, verify=True)
    rows = index._index.rows
    live = range(rows.n_documents) if rows.live is None else np.flatnonzero(rows.live).tolist()
    return {rows.document(number).id for number in live}


def check(base, action, tmp_path, n_kills):
    searcher, model = base
    folder = tmp_path / "index"
    shutil.copytree(searcher.folder, folder)
    before = ids(folder, model)
    n_events = run(action, folder, model, at=0)
    after = ids(folder, model)
    assert after != before or action == "update"
    step = max(1, n_events // n_kills)
    n_killed = 0
    for at in range(1 + step // 2, n_events + 1, step):
        shutil.rmtree(folder)
        shutil.copytree(searcher.folder, folder)
        n_killed += run(action, folder, model, at) is None
        assert ids(folder, model) in (before, after), at
        # The next writer goes on, and leaves nothing of the killed one.
        if ids(folder, model) == before:
            ACTIONS[action](folder, model)
        assert ids(folder, model) == after
    assert n_killed >= min(n_kills, n_events) - 1


@pytest.mark.parametrize("action", ACTIONS)
def test_a_killed_writer_leaves_the_old_index_or_the_new_one(base, action, tmp_path):
    check(base, action, tmp_path, N_KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_a_writer_killed_at_every_event(base, action, tmp_path):
    check(base, action, tmp_path, 1_000_000)
