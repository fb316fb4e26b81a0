"""The verbs ``evaluate`` and ``compare``: how well something ranks, and whether better.

Tables go to stdout, progress to stderr. May import: boolattn.evaluation, boolattn.data,
boolattn.search.
"""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import boolattn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.ranking import Ranking
    from boolattn.evaluation.results import Results
    from boolattn.logic.tree import QueryTree
    from boolattn.search.model_rankers import ExclusionFilter
    from boolattn.search.systems import OpenSystem

FIGURE = "recall@100"
# Seconds between two lines of progress.
_PAUSE = 5.0
_GROUPED = ("recall@100", "r_precision", "leak")

Metrics = Annotated[
    list[str] | None, typer.Option("--metric", help="Only these: recall@100, leak, …")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def evaluate(  # noqa: PLR0913 - one parameter for each option
    model: Annotated[
        str,
        typer.Argument(help="A model's folder, a TREC run (*.run, *.trec), minilm, shipped, bm25."),
    ],
    on: Annotated[str, typer.Option(help="Data set: a name that `boolattn data list` gives.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Of its queries; left out, those usually reported.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data set's files.")] = None,
    size: Annotated[str, typer.Option(help="Of a benchmark that is built: small, full.")] = "small",
    gate: Annotated[
        str, typer.Option(help="Who opens it: the model by itself (own), or the label.")
    ] = "own",
    compose: Annotated[
        bool, typer.Option(help="Compose operand scores, if the model reads operands.")
    ] = True,
    strict_not: Annotated[
        bool, typer.Option("--strict-not", help="Drop what holds an excluded operand's words.")
    ] = False,
    metrics: Metrics = None,
    limit_documents: Annotated[
        int, typer.Option(min=0, help="Rank about so many: all that queries name, and others.")
    ] = 0,
    limit_queries: Annotated[
        int, typer.Option(min=0, help="Ask at most so many of each split.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="For what is drawn or generated.")] = 0,
    name: Annotated[str, typer.Option(help="What tables call the system.")] = "",
    device: Annotated[str | None, typer.Option(help="cpu or cuda; left out, the best.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, runs and figures.")] = Path(
        "out/evaluation"
    ),
    as_json: AsJson = False,
) -> None:
    """Rank a data set's documents for its queries and say how well.

    Writes for each split the results (JSON, every query's values), the run (TREC) and a figure.
    """
    from boolattn.data.catalog import Options, open_dataset
    from boolattn.evaluation import tables
    from boolattn.evaluation.benchmark import prepare
    from boolattn.evaluation.metrics import DEFAULT, parse
    from boolattn.search.systems import RUNS, SystemOptions, open_system

    if model != "bm25" and not model.endswith(RUNS):
        _quiet()
    chosen = metrics or list(DEFAULT)
    for metric in chosen:
        parse(metric)
    options = SystemOptions(gate=gate, is_composed=compose, device=device, progress=_teller())
    data_set = open_dataset(on, Options(folder=data, size=size, seed=seed, tell=_tell))
    benchmark = prepare(
        data_set, split or (), n_documents=limit_documents, n_queries=limit_queries, seed=seed
    )
    if strict_not:
        options = replace(options, exclusion_filter=_word_rule(benchmark.texts))
    system = open_system(model, benchmark, options)
    if system.gate == "closed":
        _tell("note: this model is gated by label; without --gate label its gate stays closed")
    console, found = _console(), []
    for part in benchmark.splits:
        results = _measure(system, benchmark, part, chosen, name=name, out=out)
        found.append(results)
        if not as_json:
            console.print(tables.split_table(results, console.width))
    if as_json:
        overall = {one.split: {"n": one.overall.n, **one.overall.means} for one in found}
        typer.echo(_dumped({"system": found[0].system, "gate": system.gate, "splits": overall}))
    elif len(found) > 1:
        console.print(tables.overall_table(found, console.width))


def compare(  # noqa: PLR0913 - one parameter for each option
    first: Annotated[str, typer.Argument(help="Results; several seeds parted by commas.")],
    second: Annotated[str, typer.Argument(help="Results of another system, same queries.")],
    metrics: Metrics = None,
    by: Annotated[str, typer.Option(help="template, operator, domain or wording.")] = "",
    figure: Annotated[Path | None, typer.Option(help="Draw both by template.")] = None,
    seed: Annotated[int, typer.Option(help="Of the test's draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two systems query by query: difference, 95% interval, p value.

    The p value is that of the paired randomisation test, the interval a bootstrap's. Values of
    several seeds are averaged for each query first.
    """
    from boolattn.evaluation import figures, tables
    from boolattn.evaluation.results import compare_results

    systems = [_load(first), _load(second)]
    groups = {"": systems}
    if by:
        groups = {name: [one.only(by, name) for one in systems] for name in systems[0].by(by)}
    compared = {
        name: compare_results(*pair, metrics=metrics or (list(_GROUPED) if by else None), seed=seed)
        for name, pair in groups.items()
    }
    if as_json:
        plain = {name: {m: asdict(c) for m, c in rows.items()} for name, rows in compared.items()}
        named = {"first": systems[0].system, "second": systems[1].system}
        typer.echo(_dumped({**named, "by": plain} if by else {**named, "metrics": plain[""]}))
    else:
        _console().print(tables.comparison_table(systems, compared))
    if figure is not None:
        figures.save(figures.by_template(systems, FIGURE), figure)
        _tell(f"figure: {figure}")


def _word_rule(texts: Sequence[str]) -> ExclusionFilter:
    """Return what a search with strict NOT asks of documents, here of their texts alone."""
    from boolattn.search.lexical import terms_of
    from boolattn.search.lexical_exclusion import allowed_by_terms

    @cache
    def words(row: int) -> frozenset[str]:
        return frozenset(terms_of(texts[row]))

    def keeps(tree: QueryTree) -> Callable[[int], bool]:
        is_kept = allowed_by_terms(tree)
        return lambda row: is_kept(words(row))

    return keeps


def _measure(
    system: OpenSystem,
    benchmark: Benchmark,
    split: str,
    metrics: Sequence[str],
    *,
    name: str,
    out: Path,
) -> Results:
    from boolattn.evaluation import figures
    from boolattn.evaluation.metrics import measure, needed_depth
    from boolattn.evaluation.ranking import write_run
    from boolattn.evaluation.results import results_of

    judgements = benchmark.splits[split]
    depth = needed_depth(judgements, metrics)
    started = time.perf_counter()
    ranking = system.rank(judgements, depth)
    seconds = time.perf_counter() - started
    _note_missing(ranking, split, depth)
    results = results_of(
        judgements,
        measure(ranking, judgements, metrics),
        system=name or system.name,
        dataset=benchmark.name,
        split=split,
        gate=system.gate,
        details={
            "version": boolattn.__version__,
            "is_composed": system.is_composed,
            "depth": depth,
            "seconds_to_rank": round(seconds, 2),
        },
    )
    stem = out / re.sub(r"[^\w.]+", "-", "-".join(_stem(results))).strip("-")
    results.save(stem.with_name(f"{stem.name}.json"))
    write_run(
        stem.with_name(f"{stem.name}.run.gz"),
        ranking,
        judgements.ids,
        benchmark.ids,
        system=results.system,
    )
    _tell(f"results: {stem}.json, run: {stem}.run.gz")
    if FIGURE in results.values:
        figures.save(figures.by_template([results], FIGURE), stem.with_name(f"{stem.name}.png"))
        _tell(f"figure: {stem}.png")
    return results


def _note_missing(ranking: Ranking, split: str, depth: int) -> None:
    """Say what a ranking lacks, because nobody sees it in a mean."""
    lengths = (ranking.rows >= 0).sum(axis=1)
    if n_empty := int((lengths == 0).sum()):
        _tell(f"note: {n_empty:,} of {len(lengths):,} queries of {split} got no result at all")
    if (longest := int(lengths.max())) < depth:
        _tell(
            f"note: no query of {split} has more than {longest:,} results and metrics read up to "
            f"{depth:,}; what is missing counts as not found"
        )


def _stem(results: Results) -> list[str]:
    composed = "composed" if results.details.get("is_composed") else ""
    return [results.system, composed, results.gate, results.dataset, results.split]


def _load(paths: str) -> Results:
    from boolattn.evaluation.results import Results, average

    return average([Results.load(Path(path)) for path in paths.split(",")])


def _console() -> Console:
    from rich.console import Console

    from boolattn.evaluation.tables import WIDTH

    # A name may hold brackets that are no markup; a file has no width of its own.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=WIDTH)
    return console


def _dumped(value: object) -> str:
    def plain(one: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(one, dict):
            return {key: plain(item) for key, item in one.items()}
        return None if isinstance(one, float) and math.isnan(one) else one

    return json.dumps(plain(value), ensure_ascii=False, indent=2)


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def _teller() -> Callable[[str, int, int], None]:
    """Say now and then how far a long work is."""
    last = time.monotonic()

    def tell(what: str, done: int, total: int) -> None:
        nonlocal last
        if done == total or time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            _tell(f"{what}: {done:,} of {total:,}")

    return tell


def _quiet() -> None:
    """Keep the libraries' own bars away from the table."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
