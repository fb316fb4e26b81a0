"""The shape of the code: short files, small packages, names that say what they hold."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for part in ("src", "benchmark_data", "experiments", "examples")
    for path in (ROOT / part).rglob("*.py")
)
#: Lines of the Python files of each folder. These bounds are only ever lowered.
MAX_LINES = {
    "src": 24_092,
    "benchmark_data": 2_666,
    "experiments": 3_751,
    "benchmarks": 1_870,
    "tools": 84,
}
#: Words that do not say what a variable, argument, attribute, function or class holds.
EMPTY_NAMES = frozenset(
    ("own", "found", "one", "place", "given", "how", "kept", "met", "few", "parts", "many", "what")
)
#: Public names: the children of And and Or, and of a node in the replies of the API.
ALLOWED_NAMES = {"query/tree.py": {"parts"}, "service/schemas.py": {"parts"}}


def n_lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def test_no_file_is_longer_than_350_lines():
    assert {str(path.relative_to(ROOT)): n for path in FILES if (n := n_lines(path)) > 350} == {}


def test_no_package_has_more_than_fifteen_files_at_one_level():
    folders = {path.parent for path in FILES}
    counts = {str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) for folder in folders}
    assert {folder: n for folder, n in counts.items() if n > 15} == {}


@pytest.mark.parametrize("part", MAX_LINES)
def test_the_code_stays_small(part):
    total = sum(map(n_lines, (ROOT / part).rglob("*.py")))
    assert 0 < total <= MAX_LINES[part]


def names_in(tree):
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case (
                ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name))
            ):
                yield name, node.lineno
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno


def test_names_say_what_they_hold():
    source = ROOT / "src" / "boolattn"
    files = sorted(source.rglob("*.py"))
    wrong = []
    for path in files:
        name = path.relative_to(source).as_posix()
        refused = EMPTY_NAMES - ALLOWED_NAMES.get(name, set())
        for used, line in names_in(ast.parse(path.read_text(encoding="utf-8"))):
            if used.lstrip("_") in refused:
                wrong.append(f"{name}:{line}: {used}")
    assert files
    assert wrong == []


def test_a_class_name_has_one_meaning():
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in FILES if "src" in path.parts)
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    repeated = {name for name, n in Counter(node.name for node in classes).items() if n > 1}
    # Of the search and of the API.
    assert repeated <= {"FacetValue", "Hit"}
