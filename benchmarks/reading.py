"""How well a query is read: train a reader alone, and measure on wordings it never saw.

    python -m benchmarks.reading --data FOLDER --readings FILE [--sources taxa,generated] ...

``FOLDER`` is the taxa benchmark; ``FILE`` what ``--make FILE`` wrote: marked texts, so that a
machine with a GPU does not spend its time on making them. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import boolattn.encoder
from boolattn.attention.config import BoolAttnConfig
from boolattn.composition.reader import Read, Reader, ReaderConfig, decode, reading_loss, Labels
from boolattn.data import taxa
from boolattn.data.readings import Marked, Reading, mark, words
from boolattn.logic.operators import Operator
from boolattn.training.composing import ReadingStore, reading_operators
from boolattn.weights import minilm_folder


def main() -> None:
    """Train, measure, print."""
    options = _options()
    if options.make:
        make(options)
        return
    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    towers = boolattn.encoder.build_towers(
        options.encoder or str(minilm_folder()),
        BoolAttnConfig(rank=16, gate=options.gate) if options.gate else None,
    ).float().to(device)
    reader = Reader(
        ReaderConfig(hidden_size=towers.get_embedding_dimension() or 0, width=options.width)
    ).to(device)
    sets = read_sets(options)
    train = [item for name in options.sources.split(",") for item in sets[name]]
    store = ReadingStore(
        towers.tokenizer, [m.text for m in train], [m.reading for m in train], 64, 6
    )
    started = time.perf_counter()
    fit(towers, reader, store, options, device)
    took = time.perf_counter() - started
    result = {"options": vars(options) | {"data": "", "readings": ""}, "train_s": round(took, 1)}
    for name in ("seen", "unseen", "dev", "names", "sentences_unseen"):
        if name in sets:
            result[name] = measure(towers, reader, sets[name], options.gate, device)
    print(json.dumps(result, default=str), flush=True)


def fit(towers: SentenceTransformer, reader: Reader, store: ReadingStore, options, device) -> None:
    """Train towers and reader on the reading loss."""
    rng = np.random.default_rng(options.seed)
    new = [p for n, p in towers.named_parameters() if ".boolattn." in n]
    old = [p for n, p in towers.named_parameters() if ".boolattn." not in n]
    optimizer = torch.optim.AdamW(
        [
            {"params": old, "lr": options.lr},
            {"params": [*new, *reader.parameters()], "lr": 5e-4},
        ],
        weight_decay=0.01,
        fused=device == "cuda",
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / 60, (options.steps - step) / max(1, options.steps - 60)),
    )
    mask_id = towers.tokenizer.mask_token_id
    towers.train(), reader.train()
    for _ in range(options.steps):
        rows = rng.integers(len(store.readings), size=options.batch).tolist()
        features = store.tokens.features(rows)
        labels, _ = store.labels(rows, features["input_ids"].shape[1])
        if options.mask:
            ids = features["input_ids"]
            drop = (torch.rand(ids.shape) < options.mask) & (ids > 200)
            features["input_ids"] = ids.masked_fill(drop, mask_id)
        if options.gate == "label":
            features["operators"] = torch.tensor(
                [reading_operators(store.readings[row]) for row in rows]
            )
        features = {k: v.to(device) for k, v in features.items()}
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            output = towers({**features, "task": "query"}, task="query")
            read = reader(output["token_embeddings"], features["attention_mask"])
        loss = reading_loss(
            Read(*(part.float() for part in read)),
            Labels(*(part.to(device) for part in labels)),
            features["attention_mask"],
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*old, *new, *reader.parameters()], 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@torch.inference_mode()
def measure(towers, reader, items: list[Marked], gate: str, device: str) -> dict[str, object]:
    """Read texts; say how often the structure is right, and the words too."""
    towers.eval(), reader.eval()
    right: dict[str, list[tuple[bool, bool, float]]] = defaultdict(list)
    order = sorted(range(len(items)), key=lambda i: len(items[i].text))
    for start in range(0, len(order), 256):
        part = [items[i] for i in order[start : start + 256]]
        texts = [item.text for item in part]
        features = towers.preprocess(texts, task="query")
        features = {k: v.to(device) if torch.is_tensor(v) else v for k, v in features.items()}
        if gate == "label":
            features["operators"] = torch.tensor(
                [reading_operators(item.reading) for item in part]
            ).to(device)
        output = towers({**features, "task": "query"}, task="query")
        read = reader(output["token_embeddings"].float(), features["attention_mask"])
        read = Read(*(p.cpu() for p in read))
        offsets = towers.tokenizer(
            texts, truncation=True, max_length=64, return_offsets_mapping=True
        )["offset_mapping"]
        for row, item in enumerate(part):
            verdict = decode(read, item.text, offsets[row], row)
            found = verdict.reading
            is_right = found is not None and found.form == item.reading.form
            exact = is_right and (
                found.is_plain or operands(item.text, found) == operands(item.text, item.reading)
            )
            right[form_name(item.reading)].append((is_right, bool(exact), verdict.confidence))
    every = [row for rows in right.values() for row in rows]
    sure = [row for row in every if row[2] >= 0.5]
    return {
        "n": len(every),
        "structure": round(float(np.mean([r[0] for r in every])), 4),
        "exact": round(float(np.mean([r[1] for r in every])), 4),
        "sure": round(len(sure) / len(every), 4),
        "structure_if_sure": round(float(np.mean([r[0] for r in sure])), 4) if sure else None,
        "by_form": {
            name: (len(rows), round(float(np.mean([r[0] for r in rows])), 3))
            for name, rows in sorted(right.items())
        },
    }


def operands(text: str, reading: Reading) -> tuple[list[str], list[str]]:
    """Return the operands' words, whatever their order."""
    return (
        sorted(words(text, spans) for spans in reading.kept),
        sorted(words(text, spans) for spans in reading.excluded),
    )


def form_name(reading: Reading) -> str:
    """Name a structure."""
    kept, excluded, joiner = reading.form
    return f"{kept}{joiner if kept > 1 else ''}-{excluded}"


def read_sets(options) -> dict[str, list[Marked]]:
    """Read marked texts by source."""
    sets: dict[str, list[Marked]] = defaultdict(list)
    with lzma.open(options.readings, "rt", encoding="utf-8") as handle:
        for line in handle:
            row = json.loads(line)
            kept, excluded = (
                tuple(tuple(map(tuple, spans)) for spans in row[k]) for k in ("k", "x")
            )
            sets[row["s"]].append(Marked(row["t"], Reading(kept, excluded, Operator(row["j"]))))
    bench = taxa.load(Path(options.data))
    for name, split in (("taxa", "train"), ("seen", "test"), ("unseen", "unseen")):
        for query in bench.queries(split):
            if item := mark(query.text, query.template, [o.spans for o in query.operands]):
                sets[name].append(item)
    return sets


def make(options) -> None:
    """Write marked texts of every source but taxa."""
    from boolattn.data.readings_generated import generate_marked
    try:
        from boolattn.data.readings_names import name_queries
    except ImportError:
        name_queries = list
    from boolattn.data.sentences import Mixture, generate

    def sentences(n: int, seed: int, unseen: bool):
        for s in generate(n, seed, Mixture(unseen=unseen)):
            if item := mark(s.text, s.template, s.operands):
                yield item

    sources = {
        "sentences": sentences(min(options.n // 3, 8000), 0, False),
        "sentences_unseen": sentences(1000, 1, True),
        "generated": generate_marked(options.n, 0),
        "dev": generate_marked(3000, 1, held_out=True),
        "names": name_queries(),
    }
    with lzma.open(options.make, "wt", encoding="utf-8") as handle:
        for name, items in sources.items():
            count = 0
            for item in items:
                r = item.reading
                row = {"s": name, "t": item.text, "k": r.kept, "x": r.excluded}
                handle.write(json.dumps(row | {"j": r.joiner.value}) + "\n")
                count += 1
            print(name, count, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--readings", type=Path)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--encoder", default="")
    parser.add_argument("--sources", default="taxa,sentences,generated")
    parser.add_argument("--gate", default="", choices=("", "lexicon", "label", "learned"))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--mask", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
