"""The verb ``demo`` itself: set up, search, measure, and say how to go on.

May import: boolattn.cli.demo, boolattn.evaluation, boolattn.data, boolattn.errors.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boolattn.cli.demo.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from boolattn.cli.demo.searches import Asked
    from boolattn.cli.demo.stage import Stage
    from boolattn.data.records import Query

#: Half of the small corpus: all documents that a query names, and others. Two encoders take a
#: minute for them on two cores.
N_DOCUMENTS = 2000
#: Columns where no terminal says its own, and at most.
_WIDTH, _MAX_WIDTH = 100, 120
_JUDGEMENTS = "queries.jsonl"


def demo(
    k: Annotated[int, typer.Option("-k", min=1, help="Results of each list.")] = 6,
    each: Annotated[int, typer.Option(min=1, help="Searches of each kind, at most 5.")] = 1,
    documents: Annotated[
        int, typer.Option(min=0, help="Index about so many of the corpus; 0: all 4,000.")
    ] = N_DOCUMENTS,
    model: Annotated[
        str, typer.Option(help="The Boolean model: shipped, or a model's folder.")
    ] = "shipped",
    data: Annotated[
        Path | None, typer.Option(help="A taxa folder that `boolattn data build taxa` wrote.")
    ] = None,
) -> None:
    """Search the small taxa benchmark with the shipped model beside the plain encoder.

    Corpus and indexes are made once, in the user's cache.
    """
    steps = Steps()
    steps.say("loading PyTorch and the libraries")
    from rich.markup import escape
    from transformers.utils.logging import disable_progress_bar

    from boolattn.cli.demo.searches import choose_searches
    from boolattn.cli.demo.stage import PLAIN, SPLIT, set_up

    disable_progress_bar()
    stage = set_up(model, data, documents, steps)
    console = _console()
    names = [f"{PLAIN} as it is", escape(stage.name)]
    searches = choose_searches(stage.judgements.queries, stage.benchmark.documents, each)
    _introduce(console, stage, names)
    limit = f" --limit-documents {documents}" if documents else ""
    folder = f" --data {_short(data)}" if data else ""
    with _one_thread():
        _search(console, stage, searches, names, k)
        steps.say("measuring: every document is ranked for every query, three times")
        _evaluate(console, stage, names, f"{model} --on taxa --split {SPLIT}{limit}{folder}")
    _go_on(stage)
    steps.say(f"done; what was made is kept in {_short(stage.folder)}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute short texts by one thread: two would mostly wait, on a busy machine for long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _introduce(console: Console, stage: Stage, names: list[str]) -> None:
    from boolattn.cli.demo.lists import legend

    about = "operands are read, each is scored apart, and the scores are composed"
    if stage.boolean.retriever.parser is None:
        about = "it has no reader, so plain text is one operand and one vector"
    console.print(
        f"\n{len(stage.benchmark.documents):,} introductions of Wikipedia on animals and plants: "
        f"{stage.benchmark.name}\n"
        f"left    [bold]{names[0]}[/bold]: one vector a query\n"
        f"right   [bold]{names[1]}[/bold]: {about}"
    )
    console.print(
        "Queries are the benchmark's own, on groups and in wordings that no training saw; explicit "
        "syntax and names are ours. Those shown are picked by hand, the table has all there are. "
        "Where a species lives is what its introduction says."
    )
    console.print(legend(console))
    console.print("A, B, …: probability that the document belongs to that operand", style="dim")


def _search(
    console: Console, stage: Stage, searches: list[Asked], names: list[str], k: int
) -> None:
    from boolattn.cli.demo.lists import show_search

    texts = [asked.query.text for asked in searches]
    plain = stage.plain.search_many(texts, k, compose=False)
    boolean = stage.boolean.search_many(texts, k)
    for asked, left, right in zip(searches, plain, boolean, strict=True):
        show_search(console, asked, left, right, names)


def _evaluate(console: Console, stage: Stage, names: list[str], how: str) -> None:
    from boolattn.cli.demo.table import evaluate, show

    judgements = stage.judgements
    found = evaluate(judgements, stage.plain, stage.boolean, names)
    console.print()
    console.rule("[bold]Evaluation[/bold]", align="left", style="dim")
    n_asked = sum(bool(names) for names in judgements.operators)
    console.print(
        f"All {len(judgements)} queries of the benchmark's unseen wordings. {n_asked} have "
        f"operators; {found.n_composed} were read with enough certainty and composed, the others "
        "are one vector."
    )
    if "documents" in stage.benchmark.name:
        console.print("It ranks a part of the documents: on all of them every system looks worse.")
    console.print(show(found))
    console.print(
        "R-precision     right documents among the first n, where n are right; more is better\n"
        "leak            share of the excluded documents among the first right + excluded; less is "
        "better,\n                but who finds little leaks little\n"
        "excluded first  pairs of an excluded and a right document in which the excluded one "
        "stands\n                before the right one; less is better, .5 is blind",
        style="dim",
    )
    console.print(f"The same numbers: {_command()} evaluate {how}", style="dim", markup=False)


def _go_on(stage: Stage) -> None:
    from boolattn.cli.demo.searches import choose_searches
    from boolattn.jsonl import write_jsonl

    judged, own = stage.folder / _JUDGEMENTS, stage.judgements.queries
    ours = choose_searches(own, stage.benchmark.documents, len(own))
    queries = [*own, *(asked.query for asked in ours if not asked.is_own)]
    write_jsonl(judged, (_row(query) for query in queries))
    command = _command()
    typer.echo("\nTo see it in a browser (http://127.0.0.1:8000/), start the page:\n")
    typer.echo(f"  {command} serve {_short(stage.boolean.folder)} \\")
    typer.echo(f"    --plain-index {_short(stage.plain.folder)} \\")
    typer.echo(f"    --judgements {_short(judged)}")
    typer.echo("\nOr ask for yourself:\n")
    typer.echo(f"  {command} search {_short(stage.boolean.folder)} \\")
    typer.echo('    "snakes of Peru but not Ecuador" --explain')


def _row(query: Query) -> dict[str, Any]:
    """Write a query as the page reads it."""
    return {
        "text": query.text,
        "template": query.template,
        "operators": [operator.value for operator in query.operators],
        "operands": [{"text": one.text, "spans": one.spans} for one in query.operands],
        "gold": sorted(query.gold),
        "excluded": sorted(query.excluded),
        "partial": sorted(query.partial),
    }


def _command() -> str:
    """Name this program as the caller's shell finds it."""
    own = Path(sys.argv[0])
    found = shutil.which("boolattn")
    if own.name != "boolattn" or (found and Path(found).samefile(own)):
        return "boolattn"
    return str(own)


def _short(path: Path) -> str:
    """Write a path as a shell takes it, short where it is in the home folder."""
    home = Path.home()
    if path.is_relative_to(home) and " " not in str(path):
        return f"~/{path.relative_to(home)}"
    return shlex.quote(str(path))


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    width = min(console.width, _MAX_WIDTH) if console.is_terminal else _WIDTH
    return Console(highlight=False, emoji=False, width=width)
