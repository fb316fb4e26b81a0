"""Write one file of labelled queries for training the query parser.

    python -m experiments.parser_queries --out FILE [--generated N --sentences N ...]
        [--texts CORPUS ...] [--queries NAME=FILE ...] [--seed S]

Titles and sentences are drawn from the corpora of ``--texts``. ``--queries`` adds the labelled
queries of a built benchmark; where NAME begins with "held_out:" they are for model selection, as
are the held-out parts of the generators. Equal arguments give equal files.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from boolattn.data.sentences import LabelledQuery, Mixture, generate
from boolattn.errors import BoolattnError
from experiments.labels import label_template, write_labelled_queries
from experiments.parser_queries.generator import generate_queries
from experiments.parser_queries.natural import (
    Natural,
    as_natural,
    fill_natural,
    natural_queries,
    refilled_queries,
    short_queries,
)
from experiments.parser_queries.stories import letter_queries, plot_queries, story_queries
from experiments.parser_queries.structures import (
    PARTS,
    everyday_queries,
    question_queries,
    structured_queries,
    surrounded,
)
from experiments.parser_queries.titles import (
    queries_about_titles,
    read_texts,
    sentence_texts,
    title_queries,
)
from experiments.parser_queries.wordings import BANNED, filled_line, table
from experiments.parsing.queries import benchmark_queries, validation_queries

#: How many queries of each source.
COUNTS = {
    "generated": 36_000,
    "sentences": 14_000,
    "natural": 24_000,
    "short": 6_000,
    "nested": 28_000,
    "negation": 13_000,
    "joining": 36_000,
    "long": 24_000,
    "stories": 36_000,
    "plots": 10_000,
    "questions": 14_000,
    "titles": 18_000,
    "about_titles": 6_000,
    "documents": 14_000,
    "refilled": 60_000,
    "around": 24_000,
    "everyday": 48_000,
    "letters": 40_000,
    "passages": 16_000,
    "listed": 24_000,
    "typed": 150_000,
    "spoken": 60_000,
}
#: The sources that may hold the words of the taxa benchmark's held-out wordings.
_EXEMPT = frozenset({"everyday", "letters", "passages", "listed", "typed", "spoken"})
_HELD_OUT = "held_out:"
#: One held-out query for so many training queries of a generator.
_HELD_OUT_SHARE = 40
#: One text in ten is held out.
_TENTH = 10
#: Signs that mean something in a wording.
_MARKUP = re.compile(r"[][{}*@~]")


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
    seed, counts = options.seed, {name: getattr(options, name) for name in COUNTS}
    sources: dict[str, Iterable[LabelledQuery]] = {
        "generated": generate_queries(counts["generated"], seed),
        "sentences": _sentences(counts["sentences"], seed),
        "natural": fill_natural(counts["natural"], seed),
        "short": short_queries(counts["short"], seed),
        "questions": question_queries(counts["questions"], seed),
        **{part: structured_queries(part, counts[part], seed) for part in PARTS},
        "stories": story_queries(counts["stories"], seed),
        "plots": plot_queries(counts["plots"], seed),
        "everyday": everyday_queries(counts["everyday"], seed),
        "letters": letter_queries(counts["letters"], seed),
        **{n: everyday_queries(counts[n], seed, n) for n in ("listed", "typed", "spoken")},
        **_held_out(counts, seed),
    }
    if options.texts:
        sources |= _from_texts(options.texts, counts, seed)
    benchmarks = set()
    for argument in options.queries:
        name, _, path = argument.partition("=")
        sources[name] = benchmark_queries(Path(path))
        benchmarks.add(name)
    return _mixed(sources, benchmarks, counts, seed)


def _mixed(
    sources: Mapping[str, Iterable[LabelledQuery]],
    benchmarks: set[str],
    counts: Mapping[str, int],
    seed: int,
) -> Iterator[tuple[str, LabelledQuery]]:
    """Yield the usable queries of all sources, then refilled ones and ones with words around."""
    drawn: list[LabelledQuery] = []
    frames: list[Natural] = []
    for name, queries in sources.items():
        is_held_out, is_benchmark = name.startswith(_HELD_OUT), name in benchmarks
        for query in queries:
            # Else no wording to train on has a word of the held-out ones; an operand may have it.
            text = _outside(query) if is_benchmark else query.text
            if is_held_out or name in _EXEMPT or not BANNED.search(text):
                yield name, query
                if not is_held_out:
                    drawn.append(query)
                if is_benchmark and not is_held_out and (frame := as_natural(query, name)):
                    frames.append(frame)
    rng = random.Random(f"around {seed}")
    phrases = [filled_line("compounds", "any", rng) for _ in range(3000)]
    phrases += table("plain")["expressions"]["train"]
    for query in refilled_queries(frames, phrases, counts["refilled"], seed):
        drawn.append(query)
        yield "refilled", query
    for query in surrounded(rng.choices(drawn, k=counts["around"] if drawn else 0), seed):
        yield "around", query


def _outside(query: LabelledQuery) -> str:
    """Return the words of a text that belong to no operand, without a set expression."""
    inside = {at for spans in query.parsed.operands for span in spans for at in range(*span)}
    text = "".join(" " if at in inside else sign for at, sign in enumerate(query.text))
    return text.replace("as many as possible", "")


def _sentences(n: int, seed: int) -> Iterator[LabelledQuery]:
    """Label generated Boolean sentences."""
    for sentence in generate(n, seed, Mixture(varied=1.0)):
        if labelled := label_template(sentence.text, sentence.template, sentence.operands):
            yield labelled


def _held_out(counts: dict[str, int], seed: int) -> dict[str, Iterable[LabelledQuery]]:
    sizes = {name: count // _HELD_OUT_SHARE for name, count in counts.items()}
    natural = [query.labelled() for query in natural_queries(held_out=True)]
    written = validation_queries()
    return {
        f"{_HELD_OUT}generated": generate_queries(sizes["generated"], seed, held_out=True),
        f"{_HELD_OUT}natural": natural if counts["natural"] else [],
        f"{_HELD_OUT}questions": question_queries(sizes["questions"], seed, held_out=True),
        f"{_HELD_OUT}stories": story_queries(sizes["stories"], seed, held_out=True),
        f"{_HELD_OUT}plots": plot_queries(sizes["plots"], seed, held_out=True),
        f"{_HELD_OUT}letters": letter_queries(sizes["letters"], seed, held_out=True),
        **{
            f"{_HELD_OUT}validation, {kind}": [q.labelled for q in written if q.kind == kind]
            for kind in dict.fromkeys(query.kind for query in written)
        },
        **{
            f"{_HELD_OUT}{part}": structured_queries(part, sizes[part], seed, held_out=True)
            for part in PARTS
        },
    }


def _from_texts(
    paths: Sequence[Path], counts: dict[str, int], seed: int
) -> dict[str, Iterable[LabelledQuery]]:
    read = read_texts(paths)
    sources: dict[str, Iterable[LabelledQuery]] = {}
    for is_held_out, prefix in ((False, ""), (True, _HELD_OUT)):
        titles, other, passages = (
            [text for text in texts if (zlib.crc32(text.encode()) % _TENTH == 0) == is_held_out]
            for texts in read
        )
        if not titles or not other:
            continue
        share = _HELD_OUT_SHARE if is_held_out else 1
        sizes = {name: count // share for name, count in counts.items()}
        sources |= {
            f"{prefix}titles": title_queries(titles, sizes["titles"], seed),
            f"{prefix}about_titles": queries_about_titles(titles, sizes["about_titles"], seed),
            f"{prefix}documents": sentence_texts(other, sizes["documents"], seed),
        }
        if passages:
            n = sizes["letters"]
            quoted = [text for text in (*other, *passages) if not _MARKUP.search(text)]
            sources |= {
                f"{prefix}passages": sentence_texts(passages, sizes["passages"], seed),
                f"{prefix}letters": letter_queries(n, seed, quoted, held_out=is_held_out),
            }
    return sources


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parser_queries", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines; .xz compresses")
    for name, count in COUNTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=count)
    parser.add_argument("--texts", type=Path, action="append", default=[], help="a corpus")
    parser.add_argument("--queries", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
