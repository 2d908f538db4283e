"""Gradients that ranks sum in fewer bits."""

from __future__ import annotations

from typing import Any

from minicaffe.core.ops import arrays


class Rounded:
    """Gradients summed in fewer bits; what rounding loses of this rank's is added to its next ones.

    Source: F. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech 2014 (error feedback).
    """

    def __init__(self, array: Any, dtype: Any, xp: Any):
        self.array, self.lost = array, xp.zeros(array.shape, array.dtype)
        self.sent = xp.empty(array.shape, dtype)

    def round(self) -> None:
        """Have what is to be summed be in `sent`."""
        arrays.add(self.array, self.lost)
        arrays.copy(self.lost, self.sent)
        arrays.minus(self.lost, self.sent, self.lost)

    def take(self) -> None:
        """The gradients are the sum."""
        arrays.copy(self.sent, self.array)
