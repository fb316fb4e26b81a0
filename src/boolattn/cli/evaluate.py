"""The verbs ``evaluate`` and ``compare``. Tables go to stdout, progress to stderr."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import option

import boolattn
from boolattn.cli import json_option, note, print_json, quiet_libraries, show_progress
from boolattn.errors import BoolattnError, ConfigError

if TYPE_CHECKING:
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.evaluation.results import Results
    from boolattn.search.systems import OpenSystem

_VERDICTS = ("right", "wrong", "inverted")

metrics_option = option("--metric", "metrics", multiple=True, help="recall@100, …; repeatable.")


@click.command()
@click.argument("model", help="A model folder, a TREC run, minilm, shipped or bm25.")
@option("--on", required=True, help="A data set of `boolattn data list`, or people (shipped).")
@option("--split", multiple=True, help="Repeatable; default: the usual ones.")
@option("--data", "folder", type=Path, help="Folder with the data set's files.")
@option("--size", default="small", help="Generated benchmarks: small or full.")
@option("--gate", type=click.Choice(["own", "label"]), default="own", help="label: the oracle's.")
@option("--compose/--no-compose", "is_composed", default=True, help="Compose operand scores.")
@option("--strict-not", is_flag=True, help="Remove documents with a negated operand's words.")
@option("--hybrid", is_flag=True, help="Use lexical scores too.")
@metrics_option
@option("--limit-documents", "n_documents", default=0, help="Rank about so many; 0: all.")
@option("--limit-queries", "n_queries", default=0, help="0: all.")
@option("--seed", default=0, help="Random seed of samples and generated data.")
@option("--device", help="cpu or cuda; default: a GPU if any.")
@option("--out", type=Path, default=Path("out/evaluation"), help="Folder of results and runs.")
def evaluate(model: str, on: str, split: tuple[str, ...], out: Path, **options: Any) -> None:
    """Rank a data set's documents for its queries, and measure the rankings.

    Writes for each split the results (JSON, values of every query) and the run (TREC).
    """
    from boolattn.data.catalog import DataOptions, open_dataset
    from boolattn.evaluation import tables
    from boolattn.evaluation.benchmark import prepare
    from boolattn.evaluation.metrics import DEFAULT_METRICS, parse
    from boolattn.evaluation.results import by_domain, domain_metrics, joined
    from boolattn.search.systems import open_systems, ways_of

    quiet_libraries()
    if on == "people":
        _evaluate_people(model, split or ("validation",), **options)
        return
    metrics = [*options["metrics"]]
    list(map(parse, metrics))  # refuses unknown ones before anything is loaded
    usual = metrics or [*(["pairwise"] if on == "pairs" else []), *DEFAULT_METRICS]
    places = {name: options[name] for name in ("folder", "size", "seed")}
    data_set = open_dataset(on, DataOptions(**places, tell=note, splits=split))
    is_domains = on == "domains"
    if is_domains and metrics:
        raise ConfigError("the metrics of domains are fixed by split: leave out --metric")
    ways = ways_of(model, **{n: options[n] for n in ("is_composed", "hybrid", "strict_not")})
    chosen = {name: options[name] for name in ("gate", "device")}
    sizes = {name: options[name] for name in ("n_documents", "n_queries", "seed")}
    wanted = split or ("test", "unseen")
    data_sets = by_domain(data_set, wanted) if is_domains else [("", data_set)]
    measured: dict[str, dict[str, list[Results]]] = defaultdict(lambda: defaultdict(list))
    for domain, part in data_sets:
        benchmark = prepare(part, list(part.splits) if is_domains else split, **sizes)
        folder = out / "runs" / domain if domain else out
        note(f"{domain or benchmark.name}: {len(benchmark.documents):,} documents")
        for system in open_systems(
            model, benchmark, ways if is_domains else ways[-1:], progress=show_progress, **chosen
        ):
            if system.gate == "closed":
                note("note: without oracle labels, --gate label, this model's gate stays closed")
            for name in benchmark.splits:
                metric_names = domain_metrics(name) if is_domains else usual
                results = _measure(system, benchmark, name, metric_names, folder)
                measured[name][results.label].append(results)
    if not measured:
        raise ConfigError(f"no domain has the splits {', '.join(wanted)}")
    for by_label in measured.values():
        systems = [*map(joined, by_label.values())]
        for results in systems:
            path = out / f"{_file_stem(results)}.json"
            results.save(path)
            note(f"results: {path}")
        table = tables.domains_table(systems) if is_domains else tables.split_table(systems[0])
        click.echo(f"{table}\n")


def _measure(
    system: OpenSystem, benchmark: Benchmark, split: str, metrics: Sequence[str], out: Path
) -> Results:
    from boolattn.evaluation.metrics import measure, needed_depth
    from boolattn.evaluation.ranking import write_run
    from boolattn.evaluation.results import results_of

    judgements = benchmark.splits[split]
    depth = needed_depth(judgements, metrics)
    start = time.perf_counter()
    ranking = system.rank(judgements, depth)
    seconds = round(time.perf_counter() - start, 2)
    # A mean does not show what a ranking lacks.
    lengths = (ranking.rows >= 0).sum(axis=1)
    if n_empty := int((lengths == 0).sum()):
        note(f"note: {n_empty:,} of {len(lengths):,} queries of {split} have no results")
    if (longest := int(lengths.max())) < depth:
        limit = f"no query of {split} has more than {longest:,} results"
        note(f"note: {limit}, and metrics use up to {depth:,}; the rest counts as not found")
    details = {"version": boolattn.__version__, "depth": depth, "seconds_to_rank": seconds}
    about = {"system": system.name, "dataset": benchmark.name, "split": split, "gate": system.gate}
    values = measure(ranking, judgements, metrics)
    results = results_of(judgements, values, **about, details={**details, "way": system.way})
    run = out / f"{_file_stem(results)}.run.gz"
    write_run(run, ranking, judgements.ids, list(benchmark.rows), system=results.system)
    return results


def _file_stem(results: Results) -> str:
    words = (results.label, results.gate, results.dataset, results.split)
    return re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-")


def _evaluate_people(model: str, splits: Sequence[str], *, device: str | None, **_: Any) -> None:
    """Search every collection of some splits; print verdicts by collection and by type."""
    from boolattn.data.people import SPLITS, load_collection
    from boolattn.evaluation.tables import markdown, short
    from boolattn.search import Searcher, load_model

    if unknown := [split for split in splits if split not in SPLITS]:
        raise ConfigError(f"people has no split {unknown[0]!r}; there are {', '.join(SPLITS)}")
    encoder = load_model(model, device=device)
    names = [name for split in splits for name in SPLITS[split]]
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        documents, queries = load_collection(name)
        note(f"{name}: {len(documents):,} documents, {len(queries):,} queries")
        searcher = Searcher.from_texts(documents, encoder)
        for query in queries:
            try:
                result = searcher.search(query.text, 40)  # some are undecided
                verdict = query.judge([hit.id for hit in result.hits])
            except BoolattnError as error:
                note(f"wrong: {query.text!r}: {error}")
                verdict = "wrong"
            for group in (name, query.type, "all"):
                groups[group][verdict] += 1
    rows = []
    for key in (*names, *sorted(groups.keys() - {*names, "all"}), "all"):
        counts, n = groups[key], groups[key].total()
        cells = map(str, (*(counts[verdict] for verdict in _VERDICTS), n))
        rows.append([key, *cells, short(counts["right"] / n)])
    click.echo(markdown(["", *_VERDICTS, "queries", "share right"], rows))


@click.command()
@click.argument("first", help="Results; of several seeds, separated by commas.")
@click.argument("second", help="Results of another system, same queries.")
@metrics_option
@option("--by", help="template, operator, domain, wording or kind.")
@option("--figure", type=Path, help="Draw both by template.")
@json_option
def compare(first: str, second: str, by: str | None, figure: Path | None, **options: Any) -> None:
    """Compare two systems query by query: difference, 95% interval, p value.

    The p value is that of the paired randomisation test, the interval a bootstrap's. Values of
    several seeds are averaged for each query first.
    """
    from boolattn.evaluation import tables
    from boolattn.evaluation.results import Results, average, compare_results

    seeds = [[Results.load(Path(path)) for path in paths.split(",")] for paths in (first, second)]
    systems = [average(results) for results in seeds]
    groups = {"": systems}
    if by:
        groups = {name: [system.only(by, name) for system in systems] for name in systems[0].by(by)}
    usual = ("recall@100", "r_precision", "leak")
    grouped = [name for name in usual if all(name in system.values for system in systems)]
    metrics = options["metrics"] or (grouped if by else None)
    compared = {name: compare_results(*pair, metrics=metrics) for name, pair in groups.items()}
    if options["as_json"]:
        plain = {name: {m: asdict(c) for m, c in rows.items()} for name, rows in compared.items()}
        named = {"first": systems[0].system, "second": systems[1].system}
        print_json({**named, "by": plain} if by else {**named, "metrics": plain[""]}, indent=2)
    else:
        click.echo(tables.comparison_table(systems, compared))
    if figure is not None:
        is_domains = systems[0].dataset.startswith("domains-")
        draw = tables.domain_figure if is_domains else tables.template_figure
        tables.save_figure(draw(systems), figure)
        note(f"figure: {figure}")
