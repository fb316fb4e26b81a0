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

if TYPE_CHECKING:  # "as" exports a name
    from boolattn.attention.config import BoolAttnConfig as BoolAttnConfig
    from boolattn.data.records import Document as Document
    from boolattn.encoder.bool_bert import BoolBertModel as BoolBertModel
    from boolattn.encoder.torch_encoder import TorchEncoder as TorchEncoder
    from boolattn.encoder.torch_encoder import encode_queries as encode_queries
    from boolattn.encoder.towers import build_towers as build_towers
    from boolattn.encoder.towers import query_encoder as query_encoder
    from boolattn.encoder.towers import save_towers as save_towers
    from boolattn.encoders.models import shipped_model as shipped_model
    from boolattn.errors import BoolattnError as BoolattnError
    from boolattn.plugin.explain import explain as explain
    from boolattn.plugin.install import detach as detach
    from boolattn.plugin.storage import attach as attach
    from boolattn.plugin.storage import load as load
    from boolattn.plugin.storage import load_plugin as load_plugin
    from boolattn.plugin.storage import save as save
    from boolattn.plugin.storage import save_plugin as save_plugin
    from boolattn.query.tree import Operator as Operator
    from boolattn.search import Searcher as Searcher

__version__ = "0.1.0.dev0"
#: For the time that a command shows: the user's, with what is loaded first.
STARTED = time.perf_counter()

_NAMES = {
    "attention.config": "BoolAttnConfig",
    "data.records": "Document",
    "encoder.bool_bert": "BoolBertModel",
    "encoder.torch_encoder": "TorchEncoder encode_queries",
    "encoder.towers": "build_towers query_encoder save_towers",
    "encoders.models": "shipped_model",
    "errors": "BoolattnError",
    "plugin.explain": "explain",
    "plugin.install": "detach",
    "plugin.storage": "attach load load_plugin save save_plugin",
    "query.tree": "Operator",
    "search": "Searcher",
}
_HOME = {name: f"boolattn.{home}" for home, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name from the module that owns it."""
    if name not in _HOME:
        raise AttributeError(f"module 'boolattn' has no attribute {name!r}")
    from boolattn.files import installed_by

    extra = "train" if _HOME[name].startswith("boolattn.encoder.") else "attach"
    with installed_by(extra, f"boolattn.{name}"):
        return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List what is public."""
    return sorted(__all__)


os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
