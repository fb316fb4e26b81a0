"""Domains one by one in one table, pairs, one relevant passage: the command on real files."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from boolattn.cli import app
from boolattn.data.beir import read_pairs
from boolattn.data.records import Dataset, Document, Query
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.evaluation.benchmark import Judgements
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.evaluation.results import (
    DOMAIN_METRICS,
    MEAN,
    Results,
    by_domain,
    domain_columns,
    domain_metrics,
    domain_rows,
    joined,
    results_of,
)
from boolattn.evaluation.tables import domain_figure
from boolattn.query.tree import Operator

FOODS = ("garlic", "onion", "butter", "rice")


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def folder(tmp_path):
    """A built benchmark of two domains with the same words, in the builder's form."""
    target = tmp_path / "built"
    about = {"role": "validation", "use": "", "licence": "", "queries": {}}
    for domain in ("malware", "cellbiology"):
        (target / domain).mkdir(parents=True)
        rows = [
            {
                "id": f"{domain}:{a}-{b}",
                "title": f"{a} and {b}",
                "text": f"It has {a} with {b}.",
                "metadata": {"domain": domain, "use": "training", "facets": f"x={a}|x={b}"},
            }
            for a in FOODS
            for b in FOODS
            if a < b
        ]
        write(target / domain / "corpus.jsonl", rows)
        kept = [row["id"] for row in rows if "garlic" in row["id"]]
        excluded = [name for name in kept if "rice" in name]
        query = {
            "text": "garlic but not rice",
            "template": "_ that are not _",
            "operators": ["not"],
            "operands": operands(((0, 6),), ((15, 19),)),
            "values": [],
            "gold": sorted(set(kept) - set(excluded)),
            "excluded": excluded,
            "partial": [],
            "domain": domain,
        }
        plain = {**query, "text": "garlic", "template": "_", "operators": [], "gold": kept}
        plain["operands"] = operands(((0, 6),))
        known = {**plain, "text": "garlic and onion", "gold": [f"{domain}:garlic-onion"]}
        known["operands"] = operands(((0, 16),))
        queries = [
            {**query, "id": f"{domain}-1", "wording": "unseen:not2/0"},
            {**plain, "id": f"{domain}-2", "wording": "seen:single/0", "excluded": []},
            {**known, "id": f"{domain}-3", "wording": "seen:name/0", "excluded": []},
        ]
        write(target / domain / "validation.jsonl", queries)
        write(target / domain / "validation_unseen.jsonl", [])
    manifest = {"format": "boolattn-domains-1", "size": "small", "wordings_sha256": ""}
    manifest |= {"domains": {"malware": about, "cellbiology": about}, "files": {}}
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def operands(*spans):
    return [{"text": "", "spans": own} for own in spans]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_one_table_by_domain_and_kind(folder, tmp_path):
    out = tmp_path / "out"
    arguments = ("--on", "domains", "--data", folder, "--split", "validation", "--out", out)
    done = run("evaluate", "bm25", *arguments)
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line.split()[1:] for line in done.output.splitlines() if line.split()}
    # BM25 ignores the NOT: of two relevant documents one is found, and what is excluded leaks.
    assert lines["malware"] == lines["mean"]
    plain, _, negated, leak, _, names = lines["malware"]
    assert (plain, leak, names) == ("1.000", "1.000", "1.000")
    assert float(negated) < 1
    stem = out / "BM25-domains-small-validation"
    results = Results.load(stem.with_suffix(".json"))
    assert [query.kind for query in results.queries[:3]] == ["NOT", "plain", "names"]
    assert [query.wording for query in results.queries[:2]] == ["unseen", "seen"]
    # The runs of all domains together give the same table.
    run_file = tmp_path / "all.run.gz"
    run_file.write_bytes(b"".join(path.read_bytes() for path in out.glob("runs/*/*.run.gz")))
    again = run("evaluate", run_file, *arguments[:-1], tmp_path / "again")
    assert done.output.splitlines()[-4:] == again.output.splitlines()[-4:]
    figure = tmp_path / "compared.png"
    compared = run("compare", f"{stem}.json", f"{stem}.json", "--by", "kind", "--figure", figure)
    assert "names" in compared.output
    assert figure.stat().st_size > 5000


def test_kinds_and_single_relevant_documents_have_rows_of_their_own(folder, tmp_path):
    lines = (folder / "malware" / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    without, plain = map(json.loads, lines[:2])
    for name, queries in (("kinds", [without, plain]), ("single", [without])):
        write(folder / "malware" / f"validation_{name}.jsonl", queries)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["domains"]["malware"]["queries"] = {"validation_kinds": 2, "validation_single": 1}
    path.write_text(json.dumps(manifest))
    out = tmp_path / "out"
    arguments = ("--on", "domains", "--data", folder, "--out", out)
    splits = ("--split", "validation_kinds", "--split", "validation_single")
    done = run("evaluate", "bm25", *arguments, *splits)
    rows = [line.split()[1:] for line in done.output.splitlines() if line.startswith("malware ")]
    # With a kind: R-precision, wrong drops, MRR. BM25 ignores the NOT: what is excluded leaks and
    # is first, and nothing is left out.
    assert rows[0] == ["1.000", ".000", "1.000", ".500", ".000", ".500", "1.000"]
    assert rows[1] == ["–", "–", "–", ".500", ".000", ".500", "1.000"]
    results = Results.load(out / "BM25-domains-small-validation_kinds.json")
    assert set(results.values) == {*DOMAIN_METRICS, "recall@1000000"}
    column = [heading for heading, _, _ in domain_columns("validation_kinds")].index("leak")
    assert domain_rows(results)["mean"][column] == 1.0


def test_wrong_drops_are_the_relevant_documents_that_a_ranking_lacks():
    queries = tuple(
        Query(
            id=f"{domain}{n}",
            text="",
            gold=frozenset({f"{domain}1", f"{domain}2"}),
            excluded=frozenset({f"{domain}3"}) if n else frozenset(),
            operators=(Operator.NOT,) if n else (),
            domain=domain,
        )
        for domain in "ab"
        for n in range(2)
    )
    rows = {f"{domain}{n}": 3 * "ab".index(domain) + n - 1 for domain in "ab" for n in (1, 2, 3)}
    judged = Judgements.of(queries, rows)
    metrics = domain_metrics("validation_kinds")
    assert needed_depth(judged, metrics) == len(rows)
    # The first domain loses one relevant document of its NOT, the second returns what is excluded.
    ranking = Ranking.of([[0, 1], [0], [3, 4], [5, 3, 4]], len(rows))
    values = measure(ranking, judged, metrics)
    results = results_of(judged, values, system="s", dataset="domains-x", split="validation_kinds")
    headings = [heading for heading, _, _ in domain_columns("validation_kinds")]
    rows = {
        name: dict(zip(headings, row, strict=True)) for name, row in domain_rows(results).items()
    }
    drops = [[row[f"{kind} wrong drops"] for kind in ("with", "NOT")] for row in rows.values()]
    assert list(rows) == ["a", "b", "mean"]
    assert drops == [[0.0, 0.5], [0.0, 0.0], [0.0, 0.25]]
    assert rows["mean"]["leak"] == 0.5
    assert domain_metrics("validation_unseen") == DOMAIN_METRICS


def test_any_encoder_ranks_as_one_vector_and_composed(folder, tmp_path):
    arguments = ("--on", "domains", "--data", folder, "--split", "validation", "--out", tmp_path)
    run("evaluate", "minilm", *arguments)
    one_vector, composed = (
        domain_rows(Results.load(tmp_path / f"minilm-{way}-domains-small-validation.json"))
        for way in ("one-vector", "composed")
    )
    assert set(composed) == {"malware", "cellbiology", "mean"}
    assert one_vector != composed


def test_no_domain_has_the_split(folder, tmp_path):
    with pytest.raises(ConfigError, match="no domain has the splits test, unseen"):
        run("evaluate", "bm25", "--on", "domains", "--data", folder, "--out", tmp_path)


def test_metrics_of_domains_cannot_be_chosen(folder, tmp_path):
    arguments = ["--on", "domains", "--data", folder, "--metric", "ndcg@10", "--out", tmp_path]
    with pytest.raises(ConfigError, match="leave out --metric"):
        run("evaluate", "bm25", *arguments)


def test_undecided_documents_do_not_count():
    query = Query(
        id="q", text="", gold=frozenset("a"), undecided=frozenset("bc"), operators=(Operator.NOT,)
    )
    judged = Judgements.of([query], {name: row for row, name in enumerate("abcd")})
    assert needed_depth(judged, ["r_precision"]) == 3
    ranking = Ranking.of([[1, 2, 0]])
    assert measure(ranking, judged, ["r_precision"])["r_precision"].tolist() == [1.0]
    assert measure(Ranking.of([[1, 3, 0]]), judged, ["r_precision"])["r_precision"].tolist() == [0]


def test_domains_are_ranked_apart_and_averaged():
    documents = [Document(id=n, text=n, metadata={"domain": n[0]}) for n in ("a1", "a2", "b1")]
    queries = tuple(Query(id=f"{d}-q", text="", gold=frozenset({f"{d}1"}), domain=d) for d in "ab")
    data = Dataset(name="domains-x", documents=documents, splits={"test": queries})
    datasets = dict(by_domain(data, ["test", "unseen"]))
    assert [len(each.documents) for each in datasets.values()] == [2, 1]
    parts = []
    for each, value in zip(datasets.values(), (1.0, 0.0), strict=True):
        rows = {document.id: row for row, document in enumerate(each.documents)}
        judged = Judgements.of(each.splits["test"], rows)
        values = {name: np.array([value]) for name in DOMAIN_METRICS}
        parts.append(results_of(judged, values, system="s", dataset="domains-x", split="test"))
    rows = domain_rows(joined(parts))
    assert [rows[name][0] for name in ("a", "b", MEAN)] == [1.0, 0.0, 0.5]
    assert np.isnan(rows["a"][1])
    assert len(domain_figure([joined(parts)]).axes) == len(domain_columns("test"))


PAIRS = [
    ("1", "with wings", "without wings", "It has wings.", "It has no wings."),
    ("2", "cats", "dogs", "About dogs.", "About cats."),
]


def test_pairs_in_two_forms_and_their_accuracy(tmp_path):
    names = ("id", "q1", "q2", "doc1", "doc2")
    rows = [dict(zip(names, pair, strict=True)) for pair in PAIRS]
    write(tmp_path / "test.jsonl", rows)
    with (tmp_path / "other.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, names)
        writer.writeheader()
        writer.writerows(rows)
    data = read_pairs(tmp_path)
    assert data.splits["test"] == data.splits["other"]
    first = data.splits["test"][0]
    assert (first.gold, first.excluded) == (frozenset({"1/doc1"}), frozenset({"1/doc2"}))
    judged = Judgements.of(data.splits["test"], {d.id: r for r, d in enumerate(data.documents)})
    ranking = Ranking.of([[0, 1], [1, 2], [3, 2], [3, 2]], 4)
    assert measure(ranking, judged, ["pairwise"])["pairwise"].tolist() == [1, 1, 0, 0]
    done = run("evaluate", "bm25", "--on", "pairs", "--data", tmp_path, "--split", "test",
               "--metric", "pairwise", "--out", tmp_path / "out")  # fmt: skip
    assert "pairwise" in done.output
    write(tmp_path / "test.jsonl", [{"q1": ""}])
    with pytest.raises(DataError, match="'q2' is missing"):
        read_pairs(tmp_path / "test.jsonl")
    with pytest.raises(MissingDataError, match=r"no \.csv or \.jsonl"):
        read_pairs(tmp_path / "nothing")
