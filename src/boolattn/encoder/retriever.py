"""The torch retriever: two towers with a query parser and a calibration."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import Normalize
from torch.nn import functional as F

from boolattn.embedding.base import THRESHOLD, BaseRetriever, ignore
from boolattn.embedding.models import torch_folder
from boolattn.encoder.bool_bert import QUERY, BoolBertModel
from boolattn.encoder.calibration import TrainableCalibration
from boolattn.encoder.document_encoder import document_encoder
from boolattn.encoder.parser_pass import encode_and_parse
from boolattn.encoder.retriever_storage import (
    RetrieverParts,
    load_towers,
    read_retriever,
    write_retriever_files,
)
from boolattn.encoder.tower_storage import save_towers
from boolattn.encoder.towers import encode_queries, query_encoder, settings_of
from boolattn.errors import ConfigError
from boolattn.parsing.decoding import ParserLogits, ParserOutput, decode, is_boolean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

    from boolattn.composition.calibration import Calibration
    from boolattn.encoder.card import Card
    from boolattn.encoder.parser_head import ParserHead

    Array = NDArray[np.float32]


#: No encoder reads more tokens of a text.
MAX_TOKENS = 8192


@dataclass
class Retriever(BaseRetriever):
    """Two towers with a query parser and a calibration."""

    towers: SentenceTransformer  # any sentence-transformers model; with a parser, ours
    parser: ParserHead | None = None  # parses plain text; without one, plain text is one operand
    calibration: TrainableCalibration = None  # type: ignore[assignment]  # set below
    threshold: float = THRESHOLD  # least confidence of a parse that is used
    _fingerprint: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        device = self.towers.device
        self.towers.eval()
        if self.calibration is None:
            self.calibration = TrainableCalibration(self.dimension)
        if self.calibration.dimension != self.dimension:
            raise ConfigError(
                f"the calibration is for vectors of length {self.calibration.dimension}, "
                f"but these towers make vectors of length {self.dimension}"
            )
        self.calibration.to(device).eval()
        if self.parser is not None:
            self.parser.to(device).eval()
        # Towers that end with Normalize make unit vectors already, and no bit may change.
        self._must_normalise = self.similarity == "cosine" and not any(
            isinstance(part, Normalize) for part in self.towers.children()
        )

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> Retriever:
        """Load a saved retriever, or any sentence-transformers folder."""
        folder = torch_folder(folder)
        parts = read_retriever(folder, device=device)
        return cls(load_towers(folder, device=device)) if parts is None else cls(*parts)

    def save(self, folder: str | Path, *, card: Card | None = None) -> None:
        """Write towers, parser and calibration as one folder, whole or not at all."""
        save_towers(self.towers, folder, card=card, also=self.write_files)

    def write_files(self, draft: Path) -> None:
        """Write what a retriever has besides its towers into an unfinished folder."""
        parts = RetrieverParts(self.towers, self.parser, self.calibration, self.threshold)
        write_retriever_files(parts, draft)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.towers.get_embedding_dimension() or 0)

    @property
    def similarity(self) -> str:
        """``cosine`` or ``dot``."""
        return str(self.towers.similarity_fn_name)

    @property
    def has_parser(self) -> bool:
        """Whether plain text is parsed."""
        return self.parser is not None

    @property
    def gate(self) -> str:
        """What opens BoolAttn's gate without labels; empty without BoolAttn."""
        encoder = _query_encoder(self.towers)
        if not isinstance(encoder, BoolBertModel):
            return ""
        gate = encoder.config.boolattn_config.gate
        return "closed" if gate == "label" else gate

    @property
    def max_tokens(self) -> int:
        """Most tokens of a document that are read."""
        # Models without a limit have none, or infinity.
        return int(min(getattr(self.towers, "max_seq_length", None) or 512, MAX_TOKENS))

    @property
    def calibration_arrays(self) -> Calibration:
        """The calibration as numpy arrays."""
        return self.calibration.arrays()

    @property
    def fingerprint(self) -> str:
        """Identifies what made a document's vector; an index is bound to it."""
        if not self._fingerprint:
            # Not the weights alone: with another pooling they make other vectors.
            digest = hashlib.sha256(f"{self.similarity} {_describe(self.towers)}".encode())
            for name, value in sorted(self.towers.state_dict().items()):
                digest.update(name.encode())
                digest.update(
                    value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                )
            self._fingerprint = digest.hexdigest()[:32]
        return self._fingerprint

    def encode_operands(self, texts: Sequence[str]) -> Array:
        """Encode operands by the query tower with every gate closed."""
        if texts and isinstance(_query_encoder(self.towers), BoolBertModel):
            closed: list[tuple[str, ...]] = [()] * len(texts)
            return self._array(encode_queries(self.towers, texts, operators=closed))
        return self.encode_queries(texts)

    def encode_queries(self, texts: Sequence[str]) -> Array:
        """Encode whole queries by the query tower with its own gate."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._array(
            self.towers.encode_query(list(texts), convert_to_tensor=True, show_progress_bar=False)
        )

    def encode_documents(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        progress: Callable[[int], None] = ignore,
    ) -> Array:
        """Encode documents; see :func:`document_encoder`. Shape ``(texts, dim)``."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        # The last module runs once for each batch.
        hook = list(self.towers.children())[-1].register_forward_hook(
            lambda _module, _inputs, outputs: progress(len(outputs["sentence_embedding"]))
        )
        with hook:
            return self._array(document_encoder(self.towers, batch_size=batch_size)(texts))

    def encode_and_parse(self, texts: Sequence[str]) -> tuple[Array, list[ParserOutput]]:
        """Encode queries and parse them from the same pass."""
        outputs = [ParserOutput()] * len(texts)
        if self.parser is None:
            return self.encode_queries(texts), outputs
        device = self.towers.device
        features = self.towers.preprocess(list(texts), task=QUERY)
        features = {k: v.to(device) if torch.is_tensor(v) else v for k, v in features.items()}
        with torch.inference_mode():
            vectors, found = encode_and_parse(self.towers, self.parser, features)
        logits = ParserLogits(*(part.float().cpu().numpy() for part in found))
        # A text of one operand needs no offsets.
        rows = np.flatnonzero(is_boolean(logits)).tolist()
        if rows:
            offsets = self._offsets([texts[row] for row in rows])
            for row, own in zip(rows, offsets, strict=True):
                outputs[row] = decode(logits, texts[row], own, row)
        return self._array(vectors), outputs

    def _array(self, vectors: Tensor) -> Array:
        vectors = F.normalize(vectors, dim=-1) if self._must_normalise else vectors
        return cast("Array", vectors.detach().float().cpu().numpy())

    def _offsets(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        tokenizer: Any = self.towers.tokenizer
        encoded = tokenizer(
            list(texts),
            truncation=True,
            max_length=settings_of(self.towers).query_length,
            return_offsets_mapping=True,
        )
        return cast("list[list[tuple[int, int]]]", encoded["offset_mapping"])


def _describe(towers: SentenceTransformer) -> str:
    """Describe what turns weights into vectors: lengths, pooling and prompts."""
    try:
        settings = str(settings_of(towers))
    except (ConfigError, ValueError):
        parts = [part for part in towers.modules() if hasattr(part, "pooling_mode")]
        pooling = [str(part.pooling_mode) for part in parts]
        settings = f"{towers.max_seq_length} {pooling}"
    return f"{settings} {sorted(towers.prompts.items())}"


def _query_encoder(towers: SentenceTransformer) -> object:
    try:
        return query_encoder(towers)
    except ConfigError:
        # A model of another kind, with one tower.
        return None
