"""Long questions with one relevant document, which mentions in passing what they exclude."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmark_data.domains.items import Decided, stems
from benchmark_data.domains.queries import query_row
from benchmark_data.domains.wordings import Worded
from benchmark_data.taxa.phrases import Builder
from boolattn.files import package_table

#: By domain: role, facet of what is excluded, subjects of sentences, wordings; and patterns.
TABLE: Mapping[str, Any] = package_table("benchmark_data.domains", "single.toml")
_N_WORDS, _CLAUSE = range(15, 41), range(5, 25)
_SLOT = re.compile(r"\{(what|does|not)\}")


def questions(domain: str, documents: Sequence[Decided]) -> Iterator[dict[str, Any]]:
    """Ask for documents by what their texts say, without the words of their titles."""
    row = TABLE[domain]
    rng = random.Random(f"{domain} single")
    ids = {document.item.title: {document.item.id} for document in documents}
    counts = Counter(value for document in documents for value in document.yes)
    for document in rng.sample(documents, len(documents)):
        described = _description(document.item.text, row["subjects"])
        # The name with the most documents is the hardest.
        values = sorted(document.yes, key=lambda value: (counts[value], value))
        names = [v.name for v in values if v.kind == row["mention"]]
        free = [name for name in names if name not in " ".join(described.values())]
        if not described or not free:
            continue
        index = rng.randrange(len(row["wordings"]))
        worded = _worded(row["wordings"][index], {**described, "not": free[-1]})
        has_title = {s for s in stems(document.item.title) if len(s) > 3} & {*stems(worded.text)}
        if not has_title and len(worded.text.split()) in _N_WORDS:
            sets = {"gold": {document.item.id}, "excluded": ids.get(free[-1], ())}
            phrased = (f"unseen:one_relevant/{index}", worded)
            yield query_row(domain, "_ that are not _", (), phrased, sets)


def _description(text: str, subjects: str) -> dict[str, str]:
    """Return what the text is about, and the vaguest of its other sentences; or nothing."""
    patterns = TABLE["patterns"]
    first, *later = re.split(patterns["sentence"], text)
    kind = re.search(patterns["what"], first)
    matches = (re.match(f"(?:{subjects}){patterns['does']}", sentence) for sentence in later)
    clauses = [does[1] for does in matches if does and len(does[1].split()) in _CLAUSE]
    clauses = [clause for clause in clauses if not re.search(patterns["vague"], clause)]
    if not kind or not clauses:
        return {}
    does = min(clauses, key=lambda clause: len(re.findall(patterns["rare"], clause)))
    return {"what": kind[1], "does": does}


def _worded(wording: str, values: Mapping[str, str]) -> Worded:
    builder = Builder(2)
    for at, piece in enumerate(_SLOT.split(wording)):
        builder.add(values[piece] if at % 2 else piece, {int(piece == "not")} if at % 2 else ())
    phrase = builder.finish()
    operands = (f"{values['what']} {values['does']}", values["not"])
    return Worded(phrase.text, operands, phrase.operands)
