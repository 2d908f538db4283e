"""caffe.Classifier: classes of pictures, by one piece of each or by ten."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.interop.pycaffe import io
from minicaffe.interop.pycaffe.net import Net


class PictureNet(Net):
    """A deploy net whose first input takes pictures (h, w, c), made ready by `transformer`."""

    def __init__(self, model_file: str | Path, pretrained_file: str | Path | None, *values: Any):
        """`values` are what the Transformer is given, None for what it is not. Raises ArrayError."""
        super().__init__(model_file, 1, weights=pretrained_file)
        if not self.inputs:
            remedy = "give the deploy net, not one that reads data"
            raise io.ArrayError(f"the net has no input for pictures: {remedy}")
        name = self.inputs[0]
        size = self.blobs[name].shape
        if len(size) != 4:
            raise io.ArrayError(f"{name}: expected an input for pictures, (n, c, h, w), got {size}")
        self.transformer = io.Transformer({name: size})
        self.transformer.set_transpose(name, (2, 0, 1))
        keys = "mean", "input_scale", "raw_scale", "channel_swap"
        for key, value in zip(keys, values, strict=True):
            if value is not None:
                getattr(self.transformer, f"set_{key}")(name, value)

    def scores(self, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """The first output for pieces of pictures, each as it is."""
        name = self.inputs[0]
        ready: Any = np.array([self.transformer.preprocess(name, one) for one in pieces])
        return self.forward_all(**{name: ready})[self.outputs[0]]


class Classifier(PictureNet):
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
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = tuple(self.crop_dims if image_dims is None else image_dims)

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """The output for pictures (h, w, c), (n, classes).

        Of each picture the piece in the middle, or, with `oversample`, the mean over ten pieces: corners and
        middle, and these mirrored.
        """
        if len(inputs) == 0:
            raise io.ArrayError("expected pictures to classify, got none")
        pictures = [io.resize_image(one, self.image_dims) for one in inputs]
        size = tuple(self.crop_dims)
        if not oversample:
            return self.scores([io.middle(one, size) for one in pictures])
        out = self.scores(list(io.oversample(pictures, size)))
        return out.reshape(len(pictures), 10, -1).mean(1)
