"""Every error a user can cause, under one base class, so that an interface catches one name.

A message is one line and says what was wrong, where, and what to do. May import: nothing.
"""

from __future__ import annotations


class BoolattnError(Exception):
    """Something the caller can mend: a wrong value, a wrong file, a missing part."""


class ConfigError(BoolattnError):
    """A setting has a value it cannot have, or a name that does not exist."""


class DataError(BoolattnError):
    """A data file is damaged, incomplete or contradicts itself."""


class MissingDataError(DataError):
    """A data set or package is not on this machine."""


class QueryError(BoolattnError):
    """A query cannot be read."""


class GateError(BoolattnError):
    """An operator label does not fit the model or the batch."""


class UnsupportedEncoderError(BoolattnError):
    """The encoder's family cannot carry the plug-in safely."""


class PluginMismatchError(BoolattnError):
    """A saved plug-in belongs to another encoder, or its files are damaged."""
