"""Encoding with Ray. Its processes import everything anew, so the long test is asked for by name:
``BOOLATTN_SLOW=1 pytest tests/search/test_cluster.py``.
"""

import os

import pytest

from boolattn.encoders.ray_encoder import check_models, cluster
from boolattn.errors import ConfigError, IndexMismatchError
from boolattn.search import Searcher
from tests.search import word_model

pytest.importorskip("ray")


@pytest.mark.skipif(not os.environ.get("BOOLATTN_SLOW"), reason="slow: set BOOLATTN_SLOW=1")
# Ray's own: it leaves pipes to its processes, and reads its settings in an old way.
@pytest.mark.filterwarnings("ignore")
def test_workers_build_the_index_that_one_process_builds(tmp_path, retriever):
    model = tmp_path / "model"
    retriever.towers.save_pretrained(str(model))
    here = Searcher.build(tmp_path / "here", word_model.corpus(), retriever, segment_size=4)
    with cluster(str(model), retriever.fingerprint) as encode:
        there = Searcher.build(
            tmp_path / "there", word_model.corpus(), retriever, segment_size=4, encode=encode
        )
    assert len(there.store.manifest.segments) == 7
    files = [searcher.store.manifest.files for searcher in (here, there)]
    names = [name for name in files[0] if name.startswith("segments/")]
    assert names
    assert {name: files[0][name] for name in names} == {name: files[1][name] for name in names}


def test_workers_with_another_model_are_refused():
    check_models(["a", "a"], "a")
    with pytest.raises(IndexMismatchError, match=r"loaded another model \(b\) than the index has"):
        check_models(["a", "b"], "a")


def test_no_cluster_is_one_line():
    with (
        pytest.raises(ConfigError, match=r"no Ray cluster at 127.0.0.1:9: ") as caught,
        cluster("minilm", "x", address="127.0.0.1:9"),
    ):
        pass
    assert "\n" not in str(caught.value)
