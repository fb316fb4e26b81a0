"""The calibration as a trainable module."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boolattn.composition.calibration import ALPHA, THRESHOLD, Calibration
from boolattn.logic.operators import OPERATORS


class TrainableCalibration(nn.Module):
    """Parameters of a :class:`~boolattn.composition.calibration.Calibration`.

    All but the slope are of the size of a similarity, so that one learning rate suits them. An
    initial ``negation_margin`` of 0 suits encoders that were never trained with a margin.
    """

    display_scale: Tensor

    def __init__(self, dimension: int, negation_margin: float = 0.0) -> None:
        super().__init__()
        self.dimension = dimension
        # Its logarithm, so that the slope stays above 0.
        self.log_alpha = nn.Parameter(torch.tensor(ALPHA).log())
        self.threshold = nn.Parameter(torch.tensor(THRESHOLD))
        self.breadth = nn.Parameter(torch.zeros(dimension))
        self.negation_offset = nn.Parameter(torch.tensor(0.0))
        self.negation_margin = nn.Parameter(torch.tensor(negation_margin))
        # Before softplus.
        self.whole_query = nn.Parameter(torch.full((len(OPERATORS),), -1.0))
        # No gradient: fitted after training, on the corpus.
        self.register_buffer("display_scale", torch.tensor([[1.0, 0.0], [1.0, 0.0]]))

    def reset_display(self) -> None:
        """Display composed probabilities, as before anything was fitted."""
        self.display_scale.copy_(torch.tensor([1.0, 0.0]))

    def values(self) -> Calibration:
        """Return the calibration as tensors that carry gradients."""
        return Calibration(
            alpha=self.log_alpha.exp(),
            threshold=self.threshold,
            breadth=self.breadth,
            negation_offset=self.negation_offset,
            negation_margin=self.negation_margin,
            whole_query_weights=F.softplus(self.whole_query),
            display_scale=self.display_scale,
        )

    def arrays(self) -> Calibration:
        """Return the calibration as numpy arrays."""
        return self.values().numpy()

    @torch.no_grad()
    def set_whole_query_weights(self, weights: tuple[float, ...]) -> None:
        """Set the weights of AND, OR and NOT; 0 becomes 1e-4, which softplus can reach."""
        # The inverse of softplus.
        raw = [float(np.log(np.expm1(max(weight, 1e-4)))) for weight in weights]
        self.whole_query.copy_(torch.tensor(raw))
