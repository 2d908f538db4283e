"""caffe.Detector: what is seen in windows of pictures, each cut out and resized to a net's input (R-CNN)."""

import importlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.errors import MinicaffeError, SpecError
from minicaffe.interop.pycaffe.classifier import PictureNet
from minicaffe.interop.pycaffe.io import ArrayError, load_image, resize_image

Window = Sequence[int]  # ymin, xmin, ymax, xmax; the maxima are outside


class Detector(PictureNet):
    """A deploy net whose first input takes windows of pictures and whose first output is what is in them.

    `mean`, `input_scale`, `raw_scale` and `channel_swap` are those of io.Transformer, kept as `transformer`.
    `context_pad`: so many pixels on each side of the input show what surrounds the window, the mean where
    the picture ends.
    """

    def __init__(
        self,
        model_file: str | Path,
        pretrained_file: str | Path | None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ):
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(
        self, images_windows: Iterable[tuple[str, Sequence[Window]]]
    ) -> list[dict[str, Any]]:
        """The output for each window of each picture: [{"filename", "window", "prediction"}, ...].

        Given are names of files, each with its windows (ymin, xmin, ymax, xmax).
        """
        detections, pieces = [], []
        for filename, windows in images_windows:
            image = load_image(filename)
            for window in windows:
                pieces.append(self.crop(image, window))
                detections.append({"window": window, "filename": filename})
        if not detections:
            return []
        pairs = zip(detections, self.scores(pieces), strict=True)
        return [one | {"prediction": row} for one, row in pairs]

    def detect_selective_search(self, image_fnames: Iterable[str]) -> list[dict[str, Any]]:
        """`detect_windows` with the windows of the package selective_search_ijcv_with_python (MATLAB)."""
        names = [os.path.abspath(name) for name in image_fnames]
        try:
            search = importlib.import_module("selective_search_ijcv_with_python")
        except ImportError:
            raise MinicaffeError(
                "selective search is the package selective_search_ijcv_with_python, which needs MATLAB and is "
                "not installed; give windows of any other source to detect_windows"
            ) from None
        windows = search.get_windows(names, cmd="selective_search_rcnn")
        return self.detect_windows(zip(names, windows, strict=True))

    def crop(self, im: np.ndarray, window: Window) -> np.ndarray:
        """A window of a picture (h, w, c), or, with context, it and what surrounds it at the input's size."""
        ends = [int(end) for end in window]
        if not self.context_pad:
            piece = im[ends[0] : ends[2], ends[1] : ends[3]]
            if min(ends) < 0 or not piece.size:
                raise ArrayError(f"the window {ends} is not in a picture of {im.shape[:2]}")
            return piece
        axes = zip(ends[:2], ends[2:], im.shape[:2], self.crop_dims[:2], strict=True)
        sides = [_with_context(*axis, self.context_pad) for axis in axes]
        (rows, y, height), (columns, x, width) = sides
        piece = im[rows, columns]
        if not piece.size or min(height, width) < 1:
            raise ArrayError(f"the window {ends} is not in a picture of {im.shape[:2]}")
        picture = self.crop_mean.copy()
        picture[y : y + height, x : x + width] = resize_image(piece, (height, width))
        return picture

    def configure_crop(self, context_pad: int | None) -> None:
        """Set how much context windows have, and what stands where there is none: the mean of the input."""
        name = self.inputs[0]
        channels, *size = self.blobs[name].data.shape[1:]
        if context_pad and not 0 <= 2 * context_pad < min(size):
            problem = f"expected less than half of {min(size)}, got {context_pad}"
            raise SpecError(f"context_pad: {problem}")
        self.crop_dims, self.context_pad = np.array([*size, channels]), context_pad
        nothing = np.zeros((channels, *size), np.float32)
        self.crop_mean = np.float32(self.transformer.deprocess(name, nothing))


def _with_context(low: int, high: int, length: int, size: int, pad: int) -> tuple[slice, int, int]:
    """One side of a window made wider: what is taken of the picture, where it is put, and how many pixels.

    The window and its context take `size` pixels, of which `pad` on each end are context; both ends of the
    window count as inside, as in R-CNN.
    """
    half = (high - low + 1) / 2
    wide = half * size / (size - 2 * pad)
    first, last = round(low + half - wide), round(low + half + wide)
    scale = size / (last - first + 1)
    start = round(max(0, -first) * scale)
    first, last = max(first, 0), min(last, length)
    return slice(first, last), start, min(round((last - first + 1) * scale), size - start)
