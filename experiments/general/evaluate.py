"""A torch model on whole corpora, several seeds.

``parse`` writes the parsed queries once, where the query parser is; ``rank`` needs torch and
sentence-transformers only, ranks by one vector and, with parsed queries, composed, and writes the
results. A number after the folder shuffles BoolAttn's cues::

    python -m experiments.general.evaluate parse --on taxa --data FOLDER --parses FILE
    python -m experiments.general.evaluate rank --on taxa --data FOLDER --parses FILE \
        --model bare=shipped --model plug-in=FOLDER --model shuffled=FOLDER@0 --out OUT
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.data.catalog import DataOptions, open_dataset
from boolattn.encoders.models import torch_source
from boolattn.evaluation.benchmark import prepare
from boolattn.evaluation.metrics import measure, needed_depth
from boolattn.evaluation.ranking import Ranking
from boolattn.evaluation.results import results_of
from boolattn.evaluation.tables import markdown, short
from boolattn.files import atomic_file
from boolattn.query.plan import plan_queries
from boolattn.query.reading import read_trees
from boolattn.query.syntax import parse, unparse
from boolattn.query.tree import Atom
from boolattn.scoring.exact import rank_plans

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.encoders.base import Encoder
    from boolattn.evaluation.benchmark import Benchmark
    from boolattn.query.plan import Plan
    from boolattn.query.tree import QueryTree

METRICS = ("r_precision", "recall@100", "leak")
_BATCH = 256


def write_parses(benchmark: Benchmark, path: Path) -> None:
    """Write the tree of every query that the shipped parser composes, in explicit syntax."""
    from boolattn.query.parser import load_parser

    parser = load_parser()
    texts = {text for judged in benchmark.splits.values() for text in judged.texts}
    found = {}
    for text in sorted(texts):
        [output] = parser.parse([text])
        parsed = output.parsed
        if parsed and not parsed.is_plain and output.confidence >= parser.threshold:
            found[text] = unparse(parsed.tree(text))
    with atomic_file(path) as file:
        json.dump(found, file, ensure_ascii=False, indent=0)


def load(source: str) -> TorchEncoder:
    """Load a model by name or folder; ``@`` and a seed after it shuffle BoolAttn's cues."""
    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.encoder.towers import query_encoder
    from boolattn.plugin import plugin_of

    folder, _, seed = source.partition("@")
    encoder = TorchEncoder.load(torch_source(folder))
    if seed:
        plugin = plugin_of(query_encoder(encoder.towers))
        plugin.config = replace(plugin.config, cue_seed=int(seed))
    return encoder


def rank(benchmark: Benchmark, models: list[str], parses: Path | None, out: Path) -> str:
    """Rank every split by every model, write the results, and return a table of means."""
    ways: dict[str, dict[str, QueryTree]] = {"one vector": {}}
    if parses:
        composed = json.loads(parses.read_text("utf-8"))
        ways["composed"] = {text: parse(tree) for text, tree in composed.items()}
    rows = []
    for name, _, source in (model.partition("=") for model in models):
        encoder = load(source)
        documents: Any = encoder.encode_documents(benchmark.texts)
        if encoder.towers.device.type != "cpu":
            import torch

            documents = torch.from_numpy(documents).to(encoder.towers.device)
        for split, judged in benchmark.splits.items():
            depth = needed_depth(judged, METRICS)
            for way, used in ways.items():
                plans = _plans(encoder, judged.texts, used)
                values = measure(Ranking(*rank_plans(plans, documents, depth)), judged, METRICS)
                details = {"way": way, "is_composed": way == "composed"}
                about: dict[str, Any] = {"dataset": benchmark.name, "split": split}
                found = results_of(judged, values, system=name, details=details, **about)
                found.save(out / f"{split}.{name}.{way.replace(' ', '-')}.json")
                rows.append([name, split, way, *(short(found.overall.means[m]) for m in METRICS)])
                print(*rows[-1], flush=True)
    return markdown(["model", "split", "way", *METRICS], rows)


def _plans(encoder: Encoder, texts: Sequence[str], trees: Mapping[str, QueryTree]) -> list[Plan]:
    plans: list[Plan] = []
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        readings = read_trees([trees.get(text, Atom(text)) for text in batch], batch)
        plans += plan_queries(readings, encoder)
    return plans


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["parse", "rank"])
    parser.add_argument("--on", required=True, help="taxa, quest-intro or domains")
    parser.add_argument("--only", action="append", default=[], help="a domain of domains")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data set")
    parser.add_argument("--split", action="append", default=[])
    parser.add_argument("--parses", type=Path, help="file of parsed queries")
    parser.add_argument("--model", action="append", default=[], help="NAME=FOLDER[@SEED]")
    parser.add_argument("--out", type=Path, help="folder of the results")
    options = parser.parse_args()
    data = open_dataset(
        options.on, DataOptions(folder=options.data, size="full", only=tuple(options.only))
    )
    benchmark = prepare(data, options.split)
    if options.step == "parse":
        write_parses(benchmark, options.parses)
    else:
        print(rank(benchmark, options.model, options.parses, options.out))


if __name__ == "__main__":
    main()
