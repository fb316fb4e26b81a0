"""A torch encoder whose gates oracle labels open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boolattn.encoder.torch_encoder import TorchEncoder
from boolattn.encoder.towers import encode_queries, query_encoder
from boolattn.errors import GateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer


class LabelledEncoder(TorchEncoder):
    """Opens the gates for a query by the operators that its labels name.

    Attributes:
        labels: Names of each query's operators, by its text. Those for which the model has no
            expert are left out.
    """

    def __init__(self, towers: SentenceTransformer) -> None:
        super().__init__(towers)
        self.labels: dict[str, Sequence[str]] = {}

    def encode_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode whole queries, each of which has labels."""
        if not self.gate:
            raise GateError("this model has no BoolAttn, so labels can open no gate")
        if unknown := [text for text in texts if text not in self.labels]:
            raise GateError(f"there are no operator labels for the query {unknown[0]!r}")
        encoder = query_encoder(self.towers)
        experts = encoder.config.boolattn_config.operators
        operators = [[name for name in self.labels[text] if name in experts] for text in texts]
        return self._array(encode_queries(self.towers, texts, operators=operators))
