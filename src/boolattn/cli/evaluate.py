"""The verbs ``evaluate`` and ``compare``. Tables go to stdout, progress to stderr."""

from __future__ import annotations

import shutil
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import option

from boolattn.cli import output
from boolattn.cli.measured import measure_all
from boolattn.cli.output import json_option, note, print_json
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

metrics_option = option("--metric", "metrics", multiple=True, help="recall@100, …; repeatable.")


@click.command()
@click.argument("model", help="A model folder, a TREC run, minilm, shipped or bm25.")
@option("--on", required=True, help="A data set of `boolattn data list`, or people (shipped).")
@option("--split", multiple=True, help="Repeatable; default: the usual ones.")
@option("--data", type=Path, help="Folder with the data set's files.")
@option("--size", default="small", help="Generated benchmarks: small or full.")
@option("--gate", default="own", help="Operator labels: own or label (oracle).")
@option("--compose/--no-compose", default=True, help="Compose operand scores, if it can.")
@option("--strict-not", is_flag=True, help="Remove documents with a negated operand's words.")
@option("--hybrid", is_flag=True, help="Use lexical scores too.")
@metrics_option
@option(
    "--limit-documents",
    type=click.IntRange(0),
    default=0,
    help="Rank about so many: those named by queries, and others; 0: all.",
)
@option("--limit-queries", type=click.IntRange(0), default=0, help="Most of a split; 0: all.")
@option("--seed", default=0, help="Random seed of samples and generated data.")
@option("--device", help="cpu or cuda; default: a GPU if any.")
@option("--out", type=Path, default=Path("out/evaluation"), help="Folder of results and runs.")
@json_option
def evaluate(model: str, on: str, split: tuple[str, ...], out: Path, **options: Any) -> None:
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

    device, seed, as_json = (options[name] for name in ("device", "seed", "as_json"))
    is_model = model != "bm25" and not model.endswith(RUNS)
    if is_model:
        output.quiet_libraries()
    if on == "people":
        evaluate_people(model, device, split or ("validation",), as_json=as_json)
        return
    metrics = [*options["metrics"]]
    for metric in metrics:
        parse(metric)
    data_options = DataOptions(
        folder=options["data"], size=options["size"], seed=seed, tell=note, splits=split
    )
    data_set = open_dataset(on, data_options)
    sizes = {f"n_{name}": options[f"limit_{name}"] for name in ("documents", "queries")}
    sizes["seed"] = seed
    compose, hybrid, strict_not = (options[n] for n in ("compose", "hybrid", "strict_not"))
    if on == "domains":
        uses = (True, compose, hybrid, strict_not, hybrid and strict_not)
        ways = [way for way, is_used in zip(WAYS, uses, strict=True) if is_used]
        chosen = split or ("test", "unseen")
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
        benchmark = prepare(data_set, split, **sizes)
        system_options = SystemOptions(
            gate=options["gate"],
            is_composed=compose,
            hybrid=hybrid,
            strict_not=strict_not,
            device=device,
            progress=output.progress_lines(),
        )
        system = open_system(model, benchmark, system_options)
        if system.gate == "closed":
            note("note: this model needs oracle labels; without --gate label its gate stays closed")
        usual = metrics or [*(["pairwise"] if on == "pairs" else []), *DEFAULT_METRICS]
        pair = ("composed" * system.is_composed, system)
        results = measure_all({"": benchmark}, lambda _: [pair], lambda _: usual, out)
    _show(results, is_domains=on == "domains", as_json=as_json)


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
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else tables.WIDTH
        for systems in splits.values():
            table = tables.domains_table(systems) if is_domains else None
            click.echo(f"{table or tables.split_table(systems[0], width)}\n")


@click.command()
@click.argument("first", help="Results; of several seeds, separated by commas.")
@click.argument("second", help="Results of another system, same queries.")
@metrics_option
@option("--by", help="template, operator, domain, wording or kind.")
@option("--figure", type=Path, help="Draw both by template.")
@option("--seed", default=0, help="Random seed of the test.")
@json_option
def compare(  # noqa: PLR0913 - options of a command line
    first: str,
    second: str,
    metrics: tuple[str, ...],
    by: str | None,
    figure: Path | None,
    seed: int,
    as_json: bool,
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
        click.echo(tables.comparison_table(systems, compared))
    if figure is not None:
        is_domains = systems[0].dataset.startswith("domains-")
        drawn = figures.by_domain(systems) if is_domains else figures.by_template(systems, FIGURE)
        figures.save(drawn, figure)
        note(f"figure: {figure}")
