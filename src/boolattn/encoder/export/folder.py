"""Export of trained models and query parsers for onnxruntime, with a check against torch."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from boolattn.checksums import SUMS, file_sum, write_manifest
from boolattn.encoder.export import graphs
from boolattn.encoder.parser import MAX_TOKENS, SETTINGS, ParserModel
from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoders.callables import unit
from boolattn.encoders.int8 import (
    TORCH,
    WEIGHTS_MAP,
    Array,
    quantise,
    read_tensors,
    write_parts,
    write_torch,
)
from boolattn.encoders.onnx_encoder import (
    DOCUMENT,
    MANIFEST,
    OPERAND,
    QUERY,
    TOKENIZER,
    OnnxEncoder,
    OnnxManifest,
)
from boolattn.errors import ConfigError, DataError
from boolattn.files import atomic_folder, scratch_folder
from boolattn.query.parsed_query import decode, mark_operators
from boolattn.query.parser import GRAPH, OUTPUTS, Parser, ParserManifest, open_tokenizer
from boolattn.query.parser import MANIFEST as PARSER_MANIFEST

#: Least share of texts of equal structure in both backends.
LEAST_AGREEMENT = 0.8


def export_model(
    source: str | Path,
    target: str | Path,
    *,
    int8: bool = True,
    log: Callable[[str], None] = lambda _: None,
) -> OnnxManifest:
    """Write a model folder for onnxruntime, complete or not at all, and compare it with torch.

    The source is the folder of a trained model, or of any sentence-transformers model. ``int8``
    rounds the weights; else they stay float32. ``log`` is called with a line before each step.
    """
    source, target = Path(source), Path(target)
    if target.suffix == ".onnx":
        raise ConfigError(f"{target} names a file; name a folder, which will hold several graphs")
    log(f"loading {source}")
    encoder = TorchEncoder.load(source, device="cpu")
    with atomic_folder(target, replace=True, marker=MANIFEST) as draft, scratch_folder() as scratch:
        builder = _Export(encoder, source, draft, scratch, int8=int8)
        for name, graph in graphs.tower_graphs(encoder).items():
            log(f"tracing the {name} graph")
            builder.add(name, graph)
        builder.write_weights()
        manifest = builder.write_rest()
        log("comparing with torch")
        encoders, agreement = (encoder, OnnxEncoder(draft, manifest)), {}
        for kind, method in ((QUERY, "queries"), (OPERAND, "operands"), (DOCUMENT, "documents")):
            here, there = (unit(getattr(e, f"encode_{method}")(graphs.TEXTS)) for e in encoders)
            agreement[f"{kind}_cosine"] = round(float((here * there).sum(1).min()), 5)
        if int8:
            # The torch model that is restored from this folder has the rounded weights.
            write_torch(draft, restored := scratch / "restored")
            encoder = TorchEncoder.load(restored, device="cpu")
        manifest = replace(manifest, agreement=agreement, fingerprint=encoder.fingerprint)
        manifest.write(draft)
    return manifest


@dataclass
class _Export:
    """Writes a folder step by step."""

    encoder: TorchEncoder
    source: Path
    draft: Path
    scratch: Path
    int8: bool
    _graphs: dict[str, Any] = field(default_factory=dict)
    _tensors: dict[str, Array] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)  # by content
    #: Where a tensor of the torch model is, by content: its key, and that of its scale.
    _torch_entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, graph: graphs.TowerGraph) -> None:
        """Trace a graph, round its weights, and collect its tensors."""
        traced, fused = (self.scratch / f"{name}.{kind}.onnx" for kind in ("traced", "fused"))
        graphs.write_graph(graph, traced)
        final, before, axes = graphs.finish_graph(traced, fused, is_rounded=self.int8)
        values = graphs.initialisers(final)
        places: dict[str, str] = {}
        for key, value in values.items():
            if value.nbytes >= graphs.MIN_BYTES:
                places[key] = self._keys.setdefault(graphs.content(value), f"{name}.{key}")
                self._tensors.setdefault(places[key], value)
        self._graphs[name] = (final, places)
        for key, value in before.items():
            rounded_key, scale = f"{key}_quantized", f"{key}_scale"
            if key in axes and {rounded_key, scale} <= places.keys():
                entry = {"key": places[rounded_key], "scale": places[scale], "axis": axes[key]}
            elif key in places and np.array_equal(values[key], value):
                entry = {"key": places[key]}
            else:
                continue
            self._torch_entries.setdefault(graphs.content(value), entry | {"is_transposed": False})
            if value.ndim == 2:
                flipped = entry | {"is_transposed": True}
                self._torch_entries.setdefault(graphs.content(value.T), flipped)

    def write_weights(self) -> None:
        """Write all tensors once, the graphs that refer to them, and where torch's are."""
        entries: dict[str, dict[str, dict[str, Any]]] = {}
        for path in sorted(self.source.rglob("*.safetensors")):
            file = path.relative_to(self.source).as_posix()
            entries[file] = {}
            for name, value in read_tensors([path]).items():
                entry = self._torch_entries.get(graphs.content(value.astype(np.float32)))
                if entry is None:
                    key = f"{TORCH}.{file}.{name}"
                    self._tensors[key] = value
                    entry = {"key": key, "is_transposed": False}
                entries[file][name] = entry
        used = [entry for file in entries.values() for entry in file.values()]
        keys = {entry[part] for entry in used for part in ("key", "scale") if part in entry}
        text = json.dumps(entries, indent=0, sort_keys=True)
        (self.draft / WEIGHTS_MAP).write_text(text + "\n", encoding="utf-8")
        # All else stays in the graphs, so that the files can be made from the torch model alone.
        where = write_parts({key: self._tensors[key] for key in keys}, self.draft)
        for name, (model, places) in self._graphs.items():
            for tensor in model.graph.initializer:
                if places.get(tensor.name) in where:
                    graphs.refer(tensor, where[places[tensor.name]])
            onnx.save(model, self.draft / f"{name}.onnx")

    def write_rest(self) -> OnnxManifest:
        """Write tokenizer and torch's small files; return the manifest."""
        encoder, towers = self.encoder, self.encoder.towers
        if (tokenizer_file := self.source / TOKENIZER).is_file():
            shutil.copyfile(tokenizer_file, self.draft / TOKENIZER)
        else:
            tokenizer: Any = towers.tokenizer
            tokenizer.backend_tokenizer.save(str(self.draft / TOKENIZER))
        small = (".json", ".txt", ".md")  # weights and tokenizers are stored once
        for path in sorted(self.source.rglob("*")):
            if path.is_file() and path.suffix in small and path.name not in (TOKENIZER, SUMS):
                copy = self.draft / TORCH / path.relative_to(self.source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        lengths = (int(towers.max_seq_length or 512),) * 2
        if settings := encoder.settings:
            lengths = (settings.query_length, settings.document_length)
        files = {
            task: f"{task if task in self._graphs else DOCUMENT}.onnx"
            for task in (QUERY, OPERAND, DOCUMENT)
        }
        names = (DOCUMENT, "passage", "corpus")  # those of sentence-transformers
        document_prompt = next((towers.prompts[n] for n in names if n in towers.prompts), "")
        shared = ("fingerprint", "dimension", "similarity", "gate")
        return OnnxManifest(
            **{name: getattr(encoder, name) for name in shared},
            query_length=lengths[0],
            document_length=lengths[1],
            query_prompt=towers.prompts.get(QUERY) or "",
            document_prompt=document_prompt or "",
            graphs=files,
            bits=7 if self.int8 else 32,
        )


class ParserGraph(nn.Module):
    """A parser from word vectors to logits, for one text without padding."""

    input_names = ("words",)
    output_names = OUTPUTS

    def __init__(self, model: ParserModel) -> None:
        super().__init__()
        self.model = model
        positions = model.encoder.embeddings.position_embeddings
        positions.weight = nn.Parameter(positions.weight[:MAX_TOKENS].clone())

    def forward(self, words: Tensor) -> tuple[Tensor, ...]:
        """Return the logits; the shape of the vectors is ``(1, tokens, hidden)``."""
        return tuple(self.model.parse_words(words, torch.ones_like(words[..., 0]).long()))


def export_parser(
    source: str | Path,
    target: str | Path,
    *,
    encoder: str | Path | None = None,
    texts: Sequence[str] = graphs.TEXTS,
) -> ParserManifest:
    """Write a parser folder for onnxruntime, complete or not at all, and compare it with torch.

    ``encoder`` is the folder of an encoder for onnxruntime; where it holds the same word vectors
    and the same tokenizer, they are not stored again. ``texts`` are compared in both backends.
    """
    source, target = Path(source), Path(target)
    model = ParserModel.load(source)
    settings = json.loads((source / SETTINGS).read_text(encoding="utf-8"))
    table = model.encoder.embeddings.word_embeddings.weight.detach().numpy()
    words, scales = quantise(table, 0)
    shared = stored_words(Path(encoder), target, words, source) if encoder else {}
    with (
        atomic_folder(target, replace=True, marker=PARSER_MANIFEST) as draft,
        scratch_folder() as scratch,
    ):
        example = (torch.zeros(1, 8, table.shape[1]),)
        graphs.trace(ParserGraph(model), example, (1,), scratch / GRAPH)
        graphs.finish_graph(scratch / GRAPH, draft / GRAPH)
        if "table" not in shared:
            save_file({"values": words, "scales": scales}, draft / ParserManifest.table)
        if "tokenizer" not in shared:
            shutil.copyfile(source / TOKENIZER, draft / TOKENIZER)
        sums = {path.name: file_sum(path) for path in sorted(draft.iterdir())}
        values: Any = {**shared, **settings, "max_tokens": MAX_TOKENS, "files": sums}
        manifest = ParserManifest(**values)
        write_manifest(draft / PARSER_MANIFEST, asdict(manifest))
    check_parser(model, Parser(target), texts)
    return manifest


def stored_words(encoder: Path, target: Path, values: Array, source: Path) -> dict[str, str]:
    """Return where an encoder's folder has the same word vectors and the same tokenizer.

    The names are those of a parser's manifest, the files relative to its folder.
    """
    shared = {}
    for path in sorted(encoder.glob("weights-*.safetensors")):
        for name, tensor in read_tensors([path]).items():
            scale = name.removesuffix("_quantized") + "_scale"
            if tensor.dtype == values.dtype and np.array_equal(tensor, values):
                shared = {"table": _relative(path, target), "values": name, "scales": scale}
    if (encoder / TOKENIZER).read_bytes() == (source / TOKENIZER).read_bytes():
        shared["tokenizer"] = _relative(encoder / TOKENIZER, target)
    return shared


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def check_parser(model: ParserModel, parser: Parser, texts: Sequence[str]) -> None:
    """Raise if onnxruntime parses texts otherwise than torch."""
    manifest, n_same = parser.manifest, 0
    tokenizer = open_tokenizer(parser.folder / manifest.tokenizer, manifest.max_tokens)
    for text, output in zip(texts, parser.parse(texts), strict=True):
        encoding = tokenizer.encode(mark_operators(text))
        ids = torch.tensor([encoding.ids])
        with torch.no_grad():
            expected = decode(model(ids, torch.ones_like(ids)), text, encoding.offsets, 0)
        n_same += expected.parsed == output.parsed
    if n_same < LEAST_AGREEMENT * len(texts):
        raise DataError(
            f"onnxruntime parses {len(texts) - n_same} of {len(texts)} texts otherwise than "
            "torch; export with other texts if these are too uncertain"
        )
