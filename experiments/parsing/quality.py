"""Parse accuracy of one parser, as a table: real names with a cue word, and unseen domains."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.evaluation.tables import markdown, short
from boolattn.query.decoding import ParserOutput
from boolattn.query.parser import load_parser
from boolattn.query.reading import ReadingOptions, read_queries
from boolattn.training.parser import accuracy, report_table
from boolattn.training.run_folder import write_json
from experiments.parsing.accuracy import split_names, unseen_accuracy
from experiments.parsing.validation import benchmark_queries, measure_validation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.parsing.accuracy import Read

_SHARES = ("structure", "obeyed", "words", "word_f1")


def measure_parser(parser: str, path: Path | None = None) -> str:
    """Lay out the accuracy of a parser (a folder or "shipped"); write all results as JSON."""
    read = _read_with(parser)
    names, unseen = split_names(read), unseen_accuracy(read)
    if path is not None:
        write_json(path, {"names": names, "fresh": unseen})
    kinds = ", ".join(
        f"{kind} {counts['misread']} of {counts['n']}" for kind, counts in names["kinds"].items()
    )
    groups = {
        "all": unseen,
        "taxa": unseen["domains"]["taxa"],
        "unseen domains": unseen["elsewhere"],
        **unseen["forms"],
    }
    rows = [[name, str(shares["n"]), *_cells(shares)] for name, shares in groups.items()]
    heads = ["queries", "n", "parse accuracy", "as scored", "operand words", "operand word F1"]
    words = f"{names['misread']} of {names['n']} names were split into operands ({kinds})."
    return f"{words}\n\n{markdown(heads, rows)}"


def validate_parser(
    parser: str, queries: Mapping[str, str] | None = None, *, shows_errors: bool = False
) -> str:
    """Lay out the accuracy of a parser (a folder or "shipped") on the validation queries.

    With ``queries``, files by name, on these instead: splits of a built benchmark.
    """
    if not queries:
        return measure_validation(_read_with(parser), shows_errors=shows_errors)
    loaded, report = load_parser(parser), {}
    for name, path in queries.items():
        labelled = list(benchmark_queries(Path(path)))
        outputs = loaded.parse([query.text for query in labelled])
        # What is searched: below the threshold one operand.
        used = [o if o.confidence >= loaded.threshold else ParserOutput() for o in outputs]
        report[name] = accuracy(labelled, used)
    return report_table(report)


def _read_with(parser: str) -> Read:
    return partial(read_queries, parser=load_parser(parser), options=ReadingOptions(mode="plain"))


def _cells(shares: Mapping[str, Any]) -> list[str]:
    return [short(shares[name]) if name in shares else "–" for name in _SHARES]
