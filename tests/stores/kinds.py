"""What every store does with kinds of things."""

from __future__ import annotations

import numpy as np

from boolattn.data.records import Document
from boolattn.kinds.lexicon import load_kinds
from boolattn.search import Searcher
from boolattn.stores.base import Claim
from boolattn.stores.filters import Filter

TEXTS = {
    "cake": "A cake with cream.",
    "tart": "A dairy-free tart.",
    "skyr": "A cup of skyr.",
    "soup": "Soup with coconut milk.",
    "toast": "Toast.",
}


def check_kinds(address, encoder):
    """Check that a store holds the kinds of its documents, and leaves them out."""
    metadata = {"toast": {"with": "butter"}}
    documents = [Document(id=n, text=t, metadata=metadata.get(n, {})) for n, t in TEXTS.items()]
    kinds = {"hot": ["chili"], "dairy": ["skyr"]}
    searcher = Searcher.build(address, documents, encoder, parser=None, kinds=kinds)
    assert searcher.settings.kinds == kinds
    [(dairy_product, *_)] = load_kinds().senses("dairy")
    tags = (dairy_product,)
    with searcher.store.reading() as reader:
        keys = reader.find([*TEXTS])
        found = reader.claims(tags, np.array([*keys.values()]))
        claims = dict(zip(keys, found.tolist(), strict=True))
        dairy = ("cake", "skyr", "toast")
        assert claims == dict.fromkeys(TEXTS, Claim.ABSENT) | {"tart": Claim.DENIED} | (
            dict.fromkeys(dairy, Claim.ASSERTED)
        )
        assert reader.count(Filter(lacking=(tags,))) == len(TEXTS) - len(dairy)
        assert reader.frequencies(tags) == [len(dairy) + 1]
        # A document that has the kind counts, however often and in however long a text.
        [ranked] = reader.words([tags], 9, Filter())
        assert {*ranked.rows.tolist()} == {keys[name] for name in (*dairy, "tart")}
        np.testing.assert_allclose(ranked.scores, ranked.scores[0], rtol=1e-3)
    result = searcher.search("everything NOT dairy")
    assert {hit.id for hit in result.hits} == {"tart", "soup"}
    assert {(document.id, document.why) for document in result.left_out} == {
        ("cake", "cream is dairy"),
        ("skyr", "skyr is dairy"),
        ("toast", "butter is dairy"),
    }
    found = searcher.search("everything NOT dairy", allow=["Cream"])
    assert {hit.id for hit in found.hits} == {"tart", "soup", "cake"}
    assert len(searcher.search("everything NOT dairy", kinds=False).hits) == len(TEXTS)
    searcher.add([Document(id="late", text="More cream.")])
    assert "late" not in {hit.id for hit in searcher.search("everything NOT dairy").hits}
