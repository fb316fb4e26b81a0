"""The negation experiment: its trainings, and F1 beside published figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from boolattn.evaluation.tables import markdown, short
from boolattn.reproduction.execution import Stopwatch, about
from boolattn.reproduction.lines import mean_and_deviation
from boolattn.reproduction.systems import registry
from boolattn.training.run_folder import write_json
from experiments.negation.learner import NegationSettings, train_and_measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from boolattn.reproduction.requests import Paths

#: NegBERT (Khandelwal and Sawant, LREC 2020): token F1; scope with the true cue given, each
#: negation separately, on SFU with its own split. ``None``: no published figure found.
PUBLISHED: Mapping[str, Mapping[str, float | None]] = {
    "cd-sco": {"cue": 0.9294, "scope": 0.9236},
    "sfu": {"cue": None, "scope": 0.9095},
}
_METRICS = ("cue_f1", "scope_f1", "scope_f1_plain")
#: Settings of each kind of training, and its name in tables.
KINDS: Mapping[str, Mapping[str, bool]] = {
    "frozen": {"is_frozen": True},
    "tuned": {"is_frozen": False},
    "given": {"is_frozen": False, "is_given": True},
}
_LABELS = {"frozen": ", frozen", "tuned": "", "given": ", cue given"}


@dataclass(frozen=True, kw_only=True)
class NegationRequest:
    """Requested trainings: every corpus and encoder with every seed and kind."""

    corpora: Sequence[str] = tuple(PUBLISHED)
    data: Path | None = None  # Folder of their files; default: the catalogue's
    encoders: Sequence[str] = ("minilm",)
    sources: Mapping[str, str] = field(default_factory=dict)  # Folders of encoders, by name
    seeds: Sequence[int] = (0,)
    max_steps: int = 0  # Stop after so many steps, for a trial; 0: after the epochs


def run_negation(request: NegationRequest, paths: Paths, progress: Callable[[str], None]) -> str:
    """Do the trainings that have no result file; return a table in Markdown."""
    folder = paths.runs.parent / "negation"
    encoders = [registry().encoder(name) for name in request.encoders]
    for seed, encoder, corpus, kind in product(request.seeds, encoders, request.corpora, KINDS):
        path = folder / corpus / encoder.name / f"{kind}-{seed}.json"
        if path.is_file():
            continue
        clock = Stopwatch()
        settings = NegationSettings(**KINDS[kind], seed=seed, max_steps=request.max_steps)
        source = request.sources.get(encoder.name, encoder.source)
        results = train_and_measure(corpus, request.data, source, settings)
        clock.lap("train")
        details = {"encoder": encoder.name, "seconds": clock.laps, **about(paths)}
        write_json(path, results | details)
        words = ", ".join(f"{name} {value:.3f}" for name, value in results["test"].items())
        progress(f"{path.relative_to(folder)}: {words}")
    return negation_table(folder)


def negation_table(folder: Path) -> str:
    """Lay out F1 of cue and scope beside NegBERT's published figures."""
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for path in sorted(folder.glob("*/*/*.json")):
        one = json.loads(path.read_text("utf-8"))
        key = (one["corpus"], one["encoder"], path.stem.rpartition("-")[0])
        found.setdefault(key, []).append(one["test"])
    rows = []
    for corpus, published in PUBLISHED.items():
        own = {key: tests for key, tests in found.items() if key[0] == corpus}
        for (_, name, kind), tests in own.items():
            encoder = registry().encoders.get(name)
            label = (encoder.label if encoder else name) + _LABELS[kind]
            # A given cue is not predicted.
            shown = [m for m in _METRICS if kind != "given" or m == "scope_f1"]
            values = ([test[m] for test in tests if m in shown] for m in _METRICS)
            cells = [mean_and_deviation(own_values) for own_values in values]
            rows.append([corpus, f"BoolAttn, {label}", str(len(tests)), *cells])
        if own:
            cells = [
                "not found" if value is None else f"{short(value, 4)} (published)"
                for value in published.values()
            ]
            rows.append([corpus, "NegBERT", "", *cells, "–"])
    heads = ["corpus", "heads", "seeds", "cue F1", "scope F1", "scope F1, from text alone"]
    return markdown(heads, rows) if rows else ""
