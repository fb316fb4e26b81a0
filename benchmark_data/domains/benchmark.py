"""Building the domains benchmark into a folder, which ``boolattn.data.catalog`` reads.

Choices have fixed seeds and loops are sorted, so that two machines write the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmark_data.domains import single, wordings
from benchmark_data.domains.items import Decided, Value, choose, decide
from benchmark_data.domains.kinds import STRUCTURES, find_kinds
from benchmark_data.domains.queries import Planner, generate, numbered
from benchmark_data.domains.readers import everyday, science
from benchmark_data.domains.sources import fetch_file
from boolattn.checksums import file_sum
from boolattn.data.catalog import DOMAIN_SPLITS, FORMATS
from boolattn.errors import ConfigError, MissingDataError
from boolattn.files import atomic_folder, package_table
from boolattn.jsonl import write_jsonl

#: The domains by name: role, terms of use, files, kinds of facets.
DOMAINS: Mapping[str, Mapping[str, Any]] = package_table("benchmark_data.domains", "domains.toml")
#: Documents of a domain, most judged documents of a query, queries of each structure.
SIZES = {"small": (2000, 150, 12), "full": (20_000, 300, 60)}
#: Structures with other numbers of queries than the others, as multiples.
_MORE = {"known": 4, "name": 2}
_SINGLE = 250  # questions with one relevant document
_TRAINING = 5  # training splits have so many times as many queries
_STRUCTURES = (*wordings.STRUCTURES, "explicit", *_MORE)


def build(
    folder: Path,
    size: str = "small",
    *,
    only: Sequence[str] = (),
    source: Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Build the benchmark, completely or not at all.

    ``source`` is a folder with the sources' files, else they come from cache and network. Without
    ``only``, a domain whose file must be provided and is not there is left out and reported.
    """
    if size not in SIZES:
        raise ConfigError(f"domains has no size {size!r}; it has {', '.join(SIZES)}")
    if unknown := [name for name in only if name not in DOMAINS]:
        raise ConfigError(f"no domain {unknown[0]!r}; there are {', '.join(DOMAINS)}")
    report = tell or (lambda line: None)
    files: dict[str, list[Path]] = {}
    for name in only or DOMAINS:
        rows = DOMAINS[name]["files"]
        try:
            files[name] = [fetch_file(row, source) for row in rows]
        except MissingDataError as error:
            if only or any("wheel" in row or "url" in row for row in rows):
                raise
            report(f"{name} is left out: {error}")
    about: dict[str, Any] = {}
    with atomic_folder(folder) as draft:
        for name, content in files.items():
            report(f"{len(about) + 1}/{len(files)} {name}")
            about[name] = _build_domain(name, content, size, draft / name)
        paths = sorted(draft.glob("*/*"))
        manifest = {
            "format": FORMATS["domains"],
            "size": size,
            "wordings_sha256": wordings.digest(),
            "domains": about,
            "files": {str(path.relative_to(draft)): file_sum(path) for path in paths},
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        (draft / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return manifest


def _build_domain(name: str, files: Sequence[Path], size: str, folder: Path) -> dict[str, Any]:
    row = DOMAINS[name]
    n_documents, max_judged, n_queries = SIZES[size]
    read = getattr(science, name, None) or getattr(everyday, name)
    documents = choose(decide(read(files, size), row["kinds"], name), n_documents)
    rows = (_document_row(name, document) for document in documents)
    write_jsonl(folder / "corpus.jsonl", rows)
    planner = Planner(name, documents, max_judged)
    counts = {}
    for split in DOMAIN_SPLITS[row["role"]]:
        times = _TRAINING if split == "train" else 1
        numbers = {name: n_queries * times * _MORE.get(name, 1) for name in _STRUCTURES}
        queries = generate(planner, documents, split, numbers)
        counts[split] = write_jsonl(folder / f"{split}.jsonl", queries)
    kinds = list(find_kinds(name, documents))
    if kinds:
        write_jsonl(folder / "kinds.jsonl", (kind.row() for kind in kinds))
    for role in sorted({kind.role for kind in kinds}):
        asked = Planner(name, documents, max_judged, [kind for kind in kinds if kind.role == role])
        for split in [f"{role}_kinds", f"{role}_kinds_unseen"][: 2 - (role == "train")]:
            times = _TRAINING if role == "train" else 2
            queries = generate(
                asked, documents, split, dict.fromkeys(STRUCTURES, n_queries * times)
            )
            counts[split] = write_jsonl(folder / f"{split}.jsonl", queries)
    if name in single.TABLE:
        split = f"{single.TABLE[name]['role']}_single"
        queries = numbered(single.questions(name, documents), f"{name}-{split}", _SINGLE)
        counts[split] = write_jsonl(folder / f"{split}.jsonl", queries)
    return {
        "role": row["role"],
        "use": row.get("use", "training and evaluation"),
        "licence": row["licence"],
        "sources": [file.get("wheel") or file.get("url") or file["name"] for file in row["files"]],
        "sha256": [file["sha256"] for file in row["files"]],
        "documents": len(documents),
        "facets": len(planner.yes),
        "queries": counts,
    }


def _document_row(domain: str, document: Decided) -> dict[str, Any]:
    return {
        "id": document.item.id,
        "title": document.item.title,
        "text": document.item.text,
        "metadata": {
            "domain": domain,
            "use": DOMAINS[domain].get("use", "training"),
            "facets": _joined(document.yes),
            "undecided": _joined(document.maybe),
        },
    }


def _joined(values: frozenset[Value]) -> str:
    return "|".join(f"{value.kind}={value.name}" for value in sorted(values))
