"""The wrapper for MTEB: against its documented protocol, and in MTEB itself where it is."""

import enum
import inspect

import numpy as np
import pytest

from boolattn.encoders.models import load_model
from boolattn.encoders.mteb_encoder import MtebEncoder
from boolattn.errors import ConfigError

TEXTS = ["moths of Borneo", "a large red bird", "an orchid of Peru"]


class PromptType(enum.Enum):
    """As in MTEB."""

    query = "query"
    document = "document"


@pytest.fixture(scope="module")
def model():
    return load_model("shipped")


@pytest.fixture(scope="module")
def encoder(model):
    return MtebEncoder(retriever=model)


def test_texts_are_encoded_as_what_the_prompt_says(encoder, model):
    queries, documents = model.encode_queries(TEXTS), model.encode_documents(TEXTS)
    for given in ({"prompt_type": PromptType.query}, {"prompt_name": "query", "task_name": "x"}):
        np.testing.assert_allclose(encoder.encode(TEXTS, **given), queries, atol=1e-5)
    for given in ({}, {"prompt_type": PromptType.document}, {"prompt_name": "passage"}):
        np.testing.assert_allclose(encoder.encode(TEXTS, **given), documents, atol=1e-5)
    with pytest.raises(ConfigError, match="no prompt 'clustering'; there are query"):
        encoder.encode(TEXTS, prompt_name="clustering")


def test_batches_of_version_two_are_read_in_order(encoder):
    whole = encoder.encode(TEXTS, prompt_type="query")
    batches = [{"text": TEXTS[:2], "id": ["1", "2"]}, {"text": TEXTS[2:]}]
    own = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    found = encoder.encode(batches, **own, prompt_type=PromptType.query, batch_size=2)
    np.testing.assert_allclose(found, whole, atol=1e-5)
    assert found.dtype == np.float32
    assert encoder.encode([]).shape == (0, whole.shape[1])


def test_similarities_are_those_of_the_model(encoder):
    vectors = 3 * encoder.encode(TEXTS)
    pairs = encoder.similarity(vectors, vectors)
    np.testing.assert_allclose(np.diag(pairs), 1, atol=1e-5)
    np.testing.assert_allclose(encoder.similarity_pairwise(vectors, vectors), 1, atol=1e-5)
    assert pairs[0, 1] < 0.99
    found = encoder.similarity(vectors[0], vectors[1])
    np.testing.assert_allclose(found, pairs[:1, 1:2], atol=1e-5)


def test_it_has_the_methods_of_the_protocol():
    first = list(inspect.signature(MtebEncoder).parameters)
    assert first[:3] == ["model_name", "revision", "device"]
    assert {"encode", "similarity", "similarity_pairwise"} <= set(dir(MtebEncoder))


def test_mteb_evaluates_it(model):
    """A task of our own, so that nothing is downloaded."""
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    unknown = ("reference", "date", "domains", "task_subtypes", "license", "dialect")
    unknown += ("annotations_creators", "sample_creation", "bibtex_citation")

    class Task(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Moths",
            description="Three queries.",
            dataset={"path": "none/none", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
            **dict.fromkeys(unknown),
        )

        def load_data(self, *_, **__):
            texts = [*TEXTS, "a moth of Sumatra"]
            own = {
                "corpus": Dataset.from_list(
                    [{"id": str(n), "title": "", "text": text} for n, text in enumerate(texts)]
                ),
                "queries": Dataset.from_list(
                    [{"id": "a", "text": "moths of Borneo"}, {"id": "b", "text": "orchids"}]
                ),
                "relevant_docs": {"a": {"0": 1}, "b": {"2": 1}},
                "top_ranked": None,
            }
            self.dataset, self.data_loaded = {"default": {"test": own}}, True

    found = mteb.evaluate(MtebEncoder("shipped", retriever=model), [Task()], cache=None)
    assert found.model_name == "boolattn/shipped"
    assert found.task_results[0].get_score() == 1.0
