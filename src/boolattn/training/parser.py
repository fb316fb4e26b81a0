"""Training of the query parser.

    python -m experiments.parser_queries --out queries.jsonl.xz
    python -m boolattn.training.parser --base FOLDER --data queries.jsonl.xz --out FOLDER

Trains the whole encoder with the head; a trained parser as ``--base`` is trained further. Sources
of the data file whose name begins with "held_out" are not trained on. The accuracy on them is
printed at the end and stored with the model; it is that of rounded weights, as an export has them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor
from transformers import HfArgumentParser

from boolattn.data.sentences import LabelledQuery, read_labelled_queries
from boolattn.encoder.parser import (
    MAX_TOKENS,
    SETTINGS,
    TOKENIZER,
    ParserLabels,
    ParserModel,
    make_parser_labels,
    parser_loss,
)
from boolattn.errors import BoolattnError, ConfigError
from boolattn.evaluation.parsing import accuracy
from boolattn.query.parsed_query import ParsedQuery, ParserOutput, decode, mark_operators
from boolattn.query.parser import open_tokenizer
from boolattn.query.tree import Atom
from boolattn.training.batches.tokens import pad
from boolattn.training.loop import Loop, fast_products
from boolattn.training.settings import LoopSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)

HELD_OUT = "held_out"
#: So many batches are drawn at once and sorted by length, so that little is padded.
_SORTED_BATCHES = 32


@dataclass(frozen=True, kw_only=True)
class ParserTraining:
    """Settings of a training."""

    base: Path
    data: Path
    out: Path
    layers: str = ""  # Numbers of the layers used: "0,2,4"; else all
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
        self, queries: Sequence[LabelledQuery], tokenizer: Tokenizer, seed: int = 0
    ) -> None:
        self._queries, self._seed = queries, seed
        self._epoch: tuple[int, list[list[int]]] = (-1, [])  # its number and its batches
        encoded = tokenizer.encode_batch([mark_operators(query.text) for query in queries])
        self._ids = [torch.tensor(encoding.ids) for encoding in encoded]
        self._offsets = [encoding.offsets for encoding in encoded]
        self._label = cache(lambda row: make_parser_labels(queries[row].parsed, self._offsets[row]))

    def features(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return token ids and mask of some queries, each ``(batch, tokens)``."""
        return pad([self._ids[row] for row in rows])

    def labels(self, rows: Sequence[int]) -> ParserLabels:
        """Return the targets of some queries."""
        tags, roles, gaps = zip(*map(self._label, rows), strict=True)
        return ParserLabels(pad(tags)[0].float(), torch.stack(roles), torch.stack(gaps))

    def draw(self, step: int, size: int) -> list[int]:
        """Return the queries of a step, of similar lengths; each epoch has its own order."""
        n_batches = max(1, len(self._queries) // size)
        epoch, index = divmod(step, n_batches)
        if self._epoch[0] != epoch:
            rng = np.random.default_rng([self._seed, epoch])
            order = rng.permutation(len(self._queries))
            lengths = np.array([len(ids) for ids in self._ids])
            for start in range(0, len(order), size * _SORTED_BATCHES):
                block = order[start : start + size * _SORTED_BATCHES]
                block[:] = block[lengths[block].argsort(kind="stable")]
            starts = size * rng.permutation(n_batches)
            self._epoch = epoch, [order[start : start + size].tolist() for start in starts]
        return self._epoch[1][index]

    @torch.no_grad()
    def parse(self, model: ParserModel, device: torch.device) -> list[ParserOutput]:
        """Parse all queries."""
        outputs: list[ParserOutput] = []
        for rows in torch.arange(len(self._queries)).split(128):
            logits = model(*(part.to(device) for part in self.features(rows.tolist())))
            arrays = type(logits)(*(part.float().cpu().numpy() for part in logits))
            outputs += [
                decode(arrays, self._queries[row].text, self._offsets[row], index)
                for index, row in enumerate(rows.tolist())
            ]
        return outputs


@fast_products()
def train_parser(settings: ParserTraining) -> dict[str, dict[str, float]]:
    """Train a parser, write its folder, and return its accuracy by held-out source."""
    torch.manual_seed(settings.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sources = read_labelled_queries(settings.data)
    tokenizer = open_tokenizer(settings.base / TOKENIZER, MAX_TOKENS)
    trained = (queries for name, queries in sources.items() if not name.startswith(HELD_OUT))
    train = [query for queries in trained for query in queries]
    logger.info("%d queries of %d sources", len(train), len(sources))
    batches = Batches(train, tokenizer, settings.seed)
    if not (settings.base / SETTINGS).is_file():
        layers = [int(layer) for layer in settings.layers.split(",") if layer]
        model = ParserModel.from_base(settings.base, layers)
    elif settings.layers:
        raise ConfigError(f"{settings.base} is a trained parser, so its layers cannot be chosen")
    else:
        model = ParserModel.load(settings.base)
    model.to(device).train()
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

    n_warmup = min(200, settings.steps // 10)
    rates = LoopSettings(learning_rate=settings.learning_rate, warmup_steps=n_warmup)
    loop = Loop(groups, rates, "parser", settings.steps, log_every=100)
    loop.run(losses, lambda step, mean: logger.info("step %d: %.4f", step, mean["loss"]))
    model.eval().round_weights()
    report, pairs = {}, []
    for name, queries in sources.items():
        if name.startswith(HELD_OUT):
            outputs = Batches(queries, tokenizer).parse(model, device)
            pairs.append([(q.parsed, output) for q, output in zip(queries, outputs, strict=True)])
            # What cannot be parsed is one operand.
            report[name.removeprefix(HELD_OUT).strip(":")] = accuracy(
                (q.parsed.tree(q.text), o.parsed.tree(q.text) if o.parsed else Atom(q.text))
                for q, o in zip(queries, outputs, strict=True)
            )
    measured = {"threshold": best_threshold(pairs), "report": report}
    model.save(settings.out, settings.base / TOKENIZER, **measured)
    return report


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


def main(argv: Sequence[str] | None = None) -> int:
    """Train a parser and print its accuracy as JSON."""
    parser = HfArgumentParser(ParserTraining, prog="boolattn.training.parser", description=__doc__)  # type: ignore[arg-type]
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        [settings] = parser.parse_args_into_dataclasses(argv)
        report = train_parser(settings)
    except BoolattnError as error:
        sys.stderr.write(f"boolattn: {error}\n")
        return 2
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
