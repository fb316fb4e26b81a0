"""The page of results: tables and significance tests of all finished runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from boolattn.errors import ConfigError, MissingDataError
from boolattn.evaluation.tables import markdown, short
from boolattn.files import write_text
from boolattn.reproduction.runs import ENDING, Run, make_tables, mean_and_deviation, registry

if TYPE_CHECKING:
    from boolattn.evaluation.results import Comparison
    from boolattn.reproduction.runs import Line, LineTable

BASELINE = ("plain", "plain_text")
#: Metrics of the overview, which are compared, and their names in tables.
SHOWN: Mapping[str, str] = {
    "r_precision": "R-precision",
    "leak": "leak",
    "recall@100": "Recall@100",
}
_HEADS: Mapping[str, str] = {
    "held_out_cue_f1": "cue F1, seen wordings",
    "unseen_cue_f1": "unseen",
    "held_out_scope_f1": "scope F1, seen wordings",
    "unseen_scope_f1": "unseen",
    "held_out_gate_accuracy": "gate accuracy, seen wordings",
    "unseen_gate_accuracy": "unseen",
}
_HEAD = """# Tables of all runs

Generated from the run files by `python -m experiments report`; not edited by hand.
A number is the mean over seeds, ± the standard deviation over seeds. *Leak* is the share of the
excluded documents that are returned at the depth of relevant + excluded: less is better.
*Operator labels* tell BoolAttn's gate which operators a query has. They come from the words of the
query (lexicon), from a trained classifier (learned), or from the data set (oracle): a user's query
does not come with oracle labels."""

_PRETRAINING = """On generated sentences, after pretraining and before retrieval training. Scope is
over all layers and attention heads, with oracle operator labels."""


def report(folder: Path, out: Path, against: Sequence[str] = BASELINE) -> Path:
    """Write ``tables.md`` of finished runs, in the order of ``systems.toml``."""
    known = registry()
    order = [*known.datasets, *known.encoders, *known.systems]

    def position(run: Run) -> tuple[int, ...]:
        *names, seed = astuple(run.key)
        return (*(order.index(name) if name in order else len(order) for name in names), seed)

    runs = sorted(map(Run.load, folder.glob(f"*/*/*{ENDING}")), key=position)
    if not runs:
        raise MissingDataError(f"no finished run below {folder}; run some first")
    tables = make_tables(runs)
    is_named = len(against) == 2 and any(table.find(*against) for table in tables)
    if not is_named and tuple(against) != BASELINE:
        raise ConfigError(f"no finished run of {','.join(against)!r}: name SYSTEM,QUERY_MODE")
    sections = [_section(table, against) for table in tables]
    if any("heads" in run.details for run in runs):
        sections += ["## Cue, scope and gate", _PRETRAINING, _heads_table(runs)]
    write_text(out / "tables.md", "\n\n".join([_HEAD, *sections, _commands(runs)]) + "\n")
    return out / "tables.md"


def overview(paths: Iterable[Path]) -> str:
    """Lay out the main results of some runs."""
    return "\n\n".join(
        f"**{table.dataset.name}, {table.encoder}**\n\n{_overview(table)}"
        for table in make_tables(map(Run.load, paths))
    )


def _overview(table: LineTable) -> str:
    heads = " / ".join(table.dataset.splits[split] for split in table.splits)
    columns = ["system", "operator labels", "seeds", *(f"{m}, {heads}" for m in SHOWN.values())]
    rows = []
    for line in table.lines:
        n_seeds = max(len(by_seed) for by_seed in line.rows.values())
        cells = (
            " / ".join(mean_and_deviation(line.means(split, metric)) for split in table.splits)
            for metric in SHOWN
        )
        rows.append([line.label, line.gate, str(n_seeds), *cells])
    return markdown(columns, rows)


def _section(table: LineTable, against: Sequence[str]) -> str:
    encoder = f", {table.encoder_label}" if table.encoder_label else ""
    every = [r for line in table.lines for rows in line.rows.values() for r in rows.values()]
    sizes = {results.split: len(results.queries) for results in every}
    counts = ", ".join(
        f"{sizes[split]:,} queries of {table.dataset.splits[split]}" for split in table.splits
    )
    n_documents = max(results.n_documents for results in every)
    blocks = [
        f"## {table.dataset.label}{encoder}",
        f"{n_documents:,} documents; {counts}.",
        _overview(table),
    ]
    rows = []
    for line in table.lines:
        for split, compared in _compared(table, line, against).items():
            cells = [_difference(compared.get(metric)) for metric in SHOWN]
            rows.append([line.label, line.gate, table.dataset.splits[split], *cells])
    if rows:
        other = "plain towers" if tuple(against) == BASELINE else ", ".join(against)
        heads = ["system", "operator labels", "queries", *SHOWN.values()]
        blocks += [
            f"Compared with {other}: difference, 95% interval over queries, p.",
            markdown(heads, rows),
        ]
    return "\n\n".join(blocks)


def _compared(
    table: LineTable, line: Line, against: Sequence[str]
) -> dict[str, dict[str, Comparison]]:
    """Compare a trained system with another, by split and metric."""
    spec, base = registry().systems.get(line.system), table.find(*against)
    if spec and spec.kind != "trained":
        return {}
    compared = {split: line.compare(base, split, [*SHOWN]) for split in table.splits}
    return {split: values for split, values in compared.items() if values}


def _difference(comparison: Comparison | None) -> str:
    if comparison is None:
        return "–"
    sign = "+" if comparison.difference >= 0 else ""
    p = "< .001" if comparison.p_value < 0.001 else short(comparison.p_value)
    interval = f"[{short(comparison.low)}, {short(comparison.high)}]"
    return f"{sign}{short(comparison.difference)} {interval} p {p}"


def _heads_table(runs: Iterable[Run]) -> str:
    """Lay out the heads' accuracy on generated sentences, in seen and unseen wordings."""
    heads: dict[tuple[str, ...], dict[int, dict[str, float]]] = {}
    for run in runs:
        if metrics := run.details.get("heads"):
            plugin = run.details["settings"]["plugin"]
            size = "rank " + str(plugin["rank"]) if plugin["rank"] else "full"
            gate = plugin["gate"].replace("label", "oracle")
            key = (run.key.encoder, plugin["variant"], gate, size)
            heads.setdefault(key, {})[run.key.seed] = metrics
    rows = []
    for names, by_seed in sorted(heads.items()):
        values = ([v[m] for v in by_seed.values() if m in v] for m in _HEADS)
        rows.append([*names, str(len(by_seed)), *map(mean_and_deviation, values)])
    columns = ["encoder", "variant", "operator labels", "size", "seeds", *_HEADS.values()]
    return markdown(columns, rows)


def _commands(runs: Sequence[Run]) -> str:
    commands: dict[str, list[Run]] = {}
    for run in runs:
        commands.setdefault(str(run.details.get("command") or "unknown"), []).append(run)
    blocks = ["## Commands"]
    for command, same in commands.items():
        machine = same[0].details.get("machine", {}).get("device", "unknown")
        versions = same[0].details.get("versions", {})
        seconds = [sum(run.details.get("seconds", {}).values()) for run in same]
        words = (
            f"{len(same)} runs on {machine}, torch {versions.get('torch', '?')}, transformers "
            f"{versions.get('transformers', '?')}; {np.mean(seconds):.0f} s a run."
        )
        blocks.append(f"```sh\n{command}\n```\n\n{words}")
    return "\n\n".join(blocks)
