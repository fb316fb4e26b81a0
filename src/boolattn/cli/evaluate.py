"""The verbs ``evaluate`` and ``compare``. Tables go to stdout, progress to stderr."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from boolattn.cli import output
from boolattn.cli.measured import file_stem, measure_split
from boolattn.cli.output import AsJson, console, note, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.results import Results
    from boolattn.search.ranker import OpenSystem

FIGURE = "recall@100"
#: Metrics of a comparison by groups.
_GROUPED = ["recall@100", "r_precision", "leak"]

Metrics = Annotated[list[str] | None, Option("--metric", help="recall@100, leak, …; repeatable.")]


def evaluate(  # noqa: PLR0913 - options of a command line
    model: Annotated[str, Argument(help="A model folder, a TREC run, minilm, shipped or bm25.")],
    on: Annotated[str, Option(help="A data set of `boolattn data list`, or people (shipped).")],
    split: Annotated[list[str] | None, Option(help="Repeatable; default: the usual ones.")] = None,
    data: Annotated[Path | None, Option(help="Folder with the data set's files.")] = None,
    size: Annotated[str, Option(help="Generated benchmarks: small or full.")] = "small",
    gate: Annotated[str, Option(help="Operator labels: own or label (oracle).")] = "own",
    compose: Annotated[bool, Option(help="Compose operand scores, if it can.")] = True,
    strict_not: Annotated[
        bool, Option("--strict-not", help="Remove documents with a negated operand's words.")
    ] = False,
    hybrid: Annotated[bool, Option("--hybrid", help="Use lexical scores too.")] = False,
    metrics: Metrics = None,
    limit_documents: Annotated[
        int, Option(min=0, help="Rank about so many: those named by queries, and others; 0: all.")
    ] = 0,
    limit_queries: Annotated[int, Option(min=0, help="Most queries of a split; 0: all.")] = 0,
    seed: Annotated[int, Option(help="Random seed of samples and generated data.")] = 0,
    name: Annotated[str, Option(help="Name of the system in tables.")] = "",
    device: Annotated[str | None, Option(help="cpu or cuda; default: a GPU if any.")] = None,
    out: Annotated[Path, Option(help="Folder of results and runs.")] = Path("out/evaluation"),
    as_json: AsJson = False,
) -> None:
    """Rank a data set's documents for its queries, and measure the rankings.

    Writes for each split the results (JSON, values of every query), the run (TREC) and a figure.
    """
    from boolattn.cli.domains import Domains
    from boolattn.cli.people import evaluate_people
    from boolattn.data.catalog import DataOptions, open_dataset
    from boolattn.evaluation import tables
    from boolattn.evaluation.benchmark import prepare
    from boolattn.evaluation.metrics import DEFAULT, parse
    from boolattn.search.ranker import RUNS, WAYS, SystemOptions, open_system

    if model != "bm25" and not model.endswith(RUNS):
        output.quiet_libraries()
    if on == "people":
        evaluate_people(model, device, split or ["validation"], as_json=as_json)
        return
    chosen = metrics or [*(["pairwise"] if on == "pairs" else []), *DEFAULT]
    for metric in chosen:
        parse(metric)
    options = SystemOptions(
        gate=gate,
        is_composed=compose,
        hybrid=hybrid,
        strict_not=strict_not,
        device=device,
        progress=output.progress_lines(),
    )
    data_set = open_dataset(
        on, DataOptions(folder=data, size=size, seed=seed, tell=note, splits=split or ())
    )
    if on == "domains":
        uses = (True, compose, hybrid, strict_not, hybrid and strict_not)
        ways = [way for way, is_used in zip(WAYS, uses, strict=True) if is_used]
        evaluation = Domains(model, name, device, ways, out, limit_queries)
        evaluation.run(data_set, split or ["test", "unseen"], as_json=as_json)
        return
    benchmark = prepare(
        data_set, split or (), n_documents=limit_documents, n_queries=limit_queries, seed=seed
    )
    system = open_system(model, benchmark, options)
    if system.gate == "closed":
        note("note: this model needs oracle labels; without --gate label its gate stays closed")
    screen, measured = console(width=tables.WIDTH), []
    for part in benchmark.splits:
        measured.append(_evaluate_split(system, benchmark, part, chosen, name, out))
        if not as_json:
            screen.print(tables.split_table(measured[-1], screen.width))
    if as_json:
        overall = {r.split: {"n": r.overall.n, **r.overall.means} for r in measured}
        values = {"system": measured[0].system, "gate": system.gate, "splits": overall}
        print_json(values, indent=2)
    elif len(measured) > 1:
        screen.print(tables.overall_table(measured, screen.width))


def compare(  # noqa: PLR0913 - options of a command line
    first: Annotated[str, Argument(help="Results; of several seeds, separated by commas.")],
    second: Annotated[str, Argument(help="Results of another system, same queries.")],
    metrics: Metrics = None,
    by: Annotated[str, Option(help="template, operator, domain, wording or kind.")] = "",
    figure: Annotated[Path | None, Option(help="Draw both by template.")] = None,
    seed: Annotated[int, Option(help="Random seed of the test.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two systems query by query: difference, 95% interval, p value.

    The p value is that of the paired randomisation test, the interval a bootstrap's. Values of
    several seeds are averaged for each query first.
    """
    from boolattn.evaluation import figures, tables
    from boolattn.evaluation.results import Results, average, compare_results

    seeds = [[Results.load(Path(path)) for path in paths.split(",")] for paths in (first, second)]
    systems = [average(results) for results in seeds]
    groups = {"": systems}
    if by:
        groups = {name: [system.only(by, name) for system in systems] for name in systems[0].by(by)}
    grouped = [name for name in _GROUPED if all(name in system.values for system in systems)]
    compared = {
        name: compare_results(*pair, metrics=metrics or (grouped if by else None), seed=seed)
        for name, pair in groups.items()
    }
    if as_json:
        plain = {name: {m: asdict(c) for m, c in rows.items()} for name, rows in compared.items()}
        named = {"first": systems[0].system, "second": systems[1].system}
        print_json({**named, "by": plain} if by else {**named, "metrics": plain[""]}, indent=2)
    else:
        console(width=tables.WIDTH).print(tables.comparison_table(systems, compared))
    if figure is not None:
        is_domains = systems[0].dataset.startswith("domains-")
        drawn = figures.by_domain(systems) if is_domains else figures.by_template(systems, FIGURE)
        figures.save(drawn, figure)
        note(f"figure: {figure}")


def _evaluate_split(
    system: OpenSystem,
    benchmark: Benchmark,
    split: str,
    metrics: Sequence[str],
    name: str,
    out: Path,
) -> Results:
    """Rank and measure the queries of one split, and write results, run and figure."""
    from boolattn.evaluation import figures

    results = measure_split(system, benchmark, split, metrics, name, out)
    stem = file_stem(results)
    results.save(out / f"{stem}.json")
    note(f"results: {out / stem}.json, run: {out / stem}.run.gz")
    if FIGURE in results.values:
        figures.save(figures.by_template([results], FIGURE), out / f"{stem}.png")
        note(f"figure: {out / stem}.png")
    return results
