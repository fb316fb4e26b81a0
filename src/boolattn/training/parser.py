"""Training of the query parser.

    python -m experiments.parser_queries --out queries.jsonl.xz
    python -m boolattn.training.parser --base FOLDER --data queries.jsonl.xz --out FOLDER

Trains the whole encoder with the head; a trained parser as ``--base`` is trained further. Sources
of the data file whose name begins with "held_out" are not trained on. The accuracy on them is
printed at the end and stored with the model; it is measured with the rounded weights stored.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch.nn.utils.rnn import pad_sequence

from boolattn.data.labelled_queries import read_labelled_queries
from boolattn.encoder.parser import (
    SETTINGS,
    TOKENIZER,
    ParserConfig,
    ParserLabels,
    ParserModel,
    make_parser_labels,
    parser_loss,
)
from boolattn.errors import BoolattnError, ConfigError
from boolattn.evaluation.parsing import has_same_operands, structure, word_f1
from boolattn.evaluation.tables import markdown
from boolattn.query.parsed_query import ParserLogits, decode, mark_operators
from boolattn.query.runtime import open_tokenizer
from boolattn.query.tree import Atom
from boolattn.training.batches.tokens import pad
from boolattn.training.loop import Loop, fast_products
from boolattn.training.settings import LoopSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from torch import Tensor

    from boolattn.data.labelled_queries import LabelledQuery
    from boolattn.query.parsed_query import ParsedQuery, ParserOutput

HELD_OUT = "held_out"
_MEASURES = ("structure", "operands", "word_f1", "left_alone")
_EVALUATED_AT_ONCE = 128
#: So many batches are drawn at once and sorted by length, so that little is padded.
_SORTED_BATCHES = 32


@dataclass(frozen=True, kw_only=True)
class ParserTraining:
    """Settings of a training."""

    base: Path
    data: Path
    out: Path
    layers: tuple[int, ...] = ()
    freeze_embeddings: bool = False
    steps: int = 6000
    batch: int = 128
    learning_rate: float = 1e-4
    head_rate: float = 5e-4
    mask: float = 0.0  # Share of the tokens that are replaced by [MASK]
    seed: int = 0


class Batches:
    """Labelled queries as tokens and targets, in shuffled epochs."""

    def __init__(
        self, queries: Sequence[LabelledQuery], tokenizer: Tokenizer, n_slots: int, seed: int
    ) -> None:
        self._queries, self._n_slots, self._seed = queries, n_slots, seed
        self._labels: dict[int, ParserLabels] = {}
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, np.int64))
        encoded = tokenizer.encode_batch([mark_operators(query.text) for query in queries])
        self._ids = [np.array(encoding.ids, np.int64) for encoding in encoded]
        self._offsets = [encoding.offsets for encoding in encoded]

    def features(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return token ids and mask of some queries, each ``(batch, tokens)``."""
        return pad([torch.from_numpy(self._ids[row]) for row in rows])

    def labels(self, rows: Sequence[int]) -> ParserLabels:
        """Return the targets of some queries."""
        for row in rows:
            if row not in self._labels:
                self._labels[row] = make_parser_labels(
                    self._queries[row].parsed, self._offsets[row], self._n_slots
                )
        labels = [self._labels[row] for row in rows]
        tags = pad_sequence([label.tags for label in labels], batch_first=True).float()
        roles, gaps = (torch.stack([label[part] for label in labels]) for part in (1, 2))
        return ParserLabels(tags, roles, gaps)

    def draw(self, step: int, size: int) -> list[int]:
        """Return the queries of a step, of similar lengths; each epoch has its own order."""
        n_batches = max(1, len(self._queries) // size)
        epoch, index = divmod(step, n_batches)
        if self._order[0] != epoch:
            rng = np.random.default_rng([self._seed, epoch])
            order = rng.permutation(len(self._queries))
            lengths = np.array([len(ids) for ids in self._ids])
            for start in range(0, len(order), size * _SORTED_BATCHES):
                block = order[start : start + size * _SORTED_BATCHES]
                order[start : start + len(block)] = block[lengths[block].argsort(kind="stable")]
            batches = rng.permutation(n_batches)
            self._order = (
                epoch,
                np.concatenate([order[batch * size : (batch + 1) * size] for batch in batches]),
            )
        return [int(row) for row in self._order[1][index * size : (index + 1) * size]]

    def parse(self, model: ParserModel, device: torch.device) -> list[ParserOutput]:
        """Parse all queries."""
        outputs: list[ParserOutput] = []
        for start in range(0, len(self._queries), _EVALUATED_AT_ONCE):
            rows = range(start, min(start + _EVALUATED_AT_ONCE, len(self._queries)))
            with torch.no_grad():
                found_logits = model(*(part.to(device) for part in self.features(rows)))
            logits = ParserLogits(*(part.float().cpu().numpy() for part in found_logits))
            outputs += [
                decode(logits, self._queries[row].text, self._offsets[row], index)
                for index, row in enumerate(rows)
            ]
        return outputs


@fast_products()
def train_parser(
    settings: ParserTraining, log: Callable[[str], None] = lambda _: None
) -> dict[str, dict[str, float]]:
    """Train a parser, write its folder, and return its accuracy by held-out source."""
    torch.manual_seed(settings.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sources = read_labelled_queries(settings.data)
    config = ParserConfig(layers=settings.layers)
    tokenizer = open_tokenizer(settings.base / TOKENIZER, config.max_tokens)
    trained = (queries for name, queries in sources.items() if not name.startswith(HELD_OUT))
    train = [query for queries in trained for query in queries]
    log(f"{len(train):,} queries of {len(sources)} sources")
    batches = Batches(train, tokenizer, config.n_slots, settings.seed)
    model = _start(settings.base, config).to(device).train()
    if settings.freeze_embeddings:
        model.encoder.embeddings.word_embeddings.weight.requires_grad_(False)
    head = [weight for name, weight in model.named_parameters() if not name.startswith("encoder.")]
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in model.encoder.parameters() if weight.requires_grad]},
        {"params": head, "lr": settings.head_rate},
    ]
    special = [tokenizer.token_to_id(name) or 0 for name in ("[CLS]", "[SEP]", "[MASK]")]
    if settings.mask and not all(special):
        raise ConfigError(f"the tokenizer of {settings.base} has no [MASK]: train without --mask")

    def losses(step: int) -> Mapping[str, Tensor]:
        rows = batches.draw(step, settings.batch)
        features, labels = send_to_device(([*batches.features(rows)], batches.labels(rows)), device)
        if settings.mask:
            is_hidden = torch.rand(features[0].shape, device=device) < settings.mask
            is_hidden &= features[0] > max(special)
            features[0] = features[0].masked_fill(is_hidden, special[-1])
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(*features)
        logits = type(logits)(*(part.float() for part in logits))
        return {"loss": parser_loss(logits, labels, features[1])}

    rates = LoopSettings(
        learning_rate=settings.learning_rate, warmup_steps=min(200, settings.steps // 10)
    )
    loop = Loop(groups, rates, "parser", settings.steps, log_every=100)
    loop.run(losses, lambda step, mean: log(f"step {step}: {mean['loss']:.4f}"))
    model.eval().save(settings.out, settings.base / TOKENIZER)
    model = ParserModel.load(settings.out).to(device)
    report, pairs = {}, []
    for name, queries in sources.items():
        if name.startswith(HELD_OUT):
            outputs = Batches(queries, tokenizer, config.n_slots, 0).parse(model, device)
            report[name.removeprefix(HELD_OUT).strip(":")] = accuracy(queries, outputs)
            pairs.append([(q.parsed, output) for q, output in zip(queries, outputs, strict=True)])
    model.save(settings.out, settings.base / TOKENIZER, best_threshold(pairs), report)
    return report


def _start(base: Path, config: ParserConfig) -> ParserModel:
    """Return a parser on an encoder of the folder, or the trained parser that the folder has."""
    if not (base / SETTINGS).is_file():
        return ParserModel.from_base(base, config)
    if config.layers:
        raise ConfigError(f"{base} is a trained parser, so its layers cannot be chosen")
    return ParserModel.load(base)


def best_threshold(sources: Iterable[Sequence[tuple[ParsedQuery, ParserOutput]]]) -> float:
    """Return the least confidence of a parse with which most queries are read rightly.

    A query below it is one operand, which is right for plain queries. All sources count the same;
    without any parse it is one half.
    """
    gains: dict[float, float] = {}
    for pairs in sources:
        for want, output in pairs:
            if output.parsed is not None and not output.parsed.is_plain:
                gain = (output.parsed.structure == want.structure) - want.is_plain
                gains[output.confidence] = gains.get(output.confidence, 0.0) + gain / len(pairs)
    best, total, most = 0.5, 0.0, 0.0
    for confidence in sorted(gains, reverse=True):
        total += gains[confidence]
        if total > most + 1e-9:
            best, most = confidence, total
    return int(1000 * best) / 1000


def accuracy(queries: Sequence[LabelledQuery], outputs: Sequence[ParserOutput]) -> dict[str, float]:
    """Compare parses with labels.

    Returns:
        Shares of queries: ``structure``, the right tree; ``operands``, the right words too, for
        queries with operators, and ``word_f1``, the mean F1 of their operands' words;
        ``left_alone``, plain queries that are parsed as one operand.
    """
    rows: dict[str, list[float]] = {name: [] for name in _MEASURES}
    for query, output in zip(queries, outputs, strict=True):
        want = query.parsed.tree(query.text)
        # What cannot be parsed is one operand.
        parsed = output.parsed.tree(query.text) if output.parsed else Atom(query.text)
        rows["structure"].append(structure(parsed) == structure(want))
        if query.parsed.is_plain:
            rows["left_alone"].append(isinstance(parsed, Atom))
        else:
            rows["operands"].append(has_same_operands(want, parsed))
            rows["word_f1"].append(word_f1(want, parsed))
    means = {name: float(np.mean(values)) for name, values in rows.items() if values}
    return {"n": float(len(queries)), **means}


def report_table(report: Mapping[str, Mapping[str, float]]) -> str:
    """Lay out an accuracy report."""
    rows = []
    for name, shares in report.items():
        cells = (f"{shares[m]:.3f}" if m in shares else "–" for m in _MEASURES)
        rows.append([name, f"{shares['n']:.0f}", *cells])
    return markdown(["held-out queries", "n", *_MEASURES], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Train a parser and print the table of its accuracy."""
    parser = argparse.ArgumentParser(prog="boolattn.training.parser", description=__doc__)
    for name in ("base", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--layers", default="", help="numbers of the layers used: 0,2,4; else all")
    parser.add_argument("--freeze-embeddings", action="store_true")
    for name, kind in (("steps", int), ("batch", int), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind, default=getattr(ParserTraining, name))
    for name in ("learning-rate", "head-rate", "mask"):
        default = getattr(ParserTraining, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=float, default=default)
    options: dict[str, Any] = vars(parser.parse_args(argv))
    options["layers"] = tuple(int(layer) for layer in options["layers"].split(",") if layer)
    try:
        report = train_parser(ParserTraining(**options), lambda line: _write(sys.stderr, line))
    except BoolattnError as error:
        _write(sys.stderr, f"boolattn: {error}")
        return 2
    _write(sys.stdout, report_table(report))
    return 0


def _write(stream: Any, line: str) -> None:  # noqa: ANN401 - a text stream
    stream.write(line + "\n")
    stream.flush()


if __name__ == "__main__":
    raise SystemExit(main())
