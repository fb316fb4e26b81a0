"""Parse accuracy of one model, as a table: real names with a cue word, and unseen domains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from boolattn.encoders.models import load_model
from boolattn.errors import ConfigError
from boolattn.evaluation.tables import markdown, short
from boolattn.query.decoding import ParserOutput
from boolattn.training.parser import accuracy, report_table
from boolattn.training.run_folder import write_json
from experiments.parsing.accuracy import split_names, unseen_accuracy
from experiments.parsing.validation import benchmark_queries, measure_validation

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARES = ("structure", "obeyed", "words", "word_f1")


def measure_parser(model: str, path: Path | None = None) -> str:
    """Lay out the parse accuracy of a model (a folder or "shipped"); write all results as JSON."""
    retriever = load_model(model)
    if not retriever.has_parser:
        raise ConfigError(f"{model} has no query parser: every text is one operand")
    names, unseen = split_names(retriever.plan), unseen_accuracy(retriever.plan)
    if path is not None:
        write_json(path, {"names": names, "fresh": unseen})
    kinds = ", ".join(
        f"{kind} {own['misread']} of {own['n']}" for kind, own in names["kinds"].items()
    )
    groups = {
        "all": unseen,
        "taxa": unseen["domains"]["taxa"],
        "unseen domains": unseen["elsewhere"],
        **unseen["forms"],
    }
    rows = [[name, str(own["n"]), *_cells(own)] for name, own in groups.items()]
    heads = ["queries", "n", "parse accuracy", "as scored", "operand words", "operand word F1"]
    words = f"{names['misread']} of {names['n']} names were split into operands ({kinds})."
    return f"{words}\n\n{markdown(heads, rows)}"


def validate_parser(
    model: str,
    parser: str = "",
    queries: Mapping[str, str] | None = None,
    *,
    shows_errors: bool = False,
) -> str:
    """Lay out the accuracy on the validation queries, with a model's parser or another.

    With ``queries``, files by name, on these instead: splits of a built benchmark.
    """
    retriever = load_model(model)
    if parser:
        retriever.use_parser(parser)
    if not queries:
        return measure_validation(retriever.plan, shows_errors=shows_errors)
    if retriever.parser is None:
        raise ConfigError(f"{model} has no query parser: every text is one operand")
    report = {}
    for name, path in queries.items():
        labelled = list(benchmark_queries(Path(path)))
        found = retriever.parser.parse([query.text for query in labelled])
        # What is searched: below the threshold one operand.
        used = [one if one.confidence >= retriever.threshold else ParserOutput() for one in found]
        report[name] = accuracy(labelled, used)
    return report_table(report)


def _cells(shares: Mapping[str, Any]) -> list[str]:
    return [short(shares[name]) if name in shares else "–" for name in _SHARES]
