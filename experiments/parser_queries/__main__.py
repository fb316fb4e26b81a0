"""Write one file of labelled queries for training the query parser.

    python -m experiments.parser_queries --out FILE [--generated N --sentences N --natural N
        --short N] [--paraphrases DATASET --split NAME --data FOLDER] [--seed S]

The default counts are those of the preset minilm-taxa-composed. Equal arguments give equal files.
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.data.catalog import Options, open_dataset
from boolattn.data.labelled_queries import write_labelled_queries
from boolattn.data.sentences import Mixture
from boolattn.errors import BoolattnError, ConfigError
from experiments.parser_queries.generator import generate_queries
from experiments.parser_queries.natural import fill_natural, short_queries
from experiments.parser_queries.sources import label_paraphrases, sentence_queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boolattn.logic.parsed_query import LabelledQuery


def main(argv: Sequence[str] | None = None) -> int:
    """Write the file and print how many queries it has."""
    options = _parser().parse_args(argv)
    try:
        count = write_labelled_queries(options.out, labelled_rows(options))
    except BoolattnError as error:
        print(f"parser_queries: {error}", file=sys.stderr)
        return 2
    print(f"{options.out}: {count:,} queries")
    return 0


def labelled_rows(options: argparse.Namespace) -> Iterator[tuple[str, LabelledQuery]]:
    """Yield the queries of all sources, each with the name of its source."""
    seed = options.seed
    sources: dict[str, Iterator[LabelledQuery]] = {
        "generated": generate_queries(options.generated, seed),
        "sentences": sentence_queries(options.sentences, seed, Mixture(varied=1.0)),
        "natural": fill_natural(options.natural, seed),
        "short": short_queries(options.short, seed),
    }
    if options.paraphrases:
        sources = {"paraphrases": _paraphrases(options), **sources}
    return chain.from_iterable(((name, query) for query in own) for name, own in sources.items())


def _paraphrases(options: argparse.Namespace) -> Iterator[LabelledQuery]:
    """Align the queries of a split whose operand spans are not known."""
    dataset = open_dataset(options.paraphrases, Options(folder=options.data))
    if options.split not in dataset.splits:
        names = ", ".join(dataset.splits)
        raise ConfigError(f"{options.paraphrases} has no split {options.split!r}; it has {names}")
    queries = dataset.splits[options.split]
    return label_paraphrases(q for q in queries if not all(o.spans for o in q.operands))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parser_queries", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; .xz compresses")
    for name, count in (("generated", 20_000), ("sentences", 40_000), ("natural", 30_000)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--short", type=int, default=4_000)
    parser.add_argument("--paraphrases", default="", help="a data set with paraphrased queries")
    parser.add_argument("--split", default="train", help="its split")
    parser.add_argument("--data", type=Path, help="its folder")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
