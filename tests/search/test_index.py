"""The index on disk: atomic writes, damage, crashes."""

import fcntl
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

from boolattn.checksums import read_manifest, write_manifest
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoder.towers import build_towers
from boolattn.errors import (
    ConfigError,
    DataError,
    IndexFolderError,
    IndexMismatchError,
    MissingDataError,
)
from boolattn.search import Document, Searcher
from boolattn.stores.local.manifest import MANIFEST
from boolattn.stores.local.store import LocalStore
from boolattn.stores.writer import Writer, titled
from tests.search import word_model

N = len(word_model.corpus())
# The forked children only write files, and need no threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def ids(result):
    return [hit.id for hit in result.hits]


def answers(searcher):
    """Results of an index, to compare them later."""
    return [ids(searcher.search(query, k=5)) for query in ("moths Borneo", "birds NOT Kenya")]


def test_an_index_is_opened_again_as_it_was_built(folder, retriever):
    built = Searcher.build(folder, word_model.corpus(), retriever, segment_size=10)
    opened = Searcher.open(folder, retriever, verify=True)
    assert len(opened) == len(built) == N
    assert len(opened.store.manifest.segments) == 3
    assert answers(opened) == answers(built)
    document = opened.document("moths-peru")
    assert document == word_model.corpus()[3]
    with pytest.raises(DataError, match="no document 'whales'"):
        opened.document("whales")


def test_progress_is_reported_for_each_block(folder, retriever, monkeypatch):
    counts = []
    monkeypatch.setattr(retriever, "block_size", 4)
    Searcher.build(
        folder,
        word_model.corpus(),
        retriever,
        progress=counts.append,
        segment_size=10,
    )
    assert sum(counts) == 25
    assert max(counts) == 4


def test_progress_counts_documents_and_not_passages(folder, retriever):
    counts, text = [], "A moth found in Borneo. " * 40
    Searcher.build(folder, [text, "ants", text], retriever, progress=counts.append, passages=16)
    with Searcher.open(folder, retriever).store.reading() as reader:
        assert reader.n_rows > 10
    assert sum(counts) == 3


def test_progress_of_a_resumed_build_counts_what_is_there(folder, retriever, monkeypatch):
    encode, n_encoded, counts = retriever.encode_documents, [], []

    def stop(texts, **options):
        if sum(n_encoded) >= 10:
            raise KeyboardInterrupt
        n_encoded.append(len(texts))
        return encode(texts, **options)

    monkeypatch.setattr(retriever, "encode_documents", stop)
    with pytest.raises(KeyboardInterrupt):
        Searcher.build(folder, word_model.corpus(), retriever, segment_size=10)
    monkeypatch.undo()
    options = {"segment_size": 10, "resume": True, "progress": counts.append}
    Searcher.build(folder, word_model.corpus(), retriever, **options)
    assert counts[0] == 10
    assert sum(counts) == 25


def test_without_faiss_search_is_exact(folder, retriever, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDataError, match=r"exact, needs faiss.*\[hnsw\]"):
        Searcher.build(folder, ["moths"], retriever, vectors="hnsw")
    assert not folder.exists()
    built = Searcher.build(folder, ["moths", "ants"], retriever)
    assert built.settings.vectors == "exact"
    assert built.search("ants").hits[0].text == "ants"


@pytest.mark.parametrize("batch_size", [None, 2])
def test_two_towers_are_indexed_in_batches(
    folder, tiny_encoder, tokenizer, monkeypatch, batch_size
):
    towers = build_towers(tiny_encoder(), tokenizer=tokenizer, document_length=40)
    texts = [titled(document.title, document.text) for document in word_model.corpus()]
    expected = towers.encode_document(texts)
    counts, sizes, encoder = [], [], TorchEncoder(towers)
    encode = encoder.encode_documents
    monkeypatch.setattr(
        encoder,
        "encode_documents",
        lambda texts, batch_size: sizes.append(batch_size) or encode(texts, batch_size=batch_size),
    )
    built = Searcher.build(
        folder,
        word_model.corpus(),
        encoder,
        progress=counts.append,
        batch_size=batch_size,
        passages=0,
    )
    with built.store.reading() as reader:
        found = reader.row_vectors(np.arange(N))
    np.testing.assert_allclose(found, expected, atol=1e-6, rtol=0)
    assert sum(counts) == N
    assert sizes == [batch_size]


def test_bad_documents_and_settings_are_refused(folder, retriever, tmp_path):
    with pytest.raises(DataError, match="holds no documents"):
        Searcher.build(folder, [], retriever)
    assert not folder.exists()
    twice = [*word_model.corpus(), Document(id="both", text="x")]
    with pytest.raises(DataError, match="the id 'both' comes twice"):
        Searcher.build(folder, twice, retriever, segment_size=4, replace=True)
    with pytest.raises(DataError, match="'a' has no text"):
        Searcher.build(folder, [Document(id="a", text=" ")], retriever, replace=True)
    with pytest.raises(DataError, match="half a character"):
        Searcher.build(folder, [Document(id="a", text="x\ud800")], retriever, replace=True)
    odd = Document(id="a", text="x", metadata={"y": b"x"})
    with pytest.raises(DataError, match="document 'a': the field 'y' is bytes; metadata are text"):
        Searcher.build(folder, [odd], retriever, replace=True)
    with pytest.raises(ConfigError, match=r"vectors must be one of exact, .*, got 'annoy'"):
        Searcher.build(folder, word_model.corpus(), retriever, vectors="annoy")
    with pytest.raises(ConfigError, match=r"precision must be one of float32, .*, got 'int4'"):
        Searcher.build(folder, word_model.corpus(), retriever, precision="int4")
    with pytest.raises(ConfigError, match="'ftp://a/b' is no address of a store; there are a fold"):
        Searcher.build("ftp://a/b", word_model.corpus(), retriever)
    with pytest.raises(IndexFolderError, match=r"never finished|there is no index"):
        Searcher.open(folder, retriever)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("x")
    with pytest.raises(IndexFolderError, match=r"holds other files \(diary.txt\)"):
        Searcher.build(tmp_path / "mine", word_model.corpus(), retriever, replace=True)
    assert (tmp_path / "mine" / "diary.txt").read_text() == "x"


def test_a_missing_folder_a_file_and_an_existing_index_are_refused(folder, retriever, shared):
    with pytest.raises(IndexFolderError, match="there is no index at"):
        Searcher.open(folder, retriever)
    folder.write_text("x")
    with pytest.raises(IndexFolderError, match=r"cannot write the index .*: File exists"):
        Searcher.build(folder, word_model.corpus(), retriever)
    with pytest.raises(IndexFolderError, match="holds an index: add to it with boolattn add"):
        Searcher.build(shared.store.folder, word_model.corpus(), retriever)


def test_documents_are_added_replaced_and_deleted(folder, retriever):
    searcher = Searcher.build(folder, word_model.corpus(), retriever)
    reader = Searcher.open(folder, retriever)
    searcher.add([Document(id="new", text="red beetles Java", metadata={"colour": "red"})])
    with pytest.raises(DataError, match="the index has the id 'new' already"):
        searcher.add([Document(id="new", text="red moths")])
    with pytest.raises(DataError, match="the id 'x' comes twice"):
        searcher.add([Document(id="x", text="red"), Document(id="x", text="old")])
    assert ids(searcher.search("red", k=1)) == ["new"]
    assert ids(searcher.search("red", k=1, hybrid=True)) == ["new"]
    searcher.add([Document(id="new", text="old beetles Java")], replace_old=True)
    assert len(searcher) == N + 1
    assert ids(searcher.search("old", k=1, hybrid=False)) == ["new"]
    assert searcher.document("new").text == "old beetles Java"
    searcher.delete(["new", "both"])
    assert len(searcher) == N - 1
    for hybrid in (False, True):
        found = ids(searcher.search("old moths Borneo Sumatra", k=N, hybrid=hybrid))
        assert not {"new", "both"} & set(found)
    with pytest.raises(DataError, match=r"no document 'both' in .*; nothing was deleted"):
        searcher.delete(["moths-java", "both"])
    assert searcher.document("moths-java")
    # A deleted document may be added again.
    metadata = {"place": "Borneo"}
    searcher.add([Document(id="both", text="moths Borneo Sumatra", metadata=metadata)])
    assert ids(searcher.search("moths Borneo Sumatra", k=1, hybrid=False)) == ["both"]
    # A reader sees nothing of it before it refreshes.
    assert len(reader) == N
    assert answers(reader) == answers(Searcher.open(folder, retriever))
    assert reader.refresh()
    assert not reader.refresh()
    assert reader.store.manifest == searcher.store.manifest
    searcher.delete([*(d.id for d in word_model.corpus())])
    assert len(searcher) == 0
    assert ids(searcher.search("moths", k=3)) == []
    assert ids(searcher.search("moths NOT birds", k=3, hybrid=True)) == []


def test_the_same_documents_again_replace_themselves(folder, retriever):
    documents = word_model.corpus()[:5]
    searcher = Searcher.build(folder, documents, retriever)
    searcher.update(documents)
    assert len(ids(searcher.search("moths", k=20))) == len(searcher) == 5
    searcher.delete([document.id for document in documents])
    searcher.add(documents)
    again = Searcher.open(folder, retriever, verify=True)
    assert len(ids(again.search("moths", k=20))) == len(again) == 5
    assert again.store.info()["deleted"] == 10


def test_only_one_process_writes(folder, retriever):
    searcher = Searcher.build(folder, word_model.corpus(), retriever)
    with (folder / "lock").open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(IndexFolderError, match="being written by another process"):
            searcher.delete(["both"])
        assert len(Searcher.open(folder, retriever)) == N
    searcher.delete(["both"])


def test_another_model_is_refused(shared):
    with pytest.raises(IndexMismatchError, match="was indexed by another model") as caught:
        Searcher.open(shared.store.folder, word_model.retriever(seed=1))
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="does not say which model"):
        Searcher.open(shared.store.folder)


def every_file(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_every_truncated_altered_or_missing_file_is_refused(folder, retriever, shared):
    for damage in ("cut", "alter", "remove"):
        for name in every_file(shared.store.folder):
            if name.endswith("lock"):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(shared.store.folder, folder)
            _harm(folder / name, damage)
            with pytest.raises(IndexFolderError) as caught:
                Searcher.open(folder, retriever)
            message = str(caught.value)
            assert str(folder) in message
            assert "\n" not in message


def _harm(path, damage):
    raw = path.read_bytes()
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(raw[:-1])
    else:
        middle = len(raw) // 2
        path.write_bytes(raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :])


def test_a_manifest_of_another_format_or_leading_elsewhere_is_refused(folder, retriever, shared):
    shutil.copytree(shared.store.folder, folder)
    values = read_manifest(folder / MANIFEST)
    write_manifest(folder / MANIFEST, values | {"format": 99})
    with pytest.raises(IndexMismatchError, match="has format 99, this version reads 4"):
        Searcher.open(folder, retriever)
    for name in ("../../etc/passwd", "/etc/passwd", "segments/\0"):
        write_manifest(folder / MANIFEST, values | {"files": {name: "0"}})
        with pytest.raises(IndexFolderError, match="leads out of the index"):
            Searcher.open(folder, retriever)
    (folder / MANIFEST).write_text(json.dumps({"format": 1}))
    with pytest.raises(IndexFolderError, match="is damaged, or of an older version"):
        Searcher.open(folder, retriever)


def test_a_stopped_build_is_resumed(folder, retriever):
    encoded = []

    def encode(batches, stop_after=99):
        for number, texts in enumerate(batches):
            if number == stop_after:
                raise KeyboardInterrupt
            encoded.extend(texts)
            yield retriever.encode_documents(texts)

    with pytest.raises(KeyboardInterrupt):
        Searcher.build(
            folder,
            word_model.corpus(),
            retriever,
            segment_size=5,
            encode=lambda batches: encode(batches, 3),
        )
    assert len(encoded) == 15
    with pytest.raises(IndexFolderError, match="was never finished; go on with the same command"):
        Searcher.open(folder, retriever)
    with pytest.raises(IndexFolderError, match=r"a build was stopped in .*: go on with --resume"):
        Searcher.build(folder, word_model.corpus(), retriever, segment_size=5)
    encoded.clear()
    searcher = Searcher.build(
        folder, word_model.corpus(), retriever, segment_size=5, resume=True, encode=encode
    )
    assert encoded == [titled(late.title, late.text) for late in word_model.corpus()[15:]]
    assert len(searcher) == N
    # A damaged segment is encoded again.
    encoded.clear()
    path = next((folder / "segments").iterdir())
    path.write_bytes(path.read_bytes()[:-4])
    Searcher.build(
        folder, word_model.corpus(), retriever, segment_size=5, resume=True, encode=encode
    )
    assert len(encoded) == 5
    assert len(Searcher.open(folder, retriever, verify=True)) == N


def test_known_vectors_are_read_again_and_a_finished_build_is_not_resumed(folder, retriever):
    vectors = np.eye(2, retriever.dimension, dtype=np.float32)
    Searcher.build(folder, ["x", "y"], retriever, encode=vectors)
    searcher = Searcher.build(folder, ["x", "y"], retriever, encode=vectors[::-1], replace=True)
    with searcher.store.reading() as reader:
        np.testing.assert_array_equal(reader.known_vectors(["0"])["0"], vectors[1])
    with pytest.raises(IndexFolderError, match="holds an index"):
        Searcher.build(folder, ["x"], retriever, resume=True)


def test_any_collection_of_queries_is_searched(retriever):
    searcher = Searcher.from_texts(["moths", "ants"], retriever)
    assert [len(searcher.search_many(kind(["moths"]))) for kind in (iter, tuple, set)] == [1, 1, 1]


def ended(child):
    """Wait for a child, at most 30 s; return its exit status."""
    for _ in range(3000):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child never ended")


def build_in_child(folder, retriever, vectors, documents, **settings):
    """Index in a child process, slowly, without torch: a fork loses its threads."""
    assert retriever.fingerprint
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        rows = iter(vectors)

        def encode(batches):
            for texts in batches:
                time.sleep(0.004)
                yield np.stack([next(rows) for _ in texts])

        Searcher.build(folder, documents, retriever, encode=encode, segment_size=5, **settings)
        code = 0
    except IndexFolderError as error:
        (folder.parent / "message").write_text(str(error))
        code = 2
    finally:
        os._exit(code)


def test_ten_killed_builds_leave_the_old_index_or_the_new_one(folder, retriever):
    generator = random.Random(0)
    vectors = retriever.encode_documents([document.text for document in word_model.corpus()])
    started = time.perf_counter()
    assert ended(build_in_child(folder, retriever, vectors, word_model.corpus())) == 0
    duration = time.perf_counter() - started
    states = {len(word_model.corpus()[first:]): word_model.corpus()[first:] for first in (0, 3)}
    seen = answers(Searcher.open(folder, retriever))
    n_killed = 0
    for moment in range(10):
        n_before = len(Searcher.open(folder, retriever))
        new = states[next(n for n in states if n != n_before)]
        own = vectors[len(word_model.corpus()) - len(new) :]
        child = build_in_child(folder, retriever, own, new, replace=True)
        time.sleep(duration * (moment + generator.random()) / 10)
        os.kill(child, signal.SIGKILL)
        n_killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        after = Searcher.open(folder, retriever, verify=True)
        assert len(after) in states
        if len(after) == N:
            assert answers(after) == seen
    assert n_killed
    options = {"segment_size": 5, "replace": True, "resume": True}
    done = Searcher.build(folder, word_model.corpus(), retriever, **options)
    assert answers(done) == answers(Searcher.open(folder, retriever, verify=True)) == seen
    # The next write removes the files of killed writers.
    done.delete(["both"])
    n_segments = len(list((folder / "segments").iterdir()))
    assert n_segments == len(done.store.manifest.segments)
    assert not [name for name in every_file(folder) if ".part" in name]


@pytest.mark.parametrize("limit", [200, 3000])
def test_a_full_disk_leaves_the_old_index_and_says_so(folder, retriever, limit):
    old = Searcher.build(folder, word_model.corpus()[:10], retriever)
    documents = [Document(id=str(i), text="moths " * 5) for i in range(50)]
    vectors = retriever.encode_documents([document.text for document in documents])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond the limit, which looks to a writer as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        child = build_in_child(folder, retriever, vectors, documents, replace=True)
        code = ended(child)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2
    message = (folder.parent / "message").read_text()
    assert "cannot write" in message
    assert "\n" not in message
    after = Searcher.open(folder, retriever, verify=True)
    assert answers(after) == answers(old)


@contextmanager
def as_nobody(folder):
    """Drop root's rights for a while: nothing is read-only to root."""
    if os.geteuid() != 0:
        yield
        return
    for path in folder.parents:
        path.chmod(path.stat().st_mode | 0o055)
        if path.name.startswith("pytest-of"):
            break
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_index_is_searched_and_not_written(folder, retriever):
    Searcher.build(folder, word_model.corpus(), retriever)
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with as_nobody(folder):
            searcher = Searcher.open(folder, retriever)
            assert ids(searcher.search("moths AND Peru", k=1, hybrid=True)) == ["moths-peru"]
            with pytest.raises(IndexFolderError, match=r"cannot write .*: Permission denied"):
                searcher.delete(["both"])
            with pytest.raises(IndexFolderError, match=r"cannot write .*: Permission denied"):
                Searcher.build(folder / "inside", word_model.corpus(), retriever)
    finally:
        for path in paths:
            path.chmod(0o755)


@pytest.mark.slow
def test_a_document_of_ten_megabytes(folder, retriever):
    long = "beetles " + "old books of many words " * 420_000
    assert len(long) > 10_000_000
    searcher = Searcher.build(
        folder,
        [Document(id="long", text=long), *word_model.corpus()],
        retriever,
        words=False,
        passages=0,
    )
    assert len(searcher.store.manifest.segments) == 1
    assert ids(searcher.search("old", k=1)) == ["long"]
    assert searcher.search("old", k=1).hits[0].text == long


def test_the_next_write_removes_the_segments_of_a_stopped_addition(folder, retriever):
    searcher = Searcher.build(folder, word_model.corpus()[:5], retriever)

    def stop(batches):
        yield retriever.encode_documents(next(iter(batches)))
        raise KeyboardInterrupt

    new = word_model.corpus()[5:]
    writer = Writer(encoder=retriever, encode=stop)
    with pytest.raises(KeyboardInterrupt), LocalStore.open(folder).adding() as draft:
        writer.write(draft, new, size=4)
    assert len(list((folder / "segments").iterdir())) == 2
    assert len(Searcher.open(folder, retriever)) == 5
    searcher.add(new)
    assert len(searcher) == N
    assert len(list((folder / "segments").iterdir())) == len(searcher.store.manifest.segments) == 2
