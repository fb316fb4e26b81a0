"""The page of results: tables, significance tests and figures of all finished runs."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.errors import ConfigError
from boolattn.evaluation import figures
from boolattn.evaluation.tables import markdown, short
from boolattn.files import atomic_file
from boolattn.reproduction.requests import RunRequest
from boolattn.reproduction.runs import NO_ENCODER
from experiments.lines import BASELINE, TESTED, compare_with_baseline, find_line, load_tables
from experiments.negation.experiment import negation_table
from experiments.registry import grids, registry
from experiments.tables import overview_table, parser_table, pretraining_table, seed_means

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.significance import Comparison
    from boolattn.reproduction.runs import Run
    from experiments.lines import Line, Table

    Compared = Mapping[str, Mapping[str, Comparison]]

#: Systems and query modes of the figures.
DRAWN = (("plain", "plain_text"), ("corrected-frozen", "plain_text"), ("composed", "parsed"))


def report(
    folder: Path, out: Path, against: Sequence[str] = BASELINE, *, draw: bool = True
) -> Path:
    """Write ``tables.md``, ``summary.json`` and figures (with matplotlib) of finished runs."""
    tables, runs = load_tables(folder)
    is_named = len(against) == 2 and any(find_line(table, *against) for table in tables)
    if not is_named and tuple(against) != BASELINE:
        raise ConfigError(f"no finished run of {','.join(against)!r}: name SYSTEM,QUERY_MODE")
    sections, summary = [], []
    for table in tables:
        own = [run for run in runs if (run.key.dataset, run.key.encoder) == _key(table)]
        compared = [compare_with_baseline(table, line, against) for line in table.lines]
        sections.append(_section(table, compared, against))
        if parsing := parser_table(own):
            sections += [_PARSING, parsing]
        both = zip(table.lines, compared, strict=True)
        summary += [_plain(table, line, one) for line, one in both]
        if draw:
            for path in _draw(table, out):
                sections.append(f"![{path.stem}]({path.name})")
    sections += _heads_section(runs, folder.parent / "negation")
    text = "\n\n".join([_HEAD, *sections, _not_run(runs), _how(runs)])
    with atomic_file(out / "summary.json") as handle:
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in summary)
        handle.write(f"[\n{rows}\n]\n")
    with atomic_file(out / "tables.md") as handle:
        handle.write(text + "\n")
    return out / "tables.md"


_HEAD = """# Tables of all runs

Generated from the run files by `python -m experiments report`; not edited by hand.
A number is the mean over seeds, ± the standard deviation over seeds. *Leak* is the share of the
excluded documents that are returned at the depth of relevant + excluded: less is better. *Parse
accuracy* is the share of queries whose structure (operands and operators) was parsed correctly.
*Operator labels* tell BoolAttn's gate which operators a query has. They come from the words of the
query (lexicon), from a trained classifier (learned), or from the data set (oracle): a user's query
does not come with oracle labels."""


_PARSING = """Systems with a query parser. *Names split*: real names that contain a cue word
and were parsed as several operands. *Parse accuracy* and *operand word F1* here are on queries that
a language model wrote without having seen our wordings: half about taxa, half about unseen
domains."""


def _key(table: Table) -> tuple[str, str]:
    return table.dataset.name, table.encoder.name if table.encoder else NO_ENCODER


def _section(table: Table, compared: Sequence[Compared], against: Sequence[str]) -> str:
    encoder = f", {table.encoder.label}" if table.encoder else ""
    counts = ", ".join(
        f"{len(table.queries[split]):,} queries of {table.split_label(split)}"
        for split in table.splits
    )
    n_documents = max(
        row.n_documents for ln in table.lines for r in ln.rows.values() for _, row in r
    )
    parts = [
        f"## {table.dataset.label}{encoder}",
        f"{n_documents:,} documents; {counts}.",
        overview_table(table.lines, table.splits, table.dataset),
    ]
    if tests := _tests(table, compared):
        what = "plain towers" if against == BASELINE else ", ".join(against)
        parts += [f"Compared with {what}: difference, 95% interval over queries, p.", tests]
    return "\n\n".join(parts)


def _heads_section(runs: Sequence[Run], negation: Path) -> list[str]:
    parts = []
    if any("heads" in run.details for run in runs):
        parts += ["## Cue, scope and gate", _PRETRAINING, pretraining_table(runs)]
    if table := negation_table(negation):
        parts += ["## Cue and scope of negation", _NEGATION, table]
    return parts


_PRETRAINING = """On generated sentences, after pretraining and before retrieval training. Scope is
over all layers and attention heads, with oracle operator labels."""

_NEGATION = """BoolAttn's heads for NOT, trained on the training part of a corpus and measured on
its test part, word by word, all negations of a sentence together. *Scope* is over sentences that
have a negation; *from text alone* is over all sentences, where the heads found a cue. *Cue given*
is NegBERT's task (Khandelwal and Sawant, LREC 2020): the true cue is marked in the input, and each
negation is a sentence of its own. Its published figures are for BERT-base, on SFU for its own
random split; on SFU our files do not separate the negations of a sentence."""


def _tests(table: Table, compared: Sequence[Compared]) -> str:
    rows = []
    for line, by_split in zip(table.lines, compared, strict=True):
        for split, by_metric in by_split.items():
            cells = [_difference(by_metric.get(metric)) for metric in TESTED]
            rows.append([line.label, line.gate, table.split_label(split), *cells])
    heads = ["system", "operator labels", "queries", "R-precision", "leak", "Recall@100"]
    return markdown(heads, rows) if rows else ""


def _difference(found: Comparison | None) -> str:
    if found is None:
        return "–"
    sign = "+" if found.difference >= 0 else ""
    p = "< .001" if found.p_value < 0.001 else short(found.p_value)
    return f"{sign}{short(found.difference)} [{short(found.low)}, {short(found.high)}] p {p}"


def _plain(table: Table, line: Line, compared: Compared) -> dict[str, Any]:
    splits: dict[str, Any] = {}
    for split, rows in line.rows.items():
        metrics = sorted({name for _, row in rows for name in row.values})
        splits[split] = {
            "seeds": [seed for seed, _ in rows],
            "n_queries": len(table.queries[split]),
            "means": {
                name: [round(value, 5) for value in seed_means(line, split, name)]
                for name in metrics
            },
        }
    against = {
        split: {metric: _round_all(asdict(value)) for metric, value in values.items()}
        for split, values in compared.items()
    }
    return {
        "dataset": table.dataset.name,
        "encoder": NO_ENCODER if line.system.kind == "bm25" else _key(table)[1],
        "system": line.system.name,
        "label": line.label,
        "query_mode": line.query_mode.name,
        "gate": line.gate,
        "splits": splits,
        "against": against,
    }


def _round_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}


def _draw(table: Table, out: Path) -> list[Path]:
    """Draw Recall@100 by template for each split, over the seeds that all drawn lines have."""
    drawn = [line for names in DRAWN if (line := find_line(table, *names))]
    dataset, encoder = _key(table)
    paths = []
    for split in table.splits if len(drawn) > 1 else ():
        own = [line for line in drawn if line.seeds(split)]
        seeds = sorted(set.intersection(*(line.seeds(split) for line in own))) if own else []
        if len(own) < 2 or not seeds:
            continue
        # The title names the encoder: a figure is read without the name of its file.
        mean = f", mean over {len(seeds)} seeds" if len(seeds) > 1 else ""
        about = f"{dataset}, {encoder}{mean}"
        found = [replace(table.averaged(line, split, seeds), dataset=about) for line in own]
        path = out / f"templates-{dataset}-{encoder}-{split}.png"
        figures.save(figures.by_template(found), path)
        paths.append(path)
    return paths


def _not_run(runs: Sequence[Run]) -> str:
    known = registry()
    there = {replace(run.key, system=known.present_name(run.key.system)) for run in runs}
    missing: dict[tuple[str, str, str], list[int]] = {}
    for grid in grids():
        for spec in RunRequest(**asdict(grid)).specs(known):
            if (key := spec.key) not in there:
                missing.setdefault((key.dataset, key.encoder, key.system), []).append(key.seed)
    if not missing:
        return "## Not run\n\nNothing: every expected run is here."
    rows = [[*names, ", ".join(map(str, seeds))] for names, seeds in missing.items()]
    return "## Not run\n\n" + markdown(["data set", "encoder", "system", "seeds"], rows)


def _how(runs: Sequence[Run]) -> str:
    commands: dict[str, list[Run]] = {}
    for run in runs:
        commands.setdefault(str(run.details.get("command") or "unknown"), []).append(run)
    parts = ["## Commands"]
    for command, own in commands.items():
        machine = own[0].details.get("machine", {}).get("device", "unknown")
        versions = own[0].details.get("versions", {})
        seconds = [sum(run.details.get("seconds", {}).values()) for run in own]
        words = (
            f"{len(own)} runs on {machine}, torch {versions.get('torch', '?')}, transformers "
            f"{versions.get('transformers', '?')}; {np.mean(seconds):.0f} s a run, several at once."
        )
        parts.append(f"```sh\n{command}\n```\n\n{words}")
    return "\n\n".join(parts)
