"""Writers of a database that are killed leave whole documents, and the next writer goes on.

``BOOLATTN_KILLS=100 pytest tests/stores/test_database_kills.py`` kills each action of each database
a hundred times, at random events; without it one writer of Postgres is killed once.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile

import pytest

from tests.stores.test_kills import NEW, OLD, STATES, Index, KillServer

CLIENTS = {"postgres": "psycopg", "qdrant": "qdrant_client", "milvus": "milvus_lite"}
N_KILLS = int(os.environ.get("BOOLATTN_KILLS", "0"))
ACTIONS = ("add", "update", "delete", "replace") if N_KILLS else ("update",)


class Database(Index):
    """A store at an address."""

    def __init__(self, server, address):
        self._server, self.address, self.vectors = server, address, ""

    def has_transactions(self, action):
        return action == "replace" or self.address.startswith("postgres")


@pytest.fixture(scope="module", params=CLIENTS if N_KILLS else ["postgres"])
def database(request, tmp_path_factory):
    pytest.importorskip(CLIENTS[request.param])
    short = tempfile.mkdtemp(prefix="kill")
    addresses = {"qdrant": f"qdrant:{short}/q/kills", "milvus": f"milvus:{short}/m.db/kills"}
    if request.param == "postgres":
        uri = request.getfixturevalue("postgres").get_uri()
        addresses["postgres"] = f"{uri}{'&' if '?' in uri else '?'}table=kills"
    server = KillServer(tmp_path_factory.mktemp("server"), request.param)
    yield Database(server, addresses[request.param])
    server.stop()
    shutil.rmtree(short, ignore_errors=True)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_killed_writer_leaves_whole_documents(database, action):
    before, after = STATES[action]
    generator = random.Random(action)
    database.do("new")
    n_events = len(database.do(action, match="client")["events"])
    assert n_events > 1
    n_killed = 0
    for _ in range(max(1, N_KILLS)):
        database.do("new")
        assert database.ids() == OLD
        at, is_after = generator.randint(1, n_events), generator.random() < 0.5
        n_killed += database.do(action, match="client", at=at, after=is_after)["is_killed"]
        found = database.ids()  # documents, vectors and words agree
        if database.has_transactions(action):
            assert found in (before, after)
        else:
            assert before & after <= found <= before | after
        # The next writer goes on.
        database.do("complete")
        assert database.ids() == found | NEW
    assert n_killed
