"""Settings: TOML or plain values in, a frozen dataclass out; an unknown key is an error."""

from __future__ import annotations

import builtins
import os
import sys
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import cache, wraps
from inspect import Parameter, signature
from operator import ge, gt, le, lt
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from boolattn.errors import ConfigError

T = TypeVar("T")
P = ParamSpec("P")


def build(kind: type[T], values: Mapping[str, Any], *, source: str = "") -> T:
    """Make a settings dataclass from plain values and refuse names it does not have.

    Lists become tuples: settings are frozen. Errors begin with the ``source`` of the values.
    """
    where = f"{source}: " if source else ""
    known = sorted(field.name for field in fields(kind))  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        reason = f"{kind.__name__} has no {unknown[0]!r}; it has {', '.join(known)}"
        raise ConfigError(f"{where}{reason}")
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


def _named(name: str) -> Callable[[Any], bool]:
    return lambda value: any(kind.__name__ == name for kind in type(value).__mro__)


#: Whether a value is of a type, by the type's name, for plain types and for classes that only some
#: callers import; of another type any value is.
_TESTS: dict[str, Callable[[Any], bool]] = {
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    # NaN is not equal to itself.
    "float": lambda x: isinstance(x, int | float) and not isinstance(x, bool) and x == x,
    "str": lambda value: isinstance(value, str),
    "NoneType": lambda value: value is None,
    "Path": lambda value: isinstance(value, Path) and _is_path(value),
    "Client": lambda value: hasattr(value, "close"),
    "Parser": lambda value: hasattr(value, "parse"),
    "PreTrainedModel": lambda value: hasattr(value, "base_model"),
    "SentenceTransformer": lambda value: hasattr(value, "similarity_fn_name"),
}
_CALLABLE = ("Callable", "Embed", "Encode", "PreTrainedTokenizerBase", "Progress")
_OURS = ("BoolAttnConfig", "Card", "Dataset", "DataOptions", "Mixture", "Query")
_TESTS |= dict.fromkeys(_CALLABLE, callable) | {name: _named(name) for name in _OURS}


class _Names(dict[str, Any]):
    """Names of a module's annotations, also of what only type checkers import."""

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - a type
        # A class of that name stands for the one that is not imported.
        return type(name, (), {}) if name in _TESTS else Any


@cache
def _hints(owner: Any) -> dict[str, Any]:  # noqa: ANN401 - a function or a class
    module = vars(sys.modules[owner.__module__])
    # An alias that is written as text is known by its name.
    names = {name: value for name, value in module.items() if not isinstance(value, str)}
    plain = vars(builtins) | vars(abc) | {"Path": Path}
    return get_type_hints(owner, localns=_Names(plain | names))


def _fits(value: Any, hint: Any) -> bool:  # noqa: ANN401
    """Whether a value is of a type; documents and filters check themselves."""
    origin, kinds = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if str in kinds and Path in kinds and isinstance(value, str | Path):
            return _is_path(value)
        return any(_fits(value, kind) for kind in kinds)
    if origin in (tuple, Sequence, frozenset):
        is_many = isinstance(value, frozenset if origin is frozenset else Sequence)
        is_many = is_many and not isinstance(value, str | bytes)
        return is_many and all(_fits(item, kinds[0]) for item in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(_fits(item, kinds[1]) for item in value.values())
    is_right = _TESTS.get(getattr(origin or hint, "__name__", ""))
    return is_right is None or is_right(value)


def _check(name: str, hint: Any, kind: str, value: Any) -> None:  # noqa: ANN401
    # What filters may be is theirs to say.
    if kind != "Mapping[str, Any] | None" and not _fits(value, hint):
        shown = " ".join(repr(value)[:80].split())
        article = "an" if kind[0] in "aeiou" else "a"
        raise ConfigError(f"{name} must be {article} {kind}, got {shown}")


#: Limits of a setting: how a message names them, and whether a value keeps them.
_LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "choices": ("one of {}", lambda value, choices: value in choices),
    "above": ("above {}", gt),
    "least": ("at least {}", ge),
    "below": ("below {}", lt),
    "most": ("at most {}", le),
    "is_odd": ("odd", lambda value, is_odd: value % 2 == is_odd),
}


def limited(default: Any, **limits: Any) -> Any:  # noqa: ANN401 - a field of any type
    """Return a field of settings with limits, which :func:`check_types` checks; and help."""
    return field(default=default, metadata=limits)


class Checked:
    """Settings that check themselves; no number without a limit of its own is below 0."""

    def __post_init__(self) -> None:
        check_types(self, least=0)


def check_types(settings: Any, least: float | None = None) -> None:  # noqa: ANN401 - any dataclass
    """Refuse values of settings that are not of their field's type or beyond its limits.

    ``least`` is the limit of numbers whose field has none.
    """
    hints = _hints(settings.__class__)
    for item in fields(settings):
        value = getattr(settings, item.name)
        _check(item.name, hints[item.name], str(item.type), value)
        limits = {name: item.metadata[name] for name in _LIMITS if name in item.metadata}
        if not limits and least is not None and isinstance(value, int | float):
            limits = {"least": least}
        if value is not None and not all(_LIMITS[n][1](value, x) for n, x in limits.items()):
            shown = (", ".join(x) if isinstance(x, tuple) else x for x in limits.values())
            rules = (_LIMITS[n][0].format(x) for n, x in zip(limits, shown, strict=True))
            raise ConfigError(f"{item.name} must be {' and '.join(rules)}; got {value!r}")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function refuse arguments that are not of the type that its signature names."""
    parameters = signature(function)
    kinds = {name: str(parameter.annotation) for name, parameter in parameters.parameters.items()}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # When it is called, all of the module's names are there.
        hints = _hints(function)
        for name, value in parameters.bind(*args, **kwargs).arguments.items():
            if name in hints and parameters.parameters[name].kind is not Parameter.VAR_KEYWORD:
                _check(name, hints[name], kinds[name], value)
        return function(*args, **kwargs)

    return call
