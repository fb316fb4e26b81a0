"""How a store was made, and what is refused for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from boolattn.errors import (
    ConfigError,
    DataError,
    IndexBusyError,
    IndexFolderError,
    IndexMismatchError,
)
from boolattn.kinds.lexicon import Kinds, load_kinds
from boolattn.settings import build, check_types

#: How neighbours are searched.
EXACT, HNSW = VECTORS = ("exact", "hnsw")


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """What a store remembers of how it was made."""

    fingerprint: str  # of the model that encoded the documents
    dimension: int
    similarity: str = "cosine"  # or dot
    model: str = ""  # what to load to search it: ``shipped``, ``minilm``, a folder, or empty
    passages: int = 0  # maximum number of tokens of a passage; 0: a document is one passage
    words: bool = True  # whether words are indexed, for hybrid search
    digests: dict[str, str] = field(default_factory=dict)  # hashes of the model's tokenizer, …
    vectors: str = "exact"  # how neighbours are searched: exact or hnsw
    precision: str = "float32"  # of stored vectors: float32, float16 or int8
    kinds: dict[str, Any] = field(default_factory=dict)  # things by kind, besides the known ones
    lexicon: str = ""  # digest of the kinds whose tags are stored; empty: none are

    def completed(self, vectors: str, precisions: Sequence[str]) -> StoreSettings:
        """Return the settings with a way to search; refuse what a store does not have."""
        settings = replace(self, vectors=self.vectors or vectors)
        for name, values in {"vectors": VECTORS, "precision": precisions}.items():
            if (value := getattr(settings, name)) not in values:
                raise ConfigError(f"{name} must be one of {', '.join(values)}, got {value!r}")
        return settings

    @property
    def known_kinds(self) -> Kinds | None:
        """The kinds whose tags are stored; ``None`` where another lexicon wrote them."""
        kinds = load_kinds(json.dumps(self.kinds)) if self.lexicon else None
        return kinds if kinds and kinds.digest == self.lexicon else None


def saved_settings(state: Mapping[str, Any], label: str, expected: int) -> StoreSettings:
    """Read a store's settings; refuse another format than this version's, and other damage."""
    if (version := state.get("format")) != expected:
        remedy = f"build it again with boolattn index FILE --out {label} --replace"
        formats = f"has format {version}, this version reads {expected}"
        raise IndexMismatchError(f"{label} {formats}: {remedy}")
    try:
        settings = build(StoreSettings, state.get("settings") or {})
        check_types(settings)
    except (ConfigError, TypeError) as error:
        raise IndexFolderError(f"the settings in {label} are damaged ({error})") from error
    return settings


def check_build(
    label: str, has_index: object, is_stopped: object, *, replace: bool, resume: bool
) -> None:
    """Refuse to build in place of an index, or of a stopped build, unless that was asked for."""
    if has_index and not replace and not (resume and is_stopped):
        remedy = "add to it with boolattn add, or build it again with --replace"
        raise IndexFolderError(f"{label} holds an index: {remedy}")
    if is_stopped and not (replace or resume):
        remedy = "go on with --resume, or begin again with --replace"
        raise IndexFolderError(f"a build was stopped in {label}: {remedy}")


def no_index(address: object) -> IndexFolderError:
    """Return the error that there is no store at an address."""
    remedy = f"make one with: boolattn index FILE --out {address}"
    if Path(near := f"{address}.index").is_dir():
        remedy = f"did you mean {near}?"
    return IndexFolderError(f"there is no index at {address}; {remedy}")


def busy(label: object) -> IndexBusyError:
    """Return the error that another process writes to a store."""
    return IndexBusyError(f"{label} is being written by another process; wait until it is done")


def check_model(
    label: str, settings: StoreSettings, fingerprint: str, digests: Mapping[str, str]
) -> None:
    """Refuse a store of another model: the vectors of two models cannot be compared.

    Digests that either does not know are not compared.
    """
    if settings.fingerprint != fingerprint:
        prints = f"fingerprint {settings.fingerprint[:8]}, not {fingerprint[:8]}"
        model = f"another model ({settings.model or 'unnamed'}, {prints})"
        remedy = "index again with this one, or search with that one"
        raise IndexMismatchError(f"{label} was indexed by {model}; {remedy}")
    for name, digest in settings.digests.items():
        if digests.get(name, digest) != digest:
            changed = f"another {name} of the model {settings.model}"
            remedy = "copy the model again, or index again with this one"
            raise IndexMismatchError(f"{label} was indexed with {changed}; {remedy}")


def check_ids(ids: object) -> list[str]:
    """Return the different ids of documents to delete; refuse what is no list of texts."""
    names: list[Any] = [None] if isinstance(ids, str) or not isinstance(ids, Iterable) else [*ids]
    if not all(isinstance(name, str) for name in names):
        raise DataError("ids to delete are a list of texts")
    return list(dict.fromkeys(names))
