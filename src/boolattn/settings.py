"""Settings: TOML or plain values in, a frozen dataclass out; an unknown key is an error.

May import: boolattn.errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from boolattn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
P = ParamSpec("P")


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


def _is_path(value: Any) -> bool:  # noqa: ANN401
    """Whether a value can be a path: a system takes names of up to 255 bytes."""
    if not isinstance(value, str | Path) or value == "" or "\0" in str(value):
        return False
    return len(str(value)) < 4096 and all(len(os.fsencode(p)) < 256 for p in Path(value).parts)


def _are(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is a list of what is right."""
    return lambda value: (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(map(is_right, value))
    )


def _is_a(name: str) -> Callable[[Any], bool]:
    """Whether a value is of a class that only some callers have imported."""
    return lambda value: any(kind.__name__ == name for kind in type(value).__mro__)


#: Whether a value is of a type, by the type's name.
_TYPES: dict[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    # NaN is not equal to itself.
    "float": lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and value == value
    ),
    "str": lambda value: isinstance(value, str),
    "Path": lambda value: isinstance(value, Path) and _is_path(value),
    "str | Path": _is_path,
    "str | Path | PreTrainedModel": lambda value: hasattr(value, "base_model") or _is_path(value),
    "Client | str": lambda value: isinstance(value, str) or hasattr(value, "close"),
    "Parser | str": lambda value: isinstance(value, str) or hasattr(value, "parse"),
    "Mapping[str, Any]": lambda value: isinstance(value, dict),
    "Mapping[str, str]": lambda value: (
        isinstance(value, dict) and all(isinstance(own, str) for own in value.values())
    ),
}
_TYPES |= {
    "Sequence[str]": _are(_TYPES["str"]),
    "Sequence[Sequence[str]]": _are(_are(_TYPES["str"])),
    "tuple[str, ...]": _are(_TYPES["str"]),
    "tuple[int, ...]": _are(_TYPES["int"]),
    "dict[str, Any]": _TYPES["Mapping[str, Any]"],
    "dict[str, str]": _TYPES["Mapping[str, str]"],
}
_CALLED = ("Embed", "Encode", "Callable[[int], None]", "PreTrainedTokenizerBase")
_TYPES |= dict.fromkeys(_CALLED, callable)
_CLASSES = ("BoolAttnConfig", "Card", "Dataset", "DataOptions", "Mixture", "SentenceTransformer")
_TYPES |= {name: _is_a(name) for name in _CLASSES}


def _check(name: str, kind: str, value: Any) -> None:  # noqa: ANN401
    plain = kind.removesuffix(" | None")
    # What filters may be is theirs to say.
    if (is_right := _TYPES.get(plain)) is None or kind == "Mapping[str, Any] | None":
        return
    if not is_right(value) and not (value is None and plain != kind):
        shown = " ".join(repr(value)[:80].split())
        raise ConfigError(f"{name} is of the type {kind}, not {shown}")


def check_types(settings: Any) -> None:  # noqa: ANN401 - any dataclass
    """Refuse values of settings that are not of the plain type that their field names."""
    for one in fields(settings):
        _check(one.name, str(one.type), getattr(settings, one.name))


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function refuse arguments that are not of the plain type that its signature names."""
    own = signature(function)
    kinds = {name: str(parameter.annotation) for name, parameter in own.parameters.items()}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in own.bind(*args, **kwargs).arguments.items():
            _check(name, kinds[name], value)
        return function(*args, **kwargs)

    return call
