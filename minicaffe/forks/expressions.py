"""What layers that are written as expressions of arrays have in common."""

from __future__ import annotations

from typing import Any

from minicaffe.layers.base import Layer, Traits

EXPRESSION = Traits(capturable=False)
LOSS = Traits(is_loss=True, of_whole=True, capturable=False)


class Expression(Layer):
    """A layer that computes with NumPy's or CuPy's own operators, which take arrays as they go.

    It is therefore in no CUDA graph. It computes in `sum_dtype`: numbers of 16 bits become float32.
    """

    traits = EXPRESSION

    def wide(self, x: Any) -> Any:
        """An array in the type that sums are computed in."""
        return x if x.dtype == self.sum_dtype else x.astype(self.sum_dtype)

    def put(self, values: Any, out: Any) -> Any:
        """Writes values, of as many entries, into a top or a gradient."""
        self.xp.copyto(out, values.reshape(out.shape))
        return out
