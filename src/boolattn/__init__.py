"""Dense retrieval that understands *and*, *or* and *not*.

Public names load on first use, so ``import boolattn`` costs nothing. ``from boolattn import
BoolBertModel`` registers Bool-BERT with transformers' ``Auto`` classes, and so with
``SentenceTransformer``. ``import boolattn`` turns off the telemetry of onnxruntime, which otherwise
starts when that is imported.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from boolattn.attention.config import BoolAttnConfig
    from boolattn.data.records import Document
    from boolattn.encoder.bool_bert import BoolBertModel
    from boolattn.encoder.torch_encoder import TorchEncoder
    from boolattn.encoder.tower_storage import save_towers
    from boolattn.encoder.towers import build_towers, encode_queries, query_encoder
    from boolattn.encoders.models import shipped_model
    from boolattn.errors import BoolattnError
    from boolattn.plugin import attach, detach, load, load_plugin, save, save_plugin
    from boolattn.plugin.explain import explain
    from boolattn.query.tree import Operator
    from boolattn.search import Searcher

__version__ = "0.1.0.dev0"
#: For the time that a command shows: the user's, with what is loaded first.
STARTED = time.perf_counter()

_HOME = {
    "BoolAttnConfig": "boolattn.attention.config",
    "BoolBertModel": "boolattn.encoder.bool_bert",
    "BoolattnError": "boolattn.errors",
    "Document": "boolattn.data.records",
    "Operator": "boolattn.query.tree",
    "TorchEncoder": "boolattn.encoder.torch_encoder",
    "Searcher": "boolattn.search",
    "attach": "boolattn.plugin",
    "build_towers": "boolattn.encoder.towers",
    "detach": "boolattn.plugin",
    "encode_queries": "boolattn.encoder.towers",
    "explain": "boolattn.plugin.explain",
    "load": "boolattn.plugin",
    "load_plugin": "boolattn.plugin",
    "query_encoder": "boolattn.encoder.towers",
    "save": "boolattn.plugin",
    "save_plugin": "boolattn.plugin",
    "save_towers": "boolattn.encoder.tower_storage",
    "shipped_model": "boolattn.encoders.models",
}

#: Packages that some names need, and what installs them.
_EXTRAS = {"torch": "attach", "transformers": "attach", "sentence_transformers": "train"}

__all__ = [  # noqa: RUF022 - grouped as a reader meets them
    "attach",
    "detach",
    "explain",
    "save",
    "load",
    "save_plugin",
    "load_plugin",
    "build_towers",
    "save_towers",
    "encode_queries",
    "query_encoder",
    "shipped_model",
    "BoolBertModel",
    "TorchEncoder",
    "Searcher",
    "Document",
    "BoolAttnConfig",
    "BoolattnError",
    "Operator",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Import a public name from the module that owns it."""
    if name not in _HOME:
        raise AttributeError(f"module 'boolattn' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        from boolattn.errors import MissingDataError

        remedy = f"pip install 'boolattn[{_EXTRAS[package]}]'"
        raise MissingDataError(f"boolattn.{name} needs {package}; {remedy}") from None


def __dir__() -> list[str]:
    """List what is public."""
    return sorted(__all__)


os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
