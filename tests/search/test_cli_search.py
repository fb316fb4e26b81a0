"""The verbs index and search."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from threading import Thread

import pytest
from click.testing import CliRunner

from boolattn.cli import app, main
from boolattn.errors import BoolattnError
from boolattn.evaluation.ranking import read_run
from boolattn.search import Searcher
from boolattn.stores.filters import parse_filters
from tests.search import word_model


@pytest.fixture(scope="module")
def place(tmp_path_factory, retriever):
    """A folder with a model, a corpus and an index of it."""
    folder = tmp_path_factory.mktemp("cli")
    retriever.towers.save_pretrained(str(folder / "model"))
    rows = [
        {"id": d.id, "title": d.title, "text": d.text, "metadata": dict(d.metadata)}
        for d in word_model.corpus()
    ]
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(
        "index", folder / "docs.jsonl", "--out", folder / "index", "--model", folder / "model"
    )
    assert done.exit_code == 0, done.output
    return folder


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_index_prints_a_summary(place):
    more = {"id": "new", "text": "red beetles", "year": 1999}
    (place / "more.jsonl").write_text(json.dumps(more) + "\n")
    arguments = (
        "index",
        place / "docs.jsonl",
        "--out",
        place / "other",
        "--model",
        place / "model",
    )
    done = run(*arguments, "--vectors", "hnsw")
    assert done.stdout.startswith(f"{place / 'other'}: 25 documents, hnsw (recall@10")
    about = json.loads(run("info", place / "other", "--json").stdout)
    assert (about["documents"], about["vectors"], about["words"]) == (25, "hnsw", True)
    assert about["recall"]["10"] > 0.9
    assert "recall" in run("info", place / "other").stdout
    assert "recall" not in run("info", place / "index").stdout  # exact
    # The index names its model, so adding needs none.
    done = run("add", place / "other", place / "more.jsonl")
    assert "26 documents, hnsw (recall@10" in done.stdout
    again = run("add", place / "other", place / "more.jsonl")
    assert isinstance(again.exception, BoolattnError)
    assert str(again.exception) == (
        "the index has the id 'new' already; boolattn update replaces it"
    )
    newer = [more, more | {"id": "newer"}, more | {"id": "newest"}]
    (place / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in newer))
    done = run("update", place / "other", place / "more.jsonl")
    assert "28 documents" in done.stdout
    assert done.stderr == "2 added, 1 replaced\n"


def test_a_field_for_titles_is_proposed_where_there_is_none(place):
    (place / "dishes.csv").write_text("Dish,text,year\nSoup,red moths,1999\n")
    arguments = ("index", place / "dishes.csv", "--out", place / "dishes", "--model")
    hint = "documents have no title; --title-field takes one of Dish\n"
    assert hint in run(*arguments, place / "model").stderr
    titled = run(*arguments, place / "model", "--title-field", "Dish", "--replace")
    assert (titled.exit_code, "--title-field" in titled.stderr) == (0, False)


def test_own_kinds_are_indexed_and_shown(place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "kinds.txt").write_text("insects: moths  # and others\nblue: Peru, Kenya\n")
    arguments = ("index", "docs.jsonl", "--out", "kinds", "--model", "model", "--kinds")
    done = run(*arguments, "kinds.txt")
    assert done.exit_code == 0, done.output
    assert "kinds      shipped; blue: Peru, Kenya; insects: moths\n" in run("info", "kinds").stdout
    kinds = {"insects": ["moths"], "blue": ["Peru", "Kenya"]}
    assert json.loads(run("info", "kinds", "--json").stdout)["kinds"] == kinds
    assert "kinds      shipped\n" in run("info", "index").stdout
    query = ("search", "kinds", "moths NOT blue", "-k", "25")
    for options, n_found in (((), 17), (("--allow", "peru"), 21), (("--no-kinds",), 25)):
        result = json.loads(run(*query, "--json", *options).stdout)
        assert len(result["hits"]) == n_found
        assert bool(result["left_out"]) is (n_found < 25)
    done = run(*query)
    assert "left out: " in done.stderr
    assert "moths Peru (Peru is blue)" in done.stderr
    (place / "bad.txt").write_text("insects\n")
    for name, message in (
        ("bad.txt", "bad.txt:1: not a kind, as 'dairy: butter, cream' is"),
        ("none.txt", "no file none.txt"),
    ):
        done = run(*arguments, name, "--replace")
        assert message in str(done.exception)
    assert "kinds      shipped; blue" in run("info", "kinds").stdout


def test_progress_is_shown_on_a_terminal(place):
    ours, theirs = pty.openpty()
    output = bytearray()

    def listen():
        with suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                output.extend(part)

    listener = Thread(target=listen)
    listener.start()
    command = [sys.executable, "-c", "from boolattn.cli import main; main()", "index"]
    options = ["--out", place / "seen", "--model", "shipped", "--no-words"]
    done = subprocess.run(
        [*command, place / "docs.jsonl", *options],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
    )
    os.close(theirs)
    listener.join(10)
    os.close(ours)
    assert done.returncode == 0, output
    assert b"25/25  100%" in output
    assert b"per second" in output
    assert done.stdout.decode().startswith(f"{place / 'seen'}: 25 documents, exact")


def test_a_table_is_indexed_changed_and_described(place, monkeypatch):
    monkeypatch.chdir(place)
    table = "nr,what,tags\n1,red moths,\"['a', 'b']\"\n2,,\n1,birds,\n3,old beetles,b\n"
    (place / "table.csv").write_text(table)
    fields = ("--text-field", "what", "--id-field", "nr")
    arguments = ("index", "table.csv", "--model", "model", *fields)
    assert str(run(*arguments).exception).startswith("table.csv:4: the id '1' comes twice")
    done = run(*arguments, "--skip-bad")
    assert done.exit_code == 0, done.output
    assert done.stderr == (
        "left out: table.csv:4: the id '1' comes twice, first at 2; every document needs its own\n"
        "1 row left out\n"
        "1 empty document left out, the first: table.csv:3: the field 'what' is empty\n"
        "documents have no title; --title-field takes one of tags\n"
        "search: boolattn search table.index    page: boolattn serve table.index\n"
    )
    new = CliRunner().invoke(
        app, ["add", "table.index", "-", *fields], input="nr,what\n4,orchids\n"
    )
    assert "table.index: 3 documents" in new.stdout, new.output
    assert "1 deleted, 2 documents left" in run("delete", "table.index", "1", "1").stdout
    about = json.loads(run("info", "table.index", "--json").stdout)
    assert (about["documents"], about["deleted"], about["changes"]) == (2, 1, 3)
    counts = {"documents": 1, "different": 1, "frequent": [["b", 1]], "is_exact": True}
    assert about["fields"] == {"tags": counts}
    assert "field 'tags': 1 document, 1 value: 'b' (1)" in run("info", "table.index").stdout


def test_results_go_to_stdout_and_the_parsed_query_to_stderr(place):
    done = run("search", place / "index", "moths AND Borneo NOT Sumatra", "-k", 2, "--explain")
    assert done.exit_code == 0
    assert "moths Borneo" in done.stdout
    assert "NOT Sumatra" in done.stdout
    line = (
        "parsed as moths AND Borneo NOT Sumatra   "
        "(confidence 100%; by words and meaning; what is excluded is left out)"
    )
    assert line in done.stderr
    assert "2 results in" in done.stderr
    assert "parsed as" not in done.stdout


def test_search_prints_json(place):
    done = run(
        "search", place / "index", "moths NOT Borneo", "--json", "--hybrid", "--strict-not",
        "--filter", "year>=1990", "--filter", "group=moths", "--filter", "place!=Kenya",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["operands"] == ["moths", "Borneo"]
    assert {hit["id"] for hit in found["hits"]} == {"moths-java", "moths-peru", "moths-ecuador"}
    plain = json.loads(run("search", place / "index", "moths NOT Peru", "--plain", "--json").stdout)
    assert plain["is_composed"] is False


def test_results_in_other_formats(place):
    index = place / "index"
    fields = ("--fields", "query,rank,id,year,passage", "-k", 2, "--offset", 1)
    done = run("search", index, "moths NOT Borneo", "--format", "csv", *fields)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["rank"] for row in rows] == ["2", "3"]
    assert rows[0]["query"] == "moths NOT Borneo"
    lines = run("search", index, "moths NOT Borneo", "--format", "jsonl", *fields).stdout
    found = [json.loads(line) for line in lines.splitlines()]
    assert [str(one["year"]) for one in found] == [row["year"] for row in rows]
    assert list(found[0]) == ["query", "rank", "id", "year", "passage"]
    table = run("search", index, "moths NOT Borneo", *fields)
    assert all(row["year"] in table.stdout for row in rows)
    assert "of 25 documents; next page: --offset 3" in table.stderr
    short = run("search", index, "moths NOT Borneo", "-k", 25)
    assert "next page" not in short.stderr
    assert "less than half as close as the best" in short.stdout
    assert "less than half" not in run("search", index, "moths NOT Borneo", "-k", 2).stdout


def test_queries_come_from_stdin_without_a_query(place, tmp_path):
    text = "moths Peru\n\nmoths AND (\nbirds Kenya\n"
    arguments = ["search", str(place / "index"), "-k", "1", "--format", "trec"]
    done = CliRunner().invoke(app, arguments, input=text)
    assert done.exit_code == 2
    assert [line.split()[:4] for line in done.stdout.splitlines()] == [
        ["1", "Q0", "moths-peru", "1"],
        ["3", "Q0", "birds-kenya", "1"],
    ]
    assert "boolattn: query 2: column 12: an operand is expected" in done.stderr
    (tmp_path / "a.run").write_text(done.stdout)
    ranking = read_run(tmp_path / "a.run", ["1", "3"], {"birds-kenya": 7, "moths-peru": 8})
    assert ranking.rows.tolist() == [[8], [7]]


def test_a_prompt_brings_back_the_last_query():
    code = "import sys; from boolattn.cli.search import queries; print(list(queries()))"
    environment = {**os.environ, "TERM": "dumb"}
    typed = (b"moths Peru\n", b"\n", b"\x1b[A\n")
    for end in (b"\x04", b"quit\n"):
        ours, theirs = pty.openpty()
        command, output = [sys.executable, "-c", code], b""
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment) as process:
            for line in (*typed, end):
                # The terminal takes what is typed before the prompt in another way.
                while not output.endswith(b"search> "):
                    output += os.read(ours, 4096)
                output = b""
                os.write(ours, line)
            assert process.wait(30) == 0
        while b"]" not in output:
            output += os.read(ours, 4096)
        os.close(ours)
        os.close(theirs)
        assert b"['moths Peru', 'moths Peru']" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("search", "index", "moths AND (Borneo"), "column 11: this parenthesis is never closed"),
        (("search", "index", "moths", "--filter", "x"), "not of the form key=value"),
        (
            ("search", "index", "moths", "--filter", "year>old"),
            "'old' is neither a number nor a date",
        ),
        (
            ("search", "index", "moths", "--mode", "loud"),
            "mode must be one of auto, plain, explicit; got 'loud'",
        ),
        (("search", "index", "moths", "--fields", "id,yaer"), "there is no field 'yaer'"),
        (("search", "nowhere", "moths"), "there is no index at"),
        (("search", "index", "moths", "--model", "nowhere"), "there is no model at nowhere"),
        (("index", "none.jsonl", "--out", "x"), "there is no file none.jsonl"),
        (("index", "docs.jsonl", "--out", "index", "--model", "model"), "holds an index: add to"),
        (("index", "-"), "documents from stdin need --out"),
        (("add", "index", "none.jsonl"), "there is no file none.jsonl"),
        (("delete", "index", "moths-java", "none"), "no document 'none' in index; nothing was"),
        (("delete", "nowhere", "a"), "there is no index at nowhere"),
        (("info", "nowhere"), "there is no index at nowhere"),
        (
            ("index", "docs.jsonl", "--out", "y", "--model", "model", "--vectors", "z"),
            "vectors must be one of exact, hnsw, got 'z'",
        ),
    ],
)
def test_errors_are_one_line(place, monkeypatch, arguments, message):
    monkeypatch.chdir(place)
    done = run(*arguments)
    assert isinstance(done.exception, BoolattnError), done.output
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert done.stdout == ""


def test_a_syntax_error_is_shown_with_a_caret(place):
    done = run("search", place / "index", "moths AND (Borneo")
    assert done.stderr == "moths AND (Borneo\n          ^\n"


def test_words_are_joined_and_one_result_is_one(place):
    quoted = run("search", place / "index", "moths AND Borneo NOT Sumatra", "-k", 1)
    words = run("search", place / "index", "moths", "AND", "Borneo", "NOT", "Sumatra", "-k", 1)
    assert words.stdout == quoted.stdout
    assert "1 result in" in words.stderr


def test_help_is_short_and_flags_have_no_type(place):
    done = run("search", "-h")
    assert done.exit_code == 0
    assert "--explain" in done.stdout
    assert "BOOLEAN" not in done.stdout
    assert done.stdout == run("search", "--help").stdout
    assert "_BOOLATTN_COMPLETE=bash_source" in run("-h").stdout


def test_fields_and_filters_match_without_case_and_say_what_there_is(place):
    done = run("search", place / "index", "moths", "--fields", "Title,PLACE,title", "-k", 1)
    assert done.stdout.splitlines()[0].split() == ["score", "title", "place"]
    done = run("search", place / "index", "moths", "--filter", "PLACE=Java", "-k", 1)
    assert "moths Java" in done.stdout
    done = run("search", place / "index", "moths", "--filter", "place=Jawa")
    line = " ".join(done.stderr.split())
    assert "no document has place=Jawa; there are" in line
    assert "Java" in line


def test_a_table_is_no_index(place):
    with pytest.raises(BoolattnError, match=r"is a file, not an index; .* boolattn index .*docs"):
        CliRunner().invoke(
            app, ["search", str(place / "docs.jsonl"), "moths"], catch_exceptions=False
        )


def test_an_index_with_its_ending_is_meant(place, monkeypatch):
    monkeypatch.chdir(place)
    Searcher.build("moths.index", ["moths"], place / "model")
    with pytest.raises(BoolattnError, match=r"no index at moths; did you mean moths\.index\?$"):
        Searcher.open("moths")


@pytest.mark.parametrize("option", ["-k", "--limit", "--top"])
def test_the_number_of_results_has_other_names(place, option):
    done = run("search", place / "index", "moths", option, "3", "--json")
    assert len(json.loads(done.stdout)["hits"]) == 3


def test_a_field_between_quotes_is_a_condition():
    rows = [{"text": f"soup {n}", "Time (min)": 10 * n} for n in range(6)]
    searcher = Searcher.from_texts(rows, word_model.retriever())
    result = searcher.search('soup AND "Time (min)"<30')
    assert (result.total, result.tree_text) == (3, 'soup AND "Time (min)"<30')
    assert searcher.search('"time (MIN)" >= 30').total == 3
    assert searcher.search("soup", filters=parse_filters(['"Time (min)"<30'])).total == 3
    with pytest.raises(BoolattnError, match="no document has the field 'Zeit'"):
        searcher.search('"Zeit"<30')


@pytest.mark.parametrize(
    ("verb", "hint"), [("serch", "Did you mean one of: 'search'"), ("zzz", "--help")]
)
def test_an_unknown_command_says_what_to_do(verb, hint):
    done = subprocess.run(
        [sys.executable, "-m", "boolattn", verb], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"no command {verb!r}" in line
    assert hint in line


def test_an_interrupt_is_one_line(monkeypatch, capsys):
    def interrupted(**_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("boolattn.cli.app", interrupted)
    monkeypatch.setattr("gc.set_threshold", lambda _: None)
    with pytest.raises(SystemExit, match="1"):
        main()
    assert capsys.readouterr().err == "boolattn: stopped\n"
