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


@dataclass(frozen=True, kw_only=True)
class NegationRequest:
    """Requested trainings: every corpus and encoder with every seed, frozen and fine-tuned."""

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
                    for is_frozen in (True, False):
                        job = NegationJob(
                            corpus=corpus,
                            data=self.data,
                            encoder=encoder.name,
                            source=self.sources.get(encoder.name, encoder.source),
                            settings=NegationSettings(
                                is_frozen=is_frozen, seed=seed, max_steps=self.max_steps
                            ),
                        )
                        if not (results / job.path).is_file():
                            kind = f"negation {corpus} {encoder.name} {is_frozen}"
                            yield Task(name=f"negation {job.path}", kind=kind, job=job)


@dataclass(frozen=True, kw_only=True)
class NegationJob:
    """Train heads on annotated negation, and measure them."""

    corpus: str
    data: Path | None
    encoder: str
    source: str
    settings: NegationSettings

    @property
    def path(self) -> Path:
        """Result file, below the folder of results."""
        kind = "frozen" if self.settings.is_frozen else "tuned"
        return Path(self.corpus, self.encoder, f"{kind}-{self.settings.seed}.json")

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
    found: dict[tuple[str, str, bool], list[dict[str, float]]] = {}
    for path in sorted(folder.glob("*/*/*.json")):
        one = json.loads(path.read_text("utf-8"))
        key = (one["corpus"], one["encoder"], one["settings"]["is_frozen"])
        found.setdefault(key, []).append(one["test"])
    rows = []
    for corpus, published in PUBLISHED.items():
        own = {key: tests for key, tests in found.items() if key[0] == corpus}
        for (_, name, is_frozen), tests in own.items():
            encoder = registry().encoders.get(name)
            label = (encoder.label if encoder else name) + (", frozen" if is_frozen else "")
            cells = [mean_and_deviation([test[m] for test in tests]) for m in _METRICS]
            rows.append([corpus, f"BoolAttn, {label}", str(len(tests)), *cells])
        if own:
            cells = [
                "not found" if value is None else f"{short(value, 4)} (published)"
                for value in published.values()
            ]
            rows.append([corpus, "NegBERT", "", *cells, "–"])
    heads = ["corpus", "heads", "seeds", "cue F1", "scope F1", "scope F1, from text alone"]
    return markdown(heads, rows) if rows else ""
