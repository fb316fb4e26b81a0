"""Parse accuracy on the test sets, on the validation queries, or on files of queries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from boolattn.evaluation.parsing import MEASURES, accuracy, structure
from boolattn.evaluation.tables import markdown, short
from boolattn.query.parser import load_parser
from boolattn.query.reading import QueryReader
from boolattn.query.tree import Atom, QueryTree, signed_atoms
from experiments.parsing.queries import (
    benchmark_queries,
    cue_word_names,
    unseen_queries,
    validation_queries,
)

if TYPE_CHECKING:
    from boolattn.data.sentences import LabelledQuery

    Groups = Mapping[str, Sequence[LabelledQuery]]
    #: Parses texts.
    Parse = Callable[[Sequence[str]], Sequence[QueryTree]]

#: Kinds of error, from coarse to fine.
ERRORS = ("taken apart", "left whole", "number of operands", "negation", "joined otherwise")
_HEADS = ("queries", "n", "structure", "operand words", "operand word F1", "plain left alone")
_BATCH = 256


def measure_tests(parser: str) -> str:
    """Lay out the accuracy of a parser (a folder or "shipped") on the two frozen test sets.

    Structure and words are those of the parse; a name is split if it is searched as several
    operands, which needs confidence.
    """
    reader = QueryReader(load_parser(parser), mode="plain")
    unseen: dict[str, list[LabelledQuery]] = {"all": []}
    for query in unseen_queries():
        domain = "taxa" if query.domain == "taxa" else "unseen domains"
        for group in ("all", domain, query.kind):
            unseen.setdefault(group, []).append(query.labelled)
    names: dict[str, list[LabelledQuery]] = {"names": []}
    for name in cue_word_names():
        for group in ("names", name.kind):
            names.setdefault(group, []).append(name.labelled)
    parsed = measure(unseen, lambda texts: [reader.read(text).parsed for text in texts])
    scored = measure(names, lambda texts: [reader.read(text).tree for text in texts])
    return f"{parsed}\n\n{scored}"


def measure_validation(
    parser: str, files: Mapping[str, str] | None = None, *, shows_errors: bool = False
) -> str:
    """Lay out the accuracy of a parser on the validation queries, as they are searched.

    With ``files``, splits of a built benchmark by name, on their queries by the parser alone.
    """
    reader = QueryReader(loaded := load_parser(parser), mode="plain")
    groups: dict[str, list[LabelledQuery]] = {}

    def parse(texts: Sequence[str]) -> list[QueryTree]:
        if not files:
            return [reader.read(text).tree for text in texts]
        outputs = zip(texts, loaded.parse(texts), strict=True)
        return [
            o.parsed.tree(text) if o.parsed and o.confidence >= loaded.threshold else Atom(text)
            for text, o in outputs
        ]

    if files:
        groups = {name: list(benchmark_queries(Path(path))) for name, path in files.items()}
    else:
        for query in validation_queries():
            groups.setdefault(query.kind, []).append(query.labelled)
        groups["all"] = [query.labelled for query in validation_queries()]
    return measure(groups, parse, shows_errors=shows_errors)


def measure(groups: Groups, parse: Parse, *, shows_errors: bool = False) -> str:
    """Lay out accuracy and errors by group; with ``shows_errors`` each error is a line."""
    texts = list(dict.fromkeys(query.text for queries in groups.values() for query in queries))
    starts = range(0, len(texts), _BATCH)
    parsed = [tree for start in starts for tree in parse(texts[start : start + _BATCH])]
    trees = dict(zip(texts, parsed, strict=True))
    rows, lines = [], dict[str, None]()
    for name, queries in groups.items():
        pairs = [(query.parsed.tree(query.text), trees[query.text]) for query in queries]
        errors, shares = Counter(error_kind(*pair) for pair in pairs), accuracy(pairs)
        counts = (str(errors[kind]) for kind in ERRORS)
        cells = (short(shares.get(measure_name, math.nan)) for measure_name in MEASURES)
        rows.append([name, str(len(pairs)), *cells, *counts])
        for query, pair in zip(queries, pairs, strict=True):
            if shows_errors and (error := error_kind(*pair)):
                lines[f"{error}: {query.text} -> {pair[1]}"] = None
    return "\n".join([*lines, markdown([*_HEADS, *ERRORS], rows)])


def error_kind(expected: QueryTree, parsed: QueryTree) -> str:
    """Name what is wrong with the structure of a parse; empty where nothing is.

    >>> from boolattn.query.syntax import parse
    >>> error_kind(parse("a AND NOT b"), parse("a AND b"))
    'negation'
    """
    if structure(expected) == structure(parsed):
        return ""
    signs, parsed_signs = (sorted(s for _, s in signed_atoms(t)) for t in (expected, parsed))
    is_wrong = (
        isinstance(expected, Atom),
        isinstance(parsed, Atom),
        len(signs) != len(parsed_signs),
        signs != parsed_signs,
        True,
    )
    return ERRORS[is_wrong.index(True)]
