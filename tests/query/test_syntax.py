import re
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from boolattn.errors import QueryError, QuerySyntaxError
from boolattn.query.syntax import (
    MAX_DEPTH,
    MAX_OPERANDS,
    anchored,
    parse,
    parse_with_spans,
    unparse,
)
from boolattn.query.tokens import is_explicit
from boolattn.query.tree import (
    And,
    Atom,
    Everything,
    Like,
    Not,
    Or,
    Where,
    answers,
    atoms,
    join_all,
)

A, B, C = Atom("a"), Atom("b"), Atom("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("hawk moths AND Borneo", And((Atom("hawk moths"), Atom("Borneo")))),
        ("a AND b NOT c", And((A, B, Not(C)))),
        ("a AND b AND NOT c", And((A, B, Not(C)))),
        ("a OR b NOT c", Or((A, And((B, Not(C)))))),
        ("(a OR b) NOT c", And((Or((A, B)), Not(C)))),
        ("a OR b OR c", Or((A, B, C))),
        ("(a AND b) AND c", And((A, B, C))),
        ("a NOT (b NOT c)", And((A, Not(And((B, Not(C))))))),
        ("a -b c", And((A, Not(B), C))),
        ("-b a", And((Not(B), A))),
        ("a -(b OR c)", And((A, Not(Or((B, C)))))),
        ('a -"b c"', And((A, Not(Atom("b c"))))),
        ("NOT NOT a", A),
        ("NOT (NOT a)", A),
        ('"Romeo AND Juliet" NOT film', And((Atom("Romeo AND Juliet"), Not(Atom("film"))))),
        ('"say \\"so\\"" AND a', And((Atom('say "so"'), A))),
        ("“a b” OR «c»", Or((Atom("a b"), C))),
        ("a （b OR c）", And((A, Or((B, C))))),
        ("hawk-moths of -40 degrees", Atom("hawk-moths of -40 degrees")),
        ("a and b not c", Atom("a and b not c")),
        ("ANDES OR NOTTINGHAM", Or((Atom("ANDES"), Atom("NOTTINGHAM")))),
        (
            "飞蛾 AND 婆罗洲 NOT 苏门答腊",
            And((Atom("飞蛾"), Atom("婆罗洲"), Not(Atom("苏门答腊")))),
        ),
        ("العث AND بورنيو", And((Atom("العث"), Atom("بورنيو")))),
        ("мотыльки -Суматра", And((Atom("мотыльки"), Not(Atom("Суматра"))))),
    ],
)
def test_the_syntax_means_its_tree(text, tree):
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "empty"),
        ("  \t", 4, "empty"),
        ("AND a", 1, "expected before 'AND'"),
        ("a AND", 6, "expected after 'AND', and the query ends"),
        ("a OR OR b", 6, "between 'OR' and 'OR'"),
        ("a AND ) b", 7, r"between 'AND' and '\)'"),
        ("NOT", 4, "expected after 'NOT'"),
        ("(a OR b", 1, "never closed"),
        ("a AND (b OR (c)", 7, "never closed"),
        ("a) OR b", 2, "closes nothing"),
        ("()", 2, r"between '\(' and '\)'"),
        ('a AND "b', 7, "quote is never closed"),
        ('a AND " "', 7, "there is nothing between"),
        ("婆罗洲 AND (b", 9, "never closed"),
        ("(" * 10_000, MAX_DEPTH + 1, "nested more than"),
    ],
)
def test_an_error_points_at_its_column(text, column, message):
    with pytest.raises(QuerySyntaxError, match=rf"column {column}: .*{message}") as caught:
        parse(text)
    assert caught.value.column == column
    assert "\n" not in str(caught.value)
    shown, caret = caught.value.pointer().split("\n")
    assert caret.strip() == "^"
    assert len(shown) <= 72


def test_the_caret_stands_under_the_column():
    with pytest.raises(QuerySyntaxError) as caught:
        parse("moths AND ) Borneo")
    assert caught.value.pointer() == "moths AND ) Borneo\n          ^"


def test_many_operands_are_read_and_too_many_refused():
    names = [f"place {i}" for i in range(100)]
    tree = parse("moths AND (" + " OR ".join(names) + ")")
    assert [atom.text for atom in atoms(tree)] == ["moths", *names]
    assert len(list(atoms(parse(" NOT ".join(names))))) == 100
    with pytest.raises(QueryError, match=f"at most {MAX_OPERANDS} operands, not 300"):
        parse(" AND ".join("abc" * 100))
    assert parse("NOT " * 10_000 + "a") == A


def test_spans_say_where_each_operand_stands():
    text = 'hawk  moths AND ("Romeo AND Juliet" OR Java) -Sumatra'
    tree, spans = parse_with_spans(text)
    found = [re.sub(r"\s+", " ", text[start:end]).strip('"') for start, end in spans]
    assert found == [atom.text for atom in atoms(tree)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("moths of Borneo but not Sumatra", False),
        ("Trinidad and Tobago", False),
        ("moths AND Borneo", True),
        ("moths -Sumatra", True),
        ("-Sumatra moths", True),
        ("nights at -40 degrees", False),
        ("sea - land", False),
        ("hawk-moths", False),
        ('"Trinidad and Tobago" beetles', True),
        ('"hawk moths" of Borneo', False),
        ('6" pipes and "rings', False),
        ('6" pipes NOT rings', True),
        ("films (1999)", False),
        ('6" "rings', False),
        ("", False),
    ],
)
def test_the_door_is_chosen_by_signs_nobody_writes_in_plain_language(text, expected):
    assert is_explicit(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", True),
        ("NOT a", False),
        ("NOT a NOT b", False),
        ("a NOT b", True),
        ("a OR NOT b", False),
        ("NOT (a OR b)", False),
        ("NOT (NOT a OR NOT b)", True),
        ("NOT (NOT a AND b)", False),
        ("(a NOT b) OR (c NOT b)", True),
        ("everything NOT a", True),
        ("NOT everything", False),
        ("everything OR NOT a", False),
    ],
)
def test_a_query_that_says_nothing_to_keep_selects_from_everything(text, expected):
    tree = parse(text)
    assert anchored(tree) == (tree if expected else join_all([Everything("everything"), tree]))
    assert anchored(anchored(tree)) == anchored(tree)


def test_conditions_alone_select_from_everything():
    assert unparse(anchored(parse("year>=1990"))) == "everything AND year>=1990"
    assert unparse(anchored(parse("NOT year>=1990"))) == "everything NOT year>=1990"
    assert anchored(parse("a AND year>=1990")) == parse("a AND year>=1990")
    assert anchored(parse("everything AND year>=1990")) == parse("everything AND year>=1990")


def test_everything_is_a_word_between_quotes_and_in_a_phrase():
    for text in ("everything NOT a", "Anything^2 NOT a", "everything that is NOT a"):
        assert isinstance(next(atoms(parse(text))), Everything)
        assert unparse(parse(text)) == text
    for text in ('"everything" NOT a', "everything about a NOT b", "everything else NOT a"):
        assert type(next(atoms(parse(text)))) is Atom
        assert unparse(parse(text)) == text


words = st.text('ab AND-("”\\\\蛾\x00\u0301é', min_size=1, max_size=8).map(
    lambda text: " ".join(text.split())
)
operands = st.one_of(
    words, st.sampled_from(["AND", "-x", 'a "b" c', "(x)", "\\", "b\\", "“x”", "a OR b", "-"])
).filter(bool)
trees = st.recursive(
    operands.map(Atom),
    lambda part: st.one_of(
        part.map(Not),
        st.lists(part, min_size=1, max_size=4).map(lambda parts: And(tuple(parts))),
        st.lists(part, min_size=1, max_size=4).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=12,
)


@given(trees)
@settings(max_examples=80, deadline=None)
def test_what_is_written_is_read_back_with_the_same_meaning(tree):
    back = parse(unparse(tree))
    assert [atom.text for atom in atoms(back)] == [atom.text for atom in atoms(tree)]
    names = {atom.text for atom in atoms(tree)}
    sets = {
        name: frozenset(str(crc32(f"{name}{i}".encode()) % 17) for i in range(6)) for name in names
    }
    everything = frozenset(map(str, range(17)))
    assert answers(back, sets, everything) == answers(tree, sets, everything)
    # What was read once is in its simplest form, so a second round changes nothing.
    assert parse(unparse(back)) == back


@given(st.text(st.sampled_from('abz ()"“”-AND ORNOT\\蛾\u0301\x00\t'), max_size=40))
@example("\x00AND\x00 AND b")
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_at_a_column_it_has(text):
    is_explicit(text)
    try:
        tree, spans = parse_with_spans(text)
    except QuerySyntaxError as error:
        columns = [error.column]
    else:
        assert len(spans) == len(list(atoms(tree)))
        columns = [bound for start, end in spans for bound in (start + 1, end)]
    assert all(1 <= column <= len(text) + 1 for column in columns)


weights = st.one_of(st.just(1.0), st.floats(0.001, 100))
values = st.text('aB1 ^."(=:<é', min_size=1, max_size=6)
conditions = st.builds(
    lambda name, sign, value: Where(f"{name}{sign}{value}"),
    st.sampled_from(["year", "author.name", "a-b"]),
    st.sampled_from(["=", "!=", ">=", "<=", ">", "<", "~"]),
    # ">" before "=x" is the sign ">=" before "x".
    values.filter(lambda value: not value.startswith("=")),
)
leaves = st.one_of(
    st.builds(Atom, operands, weights),
    st.builds(Like, values.filter(str.strip), weights),
    conditions,
)


@given(st.lists(leaves, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_weights_documents_and_conditions_are_read_back(parts):
    tree = join_all([join_all([parts[0], Not(part)]) for part in parts], Or)
    assert parse(unparse(tree)) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("hawk moths^2 AND b", And((Atom("hawk moths", 2.0), B))),
        ("x^y AND b^", And((Atom("x^y"), Atom("b^")))),
        ('"a"^.5 like:b^3', And((Atom("a", 0.5), Like("b", 3.0)))),
        ("a year:1990..2000", And((A, Where("year>=1990"), Where("year<=2000")))),
        ('a -place:"c d" -like:b', And((A, Not(Where("place=c d")), Not(Like("b"))))),
        ("a AND year >= 1990", And((A, Where("year>=1990")))),
        (
            "C++ >= 11 AND 12:30 OR std::a",
            Or((And((Atom("C++ >= 11"), Atom("12:30"))), Atom("std::a"))),
        ),
    ],
)
def test_signs_inside_the_tree(text, tree):
    assert parse(text) == tree


@pytest.mark.parametrize("text", ["(a OR b)^2", 'a AND place="b"^2', 'a AND like:""', 'a AND x=""'])
def test_misplaced_signs_are_refused(text):
    with pytest.raises(QuerySyntaxError):
        parse(text)


def test_signs_in_plain_language_are_text():
    for text in ("E=mc^2", "C++ >= 11", "f(x)^2", "things I like: moths", "a=b", "a:b", "b^"):
        assert not is_explicit(text)
    for text in ("like:17", "year>=1990", "films year < 1990", "moths^2 Borneo"):
        assert is_explicit(text)
    # A weight ends its operand.
    assert parse("hawk moths^2 Borneo") == And((Atom("hawk moths", 2.0), Atom("Borneo")))
