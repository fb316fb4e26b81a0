"""Settings: TOML or plain values in, a frozen dataclass out; an unknown key is an error.

May import: boolattn.errors.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")


def build(kind: type[T], values: Mapping[str, Any], *, source: str = "") -> T:
    """Make a settings dataclass from plain values and refuse names it does not have.

    Lists become tuples, because settings are frozen and JSON and TOML know only lists.

    Args:
        kind: A frozen dataclass that checks its own values.
        values: Plain values, as TOML or JSON gives them.
        source: Where they came from, for the error message.
    """
    where = f"{source}: " if source else ""
    known = sorted(field.name for field in fields(kind))  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(
            f"{where}{kind.__name__} has no {unknown[0]!r}; it has {', '.join(known)}"
        )
    plain = {key: tuple(item) if isinstance(item, list) else item for key, item in values.items()}
    try:
        return kind(**plain)
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"{where}{error}") from error


#: Whether a value is of a type, by the type's name.
_TYPES: dict[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "Sequence[str]": lambda value: (
        isinstance(value, list | tuple) and all(isinstance(own, str) for own in value)
    ),
    "Mapping[str, Any]": lambda value: isinstance(value, dict),
    "Mapping[str, str]": lambda value: (
        isinstance(value, dict) and all(isinstance(own, str) for own in value.values())
    ),
}
_TYPES |= {
    "tuple[str, ...]": _TYPES["Sequence[str]"],
    "dict[str, Any]": _TYPES["Mapping[str, Any]"],
    "dict[str, str]": _TYPES["Mapping[str, str]"],
    "tuple[int, ...]": lambda value: (
        isinstance(value, list | tuple) and all(_TYPES["int"](own) for own in value)
    ),
}


def _or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


_PLAIN = ("bool", "int", "float", "str", "tuple[int, ...]")
_TYPES |= {f"{name} | None": _or_none(_TYPES[name]) for name in _PLAIN}


def check_types(settings: Any) -> None:  # noqa: ANN401 - any dataclass
    """Refuse values of settings that are not of the plain type that their field names."""
    for one in fields(settings):
        value, is_right = getattr(settings, one.name), _TYPES.get(str(one.type))
        if is_right is not None and not is_right(value):
            raise ConfigError(f"{one.name} is of the type {one.type}, not {value!r:.80}")
