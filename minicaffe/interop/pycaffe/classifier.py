"""caffe.Classifier: classes of pictures, by one piece of each or by ten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.interop.pycaffe import io
from minicaffe.interop.pycaffe.net import Net


class Classifier(Net):
    """A deploy net whose first input takes pictures and whose first output is what they are.

    `image_dims` is the (height, width) that pictures are resized to before pieces of the input's size are
    cut; that size itself unless it is given. `mean`, `input_scale`, `raw_scale` and `channel_swap` are those
    of io.Transformer, kept as `transformer`.
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path | None,
        image_dims: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ):
        super().__init__(model_file, 1, weights=pretrained_file)
        shapes = {name: self.blobs[name].shape for name in self.inputs}
        given = mean, input_scale, raw_scale, channel_swap
        self.transformer: io.Transformer = io.for_pictures(shapes, *given)
        self.crop_dims = np.array(shapes[self.inputs[0]][2:])
        self.image_dims = tuple(self.crop_dims if image_dims is None else image_dims)

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """The output for pictures (h, w, c), (n, classes).

        Of each picture the piece in the middle, or, with `oversample`, the mean over ten pieces: corners and
        middle, and these mirrored.
        """
        if len(inputs) == 0:
            raise io.ArrayError("expected pictures to classify, got none")
        pictures = [io.resize_image(one, self.image_dims) for one in inputs]
        name, size = self.inputs[0], tuple(self.crop_dims)
        if oversample:
            pieces = list(io.oversample(pictures, size))
        else:
            pieces = [io.middle(one, size) for one in pictures]
        data: dict[str, Any] = {
            name: np.array([self.transformer.preprocess(name, one) for one in pieces])
        }
        out = self.forward_all(**data)[self.outputs[0]]
        return out.reshape(len(pictures), 10, -1).mean(1) if oversample else out
