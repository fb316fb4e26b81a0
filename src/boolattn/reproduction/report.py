"""The page of results: from the files of finished runs to tables, tests and figures.

May import: boolattn.reproduction, boolattn.evaluation, boolattn.files, boolattn.errors.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from boolattn.evaluation import figures
from boolattn.files import atomic_file
from boolattn.reproduction.comparing import TESTED, Table, load_tables
from boolattn.reproduction.plan import NO_ENCODER, SEEDS, Wanted, combinations
from boolattn.reproduction.runs import Run, RunKey
from boolattn.reproduction.systems import known
from boolattn.reproduction.tables import (
    heads_table,
    markdown,
    negation_table,
    overview_table,
    reading_table,
    short,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from boolattn.evaluation.significance import Comparison
    from boolattn.reproduction.tables import Line

#: Systems of the figure, and how they are asked.
DRAWN = (("plain", "own"), ("corrected-held", "own"), ("composed", "read"))


def report(folder: Path, out: Path, *, draw: bool = True) -> Path:
    """Write ``tables.md``, ``summary.json`` and figures.

    Args:
        folder: Of finished runs.
        out: Where to.
        draw: Whether to draw figures, which need matplotlib.
    """
    tables, runs = load_tables(folder)
    sections, summary = [], []
    for table in tables:
        own = [run for run in runs if (run.key.dataset, run.key.encoder) == table.key]
        sections.append(_section(table))
        if reading := reading_table(own):
            sections += [_READING, reading]
        both = zip(table.lines, table.compared, strict=True)
        summary += [_plain(table, line, compared) for line, compared in both]
        if draw:
            for path in [*_draw(table, out), *_draw_reliability(table, own, out)]:
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

Made from the files of the runs by `python -m boolattn.reproduction report`; not written by hand.
A number is the mean over seeds, ± the standard deviation over seeds. *Leak* is the share of the
excluded documents that are returned at the depth of gold + excluded: less is better. *Structure* is
the share of queries whose operands and operators were read right. A system's *gate* says who opens
BoolAttn's experts: the words of the query (lexicon), a trained classifier (learned), or the true
operators, told from outside (label), which a user's query does not come with."""


_READING = """Systems that read. *Calibration error*: mean distance between the probability that a
document belongs to an operand and the share that does, in ten bins, over all pairs (most of them
improbable) and with each bin counted once. *Names taken apart*: real names with a cue word in them
that were read as several operands. *Fresh queries*: made by a language model that had seen none of
our wordings, half about taxa."""


def _section(table: Table) -> str:
    suite, encoder = known().suites.get(table.dataset), known().encoders.get(table.encoder)
    label = suite.label if suite else table.dataset
    title = f"## {label}" + (f", {encoder.label}" if encoder else "")
    counts = ", ".join(
        f"{len(table.queries[split]):,} queries of {table.named(split)}" for split in table.splits
    )
    n_documents = max(
        row.n_documents for ln in table.lines for r in ln.rows.values() for _, row in r
    )
    parts = [
        title,
        f"{n_documents:,} documents; {counts}.",
        overview_table(table.lines, table.splits, suite),
    ]
    if tests := _tests(table):
        parts += ["Against plain towers: difference, 95% interval over queries, p.", tests]
    return "\n\n".join(parts)


def _heads_section(runs: Sequence[Run], negation: Path) -> list[str]:
    """Say what the heads can do, on our sentences and on people's annotations."""
    parts = []
    if any("heads" in run.details for run in runs):
        words = "On generated sentences, before the towers are trained; scopes over all layers and"
        parts += ["## Cue, scope and gate", f"{words} heads, gate told.", heads_table(runs)]
    if table := negation_table(negation):
        parts += ["## Cue and scope of negation", _NEGATION, table]
    return parts


_NEGATION = """BoolAttn's heads for NOT, trained on a corpus's training part and measured on its
test part, word by word, all negations of a sentence together. *Scope* is over sentences known to
hold a negation; *from text alone* over all, where the heads found a cue. NegBERT's published
figures (Khandelwal and Sawant, LREC 2020) are for BERT-base with the true cue marked in the input,
each negation by itself, and on SFU for its own split: for orientation, not the same task."""


def _tests(table: Table) -> str:
    """Lay out each line's differences from the baseline."""
    rows = []
    for line, compared in zip(table.lines, table.compared, strict=True):
        for split, by_metric in compared.items():
            cells = [_difference(by_metric.get(metric)) for metric in TESTED]
            rows.append([line.label, line.gate, table.named(split), *cells])
    heads = ["system", "gate", "queries", "R-precision", "leak", "Recall@100"]
    return markdown(heads, rows) if rows else ""


def _difference(found: Comparison | None) -> str:
    if found is None:
        return "–"
    sign = "+" if found.difference >= 0 else ""
    p = "< .001" if found.p_value < 0.001 else short(found.p_value)
    return f"{sign}{short(found.difference)} [{short(found.low)}, {short(found.high)}] p {p}"


def _plain(
    table: Table, line: Line, compared: Mapping[str, Mapping[str, Comparison]]
) -> dict[str, Any]:
    """Return one line of the summary."""
    splits: dict[str, Any] = {}
    for split, rows in line.rows.items():
        metrics = sorted({name for _, row in rows for name in row.values})
        splits[split] = {
            "seeds": [seed for seed, _ in rows],
            "n_queries": len(table.queries[split]),
            "means": {name: _rounded(line.means(split, name)) for name in metrics},
        }
    against = {
        split: {metric: _round_all(asdict(value)) for metric, value in values.items()}
        for split, values in compared.items()
    }
    return {
        "dataset": table.dataset,
        "encoder": NO_ENCODER if line.system == "bm25" else table.encoder,
        "system": line.system,
        "label": line.label,
        "ask": line.ask,
        "gate": line.gate,
        "splits": splits,
        "against_plain": against,
    }


def _rounded(means: Sequence[float]) -> list[float]:
    return [round(value, 5) for value in means]


def _round_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in values.items()}


def _draw(table: Table, out: Path) -> list[Path]:
    """Draw Recall@100 by template for each split, over the seeds that all drawn lines have."""
    drawn = [line for names in DRAWN if (line := table.line(*names))]
    paths = []
    for split in table.splits if len(drawn) > 1 else ():
        own = [line for line in drawn if line.seeds(split)]
        seeds = sorted(set.intersection(*(line.seeds(split) for line in own))) if own else []
        if len(own) < 2 or not seeds:
            continue
        # Several encoders are drawn, and a picture is looked at without its file's name.
        mean = f", mean over {len(seeds)} seeds" if len(seeds) > 1 else ""
        about = f"{table.dataset}, {table.encoder}{mean}"
        found = [replace(table.averaged(line, split, seeds), dataset=about) for line in own]
        path = out / f"templates-{table.dataset}-{table.encoder}-{split}.png"
        figures.save(figures.by_template(found), path)
        paths.append(path)
    return paths


def _draw_reliability(table: Table, runs: Sequence[Run], out: Path) -> list[Path]:
    """Draw the curves of the system that the other figures show, or else of the first that has."""
    found = [run for run in runs if run.details.get("reliability")]
    if not found:
        return []
    names = [run.key.system for run in found]
    system = next((name for name, _ in DRAWN if name in names), names[0])
    chosen = sorted((run for run in found if run.key.system == system), key=lambda run: run.key)
    curves = {f"seed {run.key.seed}": run.details["reliability"] for run in chosen}
    label = known().systems[system].label if system in known().systems else system
    title = f"Reliability of operands' probabilities: {table.dataset}, {table.encoder}, {label}"
    path = out / f"reliability-{table.dataset}-{table.encoder}.png"
    figures.save(figures.reliability_curves(title, curves), path)
    return [path]


def _not_run(runs: Sequence[Run]) -> str:
    """List what belongs on the page and is not there."""
    there = {run.key for run in runs}
    missing: dict[tuple[str, str, str], list[int]] = {}
    for grid in known().grids:
        wanted = Wanted(
            systems=grid.systems, datasets=grid.datasets, encoders=grid.encoders, seeds=SEEDS
        )
        for system, suite, encoder, seed in combinations(wanted):
            label = encoder.name if system.needs_encoder else NO_ENCODER
            if RunKey(suite.name, label, system.name, seed) not in there:
                missing.setdefault((suite.name, label, system.name), []).append(seed)
    if not missing:
        return "## Not run\n\nNothing: every run of the plan is here."
    rows = [[*names, ", ".join(map(str, seeds))] for names, seeds in missing.items()]
    return "## Not run\n\n" + markdown(["data set", "encoder", "system", "seeds"], rows)


def _how(runs: Sequence[Run]) -> str:
    """Say with what, by which commands, and how long."""
    commands: dict[str, list[Run]] = {}
    for run in runs:
        commands.setdefault(str(run.details.get("command") or "unknown"), []).append(run)
    parts = ["## How"]
    for command, own in commands.items():
        machine = own[0].details.get("machine", {}).get("device", "unknown")
        versions = own[0].details.get("versions", {})
        seconds = [sum(run.details.get("seconds", {}).values()) for run in own]
        words = (
            f"{len(own)} runs on {machine}, torch {versions.get('torch', '?')}, transformers "
            f"{versions.get('transformers', '?')}; {np.mean(seconds):.0f} s a run, side by side."
        )
        parts.append(f"```sh\n{command}\n```\n\n{words}")
    return "\n\n".join(parts)
