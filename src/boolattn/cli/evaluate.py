"""The verbs ``evaluate`` and ``compare``. Tables go to stdout, progress to stderr."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from boolattn.cli import output
from boolattn.cli.measured import measure_all
from boolattn.cli.output import AsJson, console, note, print_json
from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from boolattn.encoders.base import Encoder
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.results import Results
    from boolattn.search.systems import OpenSystem

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
    device: Annotated[str | None, Option(help="cpu or cuda; default: a GPU if any.")] = None,
    out: Annotated[Path, Option(help="Folder of results and runs.")] = Path("out/evaluation"),
    as_json: AsJson = False,
) -> None:
    """Rank a data set's documents for its queries, and measure the rankings.

    Writes for each split the results (JSON, values of every query) and the run (TREC).
    """
    from boolattn.cli.people import evaluate_people
    from boolattn.data.catalog import DataOptions, open_dataset
    from boolattn.encoders.models import load_model
    from boolattn.evaluation import domains
    from boolattn.evaluation.benchmark import prepare
    from boolattn.evaluation.metrics import DEFAULT_METRICS, parse
    from boolattn.search.systems import RUNS, WAYS, SystemOptions, open_system

    is_model = model != "bm25" and not model.endswith(RUNS)
    if is_model:
        output.quiet_libraries()
    if on == "people":
        evaluate_people(model, device, split or ["validation"], as_json=as_json)
        return
    for metric in metrics or ():
        parse(metric)
    is_domains = on == "domains"
    options = SystemOptions(
        gate=gate,
        is_composed=compose,
        hybrid=hybrid,
        strict_not=strict_not,
        device=device,
        progress=None if is_domains else output.progress_lines(),
    )
    data_set = open_dataset(
        on, DataOptions(folder=data, size=size, seed=seed, tell=note, splits=split or ())
    )
    sizes = {"n_documents": limit_documents, "n_queries": limit_queries, "seed": seed}
    if is_domains:
        uses = (True, compose, hybrid, strict_not, hybrid and strict_not)
        ways = [way for way, is_used in zip(WAYS, uses, strict=True) if is_used]
        chosen = split or ["test", "unseen"]
        benchmarks = {
            domain: prepare(part, list(part.splits), **sizes)
            for domain, part in domains.by_domain(data_set, chosen)
        }
        if not benchmarks:
            raise ConfigError(f"no domain has the splits {', '.join(chosen)}")
        encoder = load_model(model, device=device) if is_model else None
        systems = partial(_in_ways, model, encoder, ways)
        results = measure_all(benchmarks, systems, domains.metrics_of, out)
    else:
        benchmark = prepare(data_set, split or (), **sizes)
        system = open_system(model, benchmark, options)
        if system.gate == "closed":
            note("note: this model needs oracle labels; without --gate label its gate stays closed")
        usual = metrics or [*(["pairwise"] if on == "pairs" else []), *DEFAULT_METRICS]
        pair = ("composed" * system.is_composed, system)
        results = measure_all({"": benchmark}, lambda _: [pair], lambda _: usual, out)
    _show(results, is_domains=is_domains, as_json=as_json)


def _in_ways(
    model: str, encoder: Encoder | None, ways: Sequence[str], benchmark: Benchmark
) -> Iterator[tuple[str, OpenSystem]]:
    """Open a model that ranks the documents of one domain in several ways."""
    from boolattn.search.systems import SearchRanker, open_system

    if encoder is None:
        yield "", open_system(model, benchmark)
        return
    ranker = SearchRanker(encoder, benchmark.documents)
    yield from ((way, ranker.system(Path(model).name, way)) for way in ways)


def _show(splits: Mapping[str, Sequence[Results]], *, is_domains: bool, as_json: bool) -> None:
    """Print the results of each split as tables, or all as JSON."""
    from boolattn.evaluation import domains, tables

    if as_json and is_domains:
        rows = {s: {r.label: domains.rows_of(r) for r in rs} for s, rs in splits.items()}
        columns = {s: [heading for heading, _, _ in domains.columns_of(s)] for s in splits}
        print_json({"columns": columns, "splits": rows}, indent=2)
    elif as_json:
        means = {s: {"n": r.overall.n, **r.overall.means} for s, [r] in splits.items()}
        [first], *_ = splits.values()
        print_json({"system": first.system, "gate": first.gate, "splits": means}, indent=2)
    else:
        screen = console(width=tables.WIDTH)
        for systems in splits.values():
            table = tables.domains_table(systems) if is_domains else None
            screen.print(table or tables.split_table(systems[0], screen.width))


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
