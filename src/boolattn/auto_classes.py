"""Register Bool-BERT with transformers' ``Auto`` classes, but not before they are imported.

transformers has no entry points: a class is registered by a call. To import transformers and torch
for that call would cost every user seconds, so an import hook makes it when ``AutoModel`` is there.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

logger = logging.getLogger(__name__)

AUTO = "transformers.models.auto.modeling_auto"  # the module of ``AutoModel``


class _Hook:
    """Finds and loads one module as others do, then registers Bool-BERT."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module by the other finders."""
        if name != AUTO:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            self._loader, spec.loader = spec.loader, self  # type: ignore[assignment]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then register."""
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _register()


def register_when_imported() -> None:
    """Register Bool-BERT now if transformers' ``AutoModel`` is imported, else when it is."""
    if AUTO in sys.modules:
        _register()
    elif not any(isinstance(finder, _Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Hook())


def _register() -> None:
    try:
        import_module("boolattn.encoder.bool_bert")  # registers; it may be what imports AutoModel
    except ImportError as error:
        # transformers must stay usable, without torch too.
        logger.warning("Bool-BERT is not registered with transformers: %s", error)
