"""Documents as callers give them: texts, mappings or documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from numbers import Integral
from typing import TYPE_CHECKING, Any

from boolattn.data.records import Document
from boolattn.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: A text; a mapping with ``text`` and, if there are any, ``id``, ``title`` and metadata.
    DocumentLike = str | Mapping[str, Any] | Document


def as_documents(
    values: Iterable[DocumentLike], is_taken: Callable[[str], bool] = lambda _: False
) -> Iterator[Document]:
    """Make documents; what has no id is numbered, without the ids that are taken.

    >>> [document.id for document in as_documents(["moths", {"id": 7, "text": "ants"}])]
    ['0', '7']
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DataError(f"documents are a list of texts, not {type(values).__name__}")
    free = (name for name in map(str, count()) if not is_taken(name))
    return (
        value if isinstance(value, Document) else _document(position, value, free)
        for position, value in enumerate(values)
    )


def _document(position: int, value: str | Mapping[str, Any], free: Iterator[str]) -> Document:
    values = dict(value) if isinstance(value, Mapping) else {"text": value}
    if not isinstance(values.get("text"), str):
        shown = f"{values!r:.200}; rename the field with the text to 'text'"
        raise DataError(f"document {position} has no text under 'text': {shown}")
    name: Any = values.pop("id") if "id" in values else next(free)
    name = str(name) if isinstance(name, Integral) else name
    title, text = values.pop("title", ""), values.pop("text")
    return Document(id=name, text=text, title="" if title is None else title, metadata=values)
