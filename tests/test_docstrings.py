"""Public names have examples in their docstrings, which pytest runs as tests."""

from __future__ import annotations

import doctest
import inspect
import re

import pytest

import boolattn
from boolattn.search import Searcher, SearchResult
from boolattn.stores.address import open_store

NAMES = [name for name in boolattn.__all__ if not name.startswith("__")]
#: A docstring may leave the example to one that it refers to.
_REFERENCE = re.compile(r":(?:func|meth):`(?:\w+\.)*(\w+)`")


def sources(value) -> str:
    """Return the code of the examples of a docstring."""
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
    return "".join(example.source for example in examples)


def has_example(value, scope) -> bool:
    """Tell whether an example uses a name: its own, or one that its docstring refers to."""
    names = _REFERENCE.findall(inspect.getdoc(value) or "")
    others = [getattr(scope, name) for name in names if hasattr(scope, name)]
    shown = "".join(map(sources, [value, *others]))
    return re.search(rf"\b{value.__name__}\b", shown) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    value = getattr(boolattn, name)
    if name == "search":  # a package that can be called
        assert "boolattn.search(" in sources(type(value).__call__)
    else:
        assert has_example(value, boolattn)


@pytest.mark.parametrize("value", [open_store], ids=lambda value: value.__name__)
def test_what_the_pages_name_of_stores_has_an_example(value):
    assert has_example(value, inspect.getmodule(value))


def methods(kind):
    return [
        name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))
    ]


@pytest.mark.parametrize(
    ("kind", "method"),
    [(kind, name) for kind in (Searcher, SearchResult) for name in methods(kind)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_method_has_an_example_of_its_own_or_in_its_class(kind, method):
    shown = sources(kind) + "".join(sources(getattr(kind, name)) for name in methods(kind))
    assert f".{method}(" in shown


def test_a_docstring_without_an_example_is_noticed():
    def bare():
        """Do something, as :func:`attach` does."""

    assert not has_example(bare, boolattn)
    assert len(NAMES) >= 19
    assert {"search", "add", "from_texts"} < set(methods(Searcher))
