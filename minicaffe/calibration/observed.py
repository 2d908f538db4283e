"""The net that is looked at: a model as it infers, all of its blobs kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.deploy import TOGETHER, Deployed
from minicaffe.export.folding import folded
from minicaffe.export.inference import for_test, inference
from minicaffe.net import read
from minicaffe.spec.declare import NetSpec


class CalibrationNet(Deployed):
    """A model as it infers, with every blob in memory of its own; any layer may be its last."""

    def __init__(self, model: Any, weights: Any = None, **more: Any):
        spec = model if isinstance(model, NetSpec) else read(model)
        last = inference(for_test(spec))[0].layers[-1].type
        self.ends = ("DetectionOutput", "Softmax", "Sigmoid", last)
        super().__init__(model, weights, keep=None, **more)
        self.stretches = self.ended == "DetectionOutput"

    def fold(self) -> list[str]:
        """Multiply BatchNorm, Scale, Bias and Power into the layers before them; a line for each."""
        result, net = folded(self.net), self.net
        self.net = result.net(device=net.device, deterministic=True, keep=None)
        return result.notes

    def passes(self, prepared: np.ndarray) -> Iterator[slice]:
        """Run the net on pictures as `Images.prepared` has them, and yield which they were, batch by batch."""
        for first in range(0, len(prepared), TOGETHER):
            batch = slice(first, min(first + TOGETHER, len(prepared)))
            self.run(prepared[batch])
            yield batch

    def run(self, batch: np.ndarray) -> None:
        """Run the net on a batch, as large as it is."""
        if self.net.first_blobs[self._input].shape != batch.shape:
            self.net.reshape(**{self._input: batch.shape})
        with np.errstate(all="ignore"):  # numbers that are not finite are refused by name
            inputs: dict[str, Any] = {self._input: batch}
            self.net.forward(**inputs)
