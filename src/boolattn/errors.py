"""Every error a user can cause, under one base class, so that an interface catches one name.

A message is one line and says what was wrong, where, and what to do. May import: nothing.
"""

from __future__ import annotations


class BoolattnError(Exception):
    """Something the caller can mend: a wrong value, a wrong file, a missing part.

    >>> import boolattn
    >>> try:
    ...     boolattn.Searcher.open("nowhere")
    ... except boolattn.BoolattnError as error:
    ...     print(error)
    there is no index at nowhere; make one with: boolattn index FILE --out nowhere
    """

    # Not in __init__: torch.compile traces errors only of classes without one.
    def __str__(self) -> str:
        # Names that a message repeats, of fields or files, may hold ends of lines.
        return " ".join(super().__str__().splitlines())


class ConfigError(BoolattnError):
    """A setting has a value it cannot have, or a name that does not exist."""


class DataError(BoolattnError):
    """A data file is damaged, incomplete or contradicts itself."""


class MissingDataError(DataError):
    """A data set or package is not on this machine."""


class QueryError(BoolattnError):
    """A query cannot be read."""


class QuerySyntaxError(QueryError):
    """A query in explicit syntax cannot be read from some column on.

    Attributes:
        column: Where, counted from 1.
        text: The query.
    """

    def __init__(self, message: str, *, column: int, text: str) -> None:
        super().__init__(f"column {column}: {message}")
        self.column = column
        self.text = text

    def pointer(self) -> str:
        """Return the query's words around the column, with a caret below it."""
        start = max(0, self.column - 37)
        shown = "".join(c if c.isprintable() else " " for c in self.text[start : start + 72])
        return f"{shown}\n{' ' * (self.column - 1 - start)}^"


class GateError(BoolattnError):
    """An operator label does not fit the model or the batch."""


class UnsupportedEncoderError(BoolattnError):
    """The encoder's family cannot carry the plug-in safely."""


class PluginMismatchError(BoolattnError):
    """A saved plug-in belongs to another encoder, or its files are damaged."""


class IndexFolderError(BoolattnError):
    """A search index is missing, damaged, locked, or cannot be written."""


class IndexBusyError(IndexFolderError):
    """Another process writes to a search index."""


class IndexMismatchError(IndexFolderError):
    """A search index was made by another model or another format."""


class ServerError(IndexFolderError):
    """A vector store or an embedding endpoint does not answer, or cannot be used."""
