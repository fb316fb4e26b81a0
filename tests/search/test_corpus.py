import gzip
import json
import sys

import pytest

from boolattn.errors import DataError, MissingDataError
from boolattn.stores.document_files import Fields, read_documents


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_json_lines_give_ids_texts_and_metadata(tmp_path):
    path = lines(
        tmp_path / "docs.jsonl",
        {"id": "a", "text": "moths", "title": "Moths", "year": 1990, "metadata": {"place": "Peru"}},
        {"_id": 7, "contents": "beetles", "gone": None},
        {"title": "Only a title", "text": ""},
    )
    first, second, third = read_documents(path)
    assert (first.id, first.title, dict(first.metadata)) == (
        "a",
        "Moths",
        {"year": 1990, "place": "Peru"},
    )
    assert (second.id, second.text, dict(second.metadata)) == ("7", "beetles", {})
    assert (third.id, third.text) == ("Only a title", "")


def test_csv_reads_numbers_but_not_names_that_look_like_them(tmp_path):
    path = tmp_path / "docs.csv.gz"
    text = 'id,text,year,code,note\n1,"moths,\nof Borneo",1990,007,\nb,12,-2.5,x,old\n'
    path.write_bytes(gzip.compress(text.encode()))
    first, second = read_documents(path)
    assert (first.id, first.text) == ("1", "moths,\nof Borneo")
    assert first.metadata == {"year": 1990, "code": "007"}
    assert (second.text, second.metadata) == ("12", {"year": -2.5, "code": "x", "note": "old"})


def test_a_heading_that_has_a_name_twice_is_refused(tmp_path):
    path = tmp_path / "docs.csv"
    path.write_text("id,text,text\n1,a,b\n")
    with pytest.raises(DataError, match=r"docs\.csv:1: the heading names 'text' more than once"):
        list(read_documents(path))


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = pyarrow.table({"id": ["a", "b"], "text": ["x", "y"], "n": [1, None]})
    write_table(table, tmp_path / "docs.parquet")
    found = list(read_documents(tmp_path / "docs.parquet"))
    assert [(d.id, d.text, dict(d.metadata)) for d in found] == [
        ("a", "x", {"n": 1}),
        ("b", "y", {}),
    ]


def test_parquet_without_pyarrow_is_one_clear_line(tmp_path, monkeypatch):
    (tmp_path / "docs.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDataError, match=r"Parquet needs pyarrow; pip install"):
        list(read_documents(tmp_path / "docs.parquet"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.jsonl", b"", "holds no documents"),
        ("d.csv", b"id,text\n", "holds no documents"),
        ("d.jsonl", b'{"id": "", "text": "x"}\n', r"d.jsonl:1: the field 'id' is empty"),
        ("d.jsonl", b'{"id": "a"}\n', r"d.jsonl:1: the field 'text' is missing"),
        ("d.jsonl", b'{"id": "a", "text": 3}\n', r"d.jsonl:1: the field 'text' is int, not text"),
        ("d.jsonl", b'{"id": "a", "text": " "}\n', r"d.jsonl:1: the field 'text' is empty"),
        ("d.jsonl", b"[1]\n", r"d.jsonl:1: a JSON object is expected, not list"),
        ("d.json", b'[{"id": "a", "text": "x"},\n 3]', r"d.json:2: a JSON object is expected"),
        ("d.json", b'[{"id": "a", "text": "x"},\n {"id": "b",\n "te', r"d.json:3: not JSON"),
        ("d.json", b'[{"id": "a", "text": "x"}\n', r"d.json:1: not JSON"),
        ("d.tsv", b"id\ttext\na\tx\ty\n", "d.tsv:2: more or fewer fields"),
        ("d.jsonl", b'{"id": "a", "text": "x"}\n{"id"', r"d.jsonl:2: not JSON"),
        ("d.jsonl", bytes(range(256)) * 20, r"d.jsonl:\d: not (UTF-8|JSON)"),
        ("d.csv", bytes(range(256)) * 20, r"d.csv:\d+: "),
        ("d.csv", b"id,text\na,x,y\n", "d.csv:2: more or fewer fields"),
        ("d.csv", b'id,text\na,"x', r"d.csv:2: not CSV"),
        ("d.parquet", bytes(range(256)) * 20, "damaged, or not Parquet"),
        ("d.jsonl.gz", b"\x1f\x8bnot really", "truncated or damaged"),
        ("d.doc", b"moths\n", r"unknown type; .* \.jsonl, \.json, \.csv"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_documents(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(MissingDataError, match="there is no file"):
        list(read_documents(tmp_path / "none.jsonl"))


ROWS = ('{"no": 1, "text": "soup", "year": 1990}', '{"no": 2, "text": "stew", "year": 2}')


def documents_of(path, **options):
    own = {name: options.pop(name) for name in ("text", "id", "title") if name in options}
    return list(read_documents(path, Fields(**own), **options))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.json", f"[{ROWS[0]}, {ROWS[1]}]"),
        ("d.json", "\n".join(ROWS)),
        ("d.ndjson", "\n".join(ROWS)),
        ("d.tsv", "no\ttext\tyear\n1\tsoup\t1990\n2\tstew\t2\n"),
        ("d.csv", "no;text;year\n1;soup;1990\n2;stew;2\n"),
        # As Excel and pandas write it: a byte order mark, a column without a name.
        ("d.csv", "\ufeff,no,text,year\n0,1,soup,1990\n\n1,2,stew,2\n"),
    ],
)
def test_the_same_documents_in_several_formats(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    found = documents_of(tmp_path / name, id="no")
    assert [(d.id, d.text, dict(d.metadata)) for d in found] == [
        ("1", "soup", {"year": 1990}),
        ("2", "stew", {"year": 2}),
    ]


def test_metadata_as_people_have_them(tmp_path):
    table = tmp_path / "d.csv"
    table.write_text(
        "name,description,tags,python,vegan,on,price\n"
        """Soup,Hot.,"[""a"", ""b""]","['a', 'b']",True,2024-03-01,\n"""
    )
    [document] = documents_of(table)
    assert (document.id, document.title, document.text) == ("Soup", "Soup", "Hot.")
    lists = {"tags": ["a", "b"], "python": ["a", "b"]}
    assert document.metadata == lists | {"vegan": True, "on": "2024-03-01"}
    row = {
        "id": 1,
        "steps": ["Boil.", "Serve."],
        "author": {"name": "Li", "born": None},
        "reviews": [{"by": "a", "stars": 5}, {"by": "b"}],
    }
    [document] = documents_of(lines(tmp_path / "d.jsonl", row), text=("author.name", "steps"))
    assert document.text == "Li\nBoil.\nServe."
    assert document.metadata == {"reviews.by": ["a", "b"], "reviews.stars": [5]}


def test_a_folder_of_texts(tmp_path):
    (tmp_path / "notes" / "old").mkdir(parents=True)
    (tmp_path / "notes" / "a.md").write_text("\n# Soup\n\nHot.\n")
    (tmp_path / "notes" / "old" / "b.txt").write_text("# Cold.")
    (tmp_path / "notes" / "c.png").write_text("x")
    (tmp_path / "notes" / "d.txt").write_bytes(b"\xff")
    bad = []
    first, second = read_documents(
        tmp_path / "notes", on_error=lambda error: bad.append(str(error))
    )
    assert (first.id, first.title, first.metadata) == ("a.md", "Soup", {})
    assert (second.id, second.title, second.text) == ("old/b.txt", "b", "# Cold.")
    assert second.metadata == {"folder": "old"}
    assert [text for text in bad if "d.txt" in text and "not UTF-8" in text] == bad != []
    [only] = read_documents(tmp_path / "notes" / "a.md")
    assert only.id == "a.md"
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty holds no files that end in \.txt, \.md"):
        list(read_documents(tmp_path / "empty"))


def test_rows_without_an_id_get_one_in_a_new_index_only(tmp_path):
    path = lines(tmp_path / "d.jsonl", {"text": "a"}, *2 * [{"text": "b", "title": "Nurse"}])
    assert [d.id for d in documents_of(path)] == ["1", "Nurse", "Nurse (3)"]
    with pytest.raises(DataError, match=r"d.jsonl:1: the field 'id' is missing.*--id-field"):
        documents_of(path, makes_ids=False)


def test_bad_rows_are_reported_and_left_out(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text('id,text\na,soup\na,stew\nb\n,x\nc,"two\nlines"\nd,\ne,"x"y\nf,pie\n')
    bad = []
    assert [d.id for d in documents_of(path, on_error=lambda error: bad.append(str(error)))] == [
        "a",
        "c",
        "f",
    ]
    assert [text.removeprefix(str(path)).partition(";")[0] for text in bad] == [
        ":3: the id 'a' comes twice, first at 2",
        ":4: more or fewer fields than the heading",
        ":5: the field 'id' is empty",
        ":8: the field 'text' is empty",
        """:9: not CSV (',' expected after '"')""",
    ]
    with pytest.raises(DataError, match=r"d.csv:3: the id 'a' comes twice, first at 2"):
        documents_of(path)
    rows = tmp_path / "d.jsonl"
    rows.write_text('{"id": "a", "text": "x"}\n{"id"\n[]\n{"id": "b", "text": "y"}\n')
    assert [d.id for d in documents_of(rows, on_error=lambda error: bad.append(str(error)))] == [
        "a",
        "b",
    ]


def test_a_markdown_file_has_the_title_of_its_first_level_and_no_markup(tmp_path):
    (tmp_path / "a.md").write_text(
        "## Part\n\n# The **best** [soup](x.html)\n\n[![Build](b.svg)](ci) Is *hot*, 2*3*4.\n"
    )
    (tmp_path / "a.txt").write_text("\ufeffants", encoding="utf-8")  # as Windows writes it
    (tmp_path / "b.md").write_text("## Part\n\n```\n# a comment\n```\n")
    first, plain, second = read_documents(tmp_path)
    assert plain.text == "ants"
    assert first.title == "The best soup"
    assert first.text == "Part\n\nThe best soup\n\n Is hot, 2*3*4."
    assert second.title == "b"


def test_html_pdf_and_excel_files(tmp_path):
    pytest.importorskip("selectolax")
    pypdf, openpyxl = pytest.importorskip("pypdf"), pytest.importorskip("openpyxl")
    (tmp_path / "a.HTML").write_text(
        "<title>Soup &amp; co</title><script>no()</script><p>Hot <b>beans</b>.</p>"
    )
    writer = pypdf.PdfWriter()
    writer.add_blank_page(72, 72)
    writer.add_metadata({"/Title": "Blank"})
    writer.write(tmp_path / "b.pdf")
    (tmp_path / "c.pdf").write_text("no PDF")
    bad = []
    page, blank = read_documents(tmp_path, on_error=lambda error: bad.append(str(error)))
    assert (page.title, page.text) == ("Soup & co", "Hot beans.")
    assert (blank.title, blank.text) == ("Blank", "")
    assert len(bad) == 1
    assert "c.pdf: damaged, encrypted, or not PDF" in bad[0]
    book = openpyxl.Workbook()
    for row in (["Title", "Text", "Year"], ["A", "moths", 1990], [None] * 3, ["B", "ants", 1.5]):
        book.active.append(row)
    book.save(tmp_path / "table.xlsx")
    first, second = read_documents(tmp_path / "table.xlsx")
    assert (first.id, first.text, first.metadata) == ("A", "moths", {"Year": 1990})
    assert second.metadata == {"Year": 1.5}
    (tmp_path / "bad.xlsx").write_text("x")
    with pytest.raises(DataError, match=r"bad\.xlsx: damaged"):
        list(read_documents(tmp_path / "bad.xlsx"))


def test_fields_are_found_without_case_and_a_wrong_one_is_told(tmp_path):
    path = tmp_path / "films.csv"
    path.write_text("Title,Plot,Year\nRio,Birds fly.,2011\n")
    [film] = read_documents(path, Fields(text=("plot",)))
    assert (film.title, film.text, film.metadata) == ("Rio", "Birds fly.", {"Year": 2011})
    with pytest.raises(DataError, match=r"'plto' is missing; there are .*did you mean 'Plot'\?"):
        list(read_documents(path, Fields(text=("plto",))))
    with pytest.raises(DataError, match=r"'titel' is missing; .*did you mean 'Title'\?"):
        list(read_documents(path, Fields(text=("Plot",), title="titel")))


def test_empty_documents_are_counted_and_null_is_empty(tmp_path):
    path = lines(
        tmp_path / "d.jsonl",
        {"id": "a", "title": "Only a title", "text": None},
        {"id": "b", "title": None, "text": " "},
        {"id": "c", "title": None, "text": "moths"},
    )
    empty = []
    assert [
        d.id for d in read_documents(path, on_error=lambda error: empty.append(str(error)))
    ] == ["a", "c"]
    assert len(empty) == 1
    assert "d.jsonl:2: the field 'text' is empty" in empty[0]
    with pytest.raises(DataError, match="is empty"):
        list(read_documents(path))


def test_the_id_of_a_table_may_be_in_capitals(tmp_path):
    path = tmp_path / "moths.csv"
    path.write_text("ID,Title,Text\nA7,Coast moth,By the sea.\nA8,Coast moth,On cliffs.\n")
    assert [document.id for document in read_documents(path)] == ["A7", "A8"]
