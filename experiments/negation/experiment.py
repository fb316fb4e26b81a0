"""The negation experiment: its jobs, and F1 beside published figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.evaluation.tables import markdown, short
from experiments.negation.settings import NegationSettings
from experiments.pool import Task
from experiments.registry import registry
from experiments.tables import mean_and_deviation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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

    def tasks(self, results: Path) -> Iterator[Task]:
        """List the trainings that have no result file."""
        for seed in self.seeds:
            for encoder in map(registry().encoder, self.encoders):
                for corpus in self.corpora:
                    for kind, own in KINDS.items():
                        job = NegationJob(
                            corpus=corpus,
                            data=self.data,
                            encoder=encoder.name,
                            source=self.sources.get(encoder.name, encoder.source),
                            kind=kind,
                            settings=NegationSettings(**own, seed=seed, max_steps=self.max_steps),
                        )
                        if not (results / job.path).is_file():
                            like = f"negation {corpus} {encoder.name} {kind}"
                            yield Task(name=f"negation {job.path}", kind=like, job=job)


@dataclass(frozen=True, kw_only=True)
class NegationJob:
    """Train heads on annotated negation, and measure them."""

    corpus: str
    data: Path | None
    encoder: str
    source: str
    kind: str  # One of KINDS
    settings: NegationSettings

    @property
    def path(self) -> Path:
        """Result file, below the folder of results."""
        return Path(self.corpus, self.encoder, f"{self.kind}-{self.settings.seed}.json")

    def run(self, paths: Paths) -> str:
        """Train, measure, write the result file."""
        from boolattn.reproduction.execution import Stopwatch, about
        from boolattn.training.run_folder import write_json
        from experiments.negation.learner import train_and_measure

        clock = Stopwatch()
        found = train_and_measure(self.corpus, self.data, self.source, self.settings)
        clock.lap("train")
        details = {"encoder": self.encoder, "seconds": clock.laps, **about(paths)}
        write_json(results_folder(paths) / self.path, found | details)
        return ", ".join(f"{name} {value:.3f}" for name, value in found["test"].items())


def results_folder(paths: Paths) -> Path:
    """Return the folder of result files."""
    return paths.runs.parent / "negation"


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
