"""What README and quickstart say can be done: commands exist, Python runs, pages are there."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from boolattn.cli import app
from boolattn.reproduction.__main__ import main as reproduction

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/quickstart.md")
PROGRAM = typer.main.get_command(app)
# Typer brings the parser's errors, but names only some.
UsageError = typer.BadParameter.__base__


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(page, tmp_path, monkeypatch, capsys):
    """In order, in one folder."""
    monkeypatch.chdir(tmp_path)
    for block in _blocks(page, "python"):
        exec(compile(block, page, "exec"), {})
    said = capsys.readouterr().out
    if page == "README.md":
        assert "{'and': False, 'or': False, 'not': True}" in said
        # The engineer's two results, in this order, and the score of the author's two.
        assert re.search(r"^b \w+ .*\nbs doubtful .*'Sumatra'", said, re.MULTILINE)
        first, second = re.search(r"^\[ ?(-?[\d.]+) +(-?[\d.]+)\]", said, re.MULTILINE).groups()
        assert float(first) > float(second)
    else:
        assert said.startswith("hawk moths AND Borneo NOT Sumatra")


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_are_there(page):
    """Every verb and option is one of the program's; every value is one that it can read."""
    commands = [line for block in _blocks(page, "sh") for line in _commands(block)]
    assert len(commands) >= 10
    for words in commands:
        _parse(words)


@pytest.mark.parametrize(
    "words", [["search", "index"], ["serve", "index", "--nonsense"], ["find"], ["demo", "-k", "0"]]
)
def test_a_wrong_command_would_be_found(words):
    with pytest.raises(UsageError):
        _parse(words)


@pytest.mark.parametrize("page", PAGES)
def test_make_has_the_targets(page):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    wanted = [found for block in _blocks(page, "sh") for found in re.findall(r"make (\w+)", block)]
    assert wanted
    assert set(wanted) <= set(targets)


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_it_names_are_there(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_tables_are_those_of_the_results():
    tables = re.findall(r"(?:^\|.*\n)+", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    measured = [found for found in tables if "R-precision / leak" in found]
    results = (ROOT / "docs/results/README.md").read_text("utf-8")
    assert len(measured) == 2
    for table in measured:
        assert table in results, "copy the tables of docs/results/README.md into README.md"


@pytest.mark.parametrize("page", ["README.md", "docs/results/README.md"])
def test_what_makes_the_tables_can_be_run(page, tmp_path, monkeypatch, capsys):
    """Only said, not done: the runs take a GPU."""
    monkeypatch.chdir(tmp_path)
    commands = [
        words
        for block in _blocks(page, "sh")
        for words in _commands(block, ["python", "-m", "boolattn.reproduction"])
        if words[0] == "run"
    ]
    assert len(commands) >= 2
    for words in commands:
        assert reproduction(["list", *words[1:]]) == 0, words
        assert re.search(
            r"^to do taxa (minilm|bert-base|bge-small) ", capsys.readouterr().out, re.MULTILINE
        )


def _blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def _commands(block, program=("boolattn",)):
    """Yield the arguments of every call of a program."""
    block = re.sub(r"<<'END'\n.*?\nEND\n", "\n", block, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[: len(program)] == list(program):
            yield words[len(program) :]


def _parse(words):
    """Read a command line as the program does, and run nothing."""
    with PROGRAM.make_context("boolattn", list(words)) as context:
        name, command, rest = PROGRAM.resolve_command(context, list(words))
        with command.make_context(name, rest, parent=context):
            pass
