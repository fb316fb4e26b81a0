"""The three Boolean operators, in the order of every tensor axis."""

from __future__ import annotations

from enum import StrEnum


class Operator(StrEnum):
    """A Boolean operator; its value is its name in settings, labels and files."""

    AND = "and"
    OR = "or"
    NOT = "not"


#: AND, OR, NOT: the operator axis of labels, gates and biases.
OPERATORS: tuple[Operator, ...] = tuple(Operator)
