"""`caffe.io`: pictures read and made ready for a net, arrays as messages of caffe.proto."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.core.layers.blob import numbers
from minicaffe.errors import ShapeError, SpecError, UnknownNameError, did_you_mean
from minicaffe.tools.data import picture_files

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class ArrayError(ShapeError, ValueError):
    """An array of the wrong shape; also a ValueError, as in Caffe."""


def blobproto_to_array(blob: Any, return_diff: bool = False) -> np.ndarray:
    """The numbers of a BlobProto, or its gradient's, in float64 and in its shape.

    The shape is `shape`, or num, channels, height and width where one of these is given. Raises ArrayError
    where it does not fit the numbers.

    >>> blobproto_to_array(array_to_blobproto(np.array([[1, 2.5]])))
    array([[1. , 2.5]])
    """
    single, double = (blob.diff, blob.double_diff) if return_diff else (blob.data, blob.double_data)
    numbers = np.array(double if double else single, np.float64)
    old = ("num", "channels", "height", "width")
    legacy = any(blob.HasField(name) for name in old)
    shape = tuple(getattr(blob, name) for name in old) if legacy else tuple(blob.shape.dim)
    return _shaped(numbers, shape, "BlobProto")


def array_to_blobproto(arr: ArrayLike, diff: ArrayLike | None = None) -> Any:
    """A BlobProto of an array, and of a gradient of its shape if one is given; the numbers become float32."""
    array = np.asarray(arr)
    blob = _messages().BlobProto()
    blob.shape.dim.extend(array.shape)
    blob.data.extend(array.astype(float).ravel().tolist())
    if diff is not None:
        gradient = np.asarray(diff, float)
        if gradient.shape != array.shape:
            raise ArrayError(f"diff: expected the shape {array.shape}, got {gradient.shape}")
        blob.diff.extend(gradient.ravel().tolist())
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[ArrayLike]) -> bytes:
    """The bytes of a BlobProtoVector of arrays."""
    blobs = [array_to_blobproto(array) for array in arraylist]
    return _messages().BlobProtoVector(blobs=blobs).SerializeToString()


def blobprotovector_str_to_arraylist(str: bytes) -> list[np.ndarray]:
    """The arrays in the bytes of a BlobProtoVector.

    >>> blobprotovector_str_to_arraylist(arraylist_to_blobprotovector_str([[1], [2, 3]]))
    [array([1.]), array([2., 3.])]
    """
    return [blobproto_to_array(blob) for blob in _messages().BlobProtoVector.FromString(str).blobs]


def array_to_datum(arr: np.ndarray, label: int | None = None) -> Any:
    """A Datum of an array (c, h, w): of uint8 as bytes, of any other type as float32.

    >>> datum = array_to_datum(np.zeros((3, 4, 5), np.uint8), label=7)
    >>> datum.height, len(datum.data), datum.label
    (4, 60, 7)
    """
    if arr.ndim != 3:
        raise ArrayError(f"a Datum is of shape (channels, height, width), got {arr.shape}")
    datum = _messages().Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(float).ravel().tolist())
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Any) -> np.ndarray:
    """The picture of a Datum, (c, h, w): uint8 of bytes, else float64. An encoded one has blue first."""
    if datum.encoded:
        picture = picture_files.decode(datum.data, "the Datum", "as it is")
        return np.ascontiguousarray(picture.transpose(2, 0, 1))
    numbers = np.array(datum.float_data, np.float64)
    if datum.data:
        numbers = np.frombuffer(datum.data, np.uint8).copy()
    return _shaped(numbers, (datum.channels, datum.height, datum.width), "Datum")


def _shaped(numbers: np.ndarray, shape: tuple[int, ...], what: str) -> np.ndarray:
    try:
        return numbers.reshape(shape)
    except ValueError:
        raise ArrayError(f"a {what} of shape {shape} holds {numbers.size} numbers") from None


LUMA = np.array([0.2125, 0.7154, 0.0721])  # of red, green and blue, as scikit-image weighs them


def load_image(filename: str | Path, color: bool = True) -> np.ndarray:
    """A picture from 0 to 1: (h, w, 3), red first, or for `color=False` its brightness, (h, w, 1).

    A grey picture is given three times for `color=True`; white shows where it is transparent. Raises
    DataError for a file that is no picture.
    """
    pixels = picture_files.read(filename, "colour" if color else "own")
    picture = np.float32(pixels[:, :, 2::-1] / 255)
    return picture if color or picture.shape[2] == 1 else np.float32(picture @ LUMA)[:, :, None]


def resize_image(im: np.ndarray, new_dims: Sequence[int], interp_order: int = 1) -> np.ndarray:
    """A picture (h, w, c) at another height and width, bilinear, or nearest for `interp_order=0`; float32.

    As Caffe, which leaves pictures of 1 and 3 channels to scikit-image and all others to SciPy's zoom, it
    maps the middle of pixels onto the middle of pixels for the former and the outermost pixels onto the
    outermost for the latter; nothing is smoothed before it is made smaller. Beyond the border lies the
    border's own pixel.

    >>> resize_image(np.array([[[0.0], [1.0]]]), (1, 4))[0, :, 0]
    array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    >>> resize_image(np.array([[[0.0, 0.0], [1.0, 1.0]]]), (1, 3))[0, :, 0]
    array([0. , 0.5, 1. ], dtype=float32)
    """
    im = numbers(im, "a picture", "(h, w, c)")
    sizes = tuple(int(size) for size in new_dims)
    if im.ndim != 3 or len(sizes) != 2 or min(*sizes, *im.shape) < 1:
        raise ArrayError(f"expected (h, w, c) and (height, width), got {im.shape} and {sizes}")
    if interp_order not in (0, 1):
        raise SpecError(f"interp_order: expected 0 (nearest) or 1 (bilinear), got {interp_order}")
    middles = im.shape[2] in (1, 3)
    for axis, size in enumerate(sizes):
        had = im.shape[axis]
        if middles:
            at = ((np.arange(size) + 0.5) * had / size - 0.5).clip(0, had - 1)
        else:
            at = np.linspace(0, had - 1, size)
        if interp_order == 0:
            im = im.take(np.floor(at + 0.5).astype(int), axis)
            continue
        low = np.floor(at).astype(int)
        share = (at - low).reshape(-1, *(1,) * (2 - axis))
        im = (1 - share) * im.take(low, axis) + share * im.take(np.minimum(low + 1, had - 1), axis)
    return im.astype(np.float32)


def oversample(images: Sequence[np.ndarray], crop_dims: Sequence[int]) -> np.ndarray:
    """Ten pieces of each picture, (10 n, h, w, c): the corners and the middle, then the same mirrored.

    The corners come in the order top left, top right, bottom left, bottom right. Raises ArrayError where
    pictures are smaller than a piece.
    """
    pieces, (height, width) = [], crop_dims
    rows, columns = (slice(height), slice(-height, None)), (slice(width), slice(-width, None))
    for image in images:
        five = [*(image[y, x] for y in rows for x in columns), middle(image, crop_dims)]
        pieces += [*five, *(piece[:, ::-1] for piece in five)]
    return np.array(pieces, np.float32)


def middle(image: np.ndarray, crop_dims: Sequence[int]) -> np.ndarray:
    """The piece of (height, width) in the middle of a picture. Raises ArrayError where it is smaller."""
    height, width = crop_dims
    rows, columns = image.shape[:2]
    if not (0 < height <= rows and 0 < width <= columns):
        raise ArrayError(f"no piece of {height} x {width} lies in a picture of {rows} x {columns}")
    y, x = (rows - height) // 2, (columns - width) // 2
    return image[y : y + height, x : x + width]


class Transformer:
    """What is done to the pictures for each input of a net, given by name and shape.

    In this order: resized to the input's height and width; `transpose`, (2, 0, 1) for pictures (h, w, c);
    `channel_swap`, (2, 1, 0) for blue first; times `raw_scale`, 255 for pictures from 0 to 1; minus `mean`;
    times `input_scale`. What is not set is not done.

    >>> transformer = Transformer({"data": (1, 3, 2, 2)})
    >>> transformer.set_transpose("data", (2, 0, 1))
    >>> transformer.set_raw_scale("data", 255)
    >>> transformer.set_mean("data", np.array([104.0, 117.0, 123.0]))
    >>> transformer.preprocess("data", np.ones((4, 4, 3)))[:, 0, 0]
    array([151., 138., 132.], dtype=float32)
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, Any] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, Any] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """A picture (h, w, c) as the input `in_` takes one, (c, h, w) of float32; `data` stays as it is."""
        size = self._shape(in_)[2:]
        picture = np.array(numbers(data, in_, self.inputs[in_]), np.float32)
        if picture.shape[:2] != size:
            picture = resize_image(picture, size)
        if in_ in self.transpose:
            if picture.ndim != (axes := len(self.transpose[in_])):
                raise ArrayError(f"{in_}: expected a picture of {axes} axes, got {picture.shape}")
            picture = picture.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            if len(picture) != (channels := len(self.channel_swap[in_])):
                raise ArrayError(f"{in_}: expected {channels} channels, got {len(picture)}")
            picture = picture[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            picture = picture * np.float32(self.raw_scale[in_])
        if in_ in self.mean:
            picture = picture - self.mean[in_]
        if in_ in self.input_scale:
            picture = picture * np.float32(self.input_scale[in_])
        return picture.astype(np.float32, copy=False)

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """What `preprocess` gave, or a batch of one such, as a picture again, of the input's size."""
        picture = np.array(data)
        if picture.ndim == len(self._shape(in_)) and len(picture) == 1:
            picture = picture[0]
        if in_ in self.input_scale:
            picture = picture / self.input_scale[in_]
        if in_ in self.mean:
            picture = picture + self.mean[in_]
        if in_ in self.raw_scale:
            picture = picture / self.raw_scale[in_]
        if in_ in self.channel_swap:
            picture = picture[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            picture = picture.transpose(np.argsort(self.transpose[in_]))
        return picture

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set which axis of a picture each axis of the input (without the batch) is."""
        self.transpose[in_] = self._order(in_, order, len(self._shape(in_)) - 1, "axes")

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set which channel of a picture each channel of the input is, once transposed."""
        self.channel_swap[in_] = self._order(in_, order, self._shape(in_)[1], "channels")

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Set what a picture is multiplied by before the mean is taken off."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Set what is taken off: a number per channel, or an array (c, h, w), resized if it must be."""
        shape, mean = self._shape(in_), np.asarray(mean)
        if mean.ndim == 2:
            mean = mean[None]
        if mean.ndim not in (1, 3):
            raise ArrayError(f"{in_}: a mean has the shape (c,) or (c, h, w), got {mean.shape}")
        if mean.shape[0] != shape[1]:
            raise ArrayError(f"{in_}: expected a mean of {shape[1]} channels, got {mean.shape[0]}")
        if mean.ndim == 1:
            mean = mean[:, None, None]
        elif mean.shape != shape[1:]:
            mean = resize_image(mean.transpose(1, 2, 0), shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Set what all is multiplied by in the end."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def _shape(self, in_: str) -> tuple[int, ...]:
        if in_ not in self.inputs:
            problem = f"{', '.join(self.inputs)}{did_you_mean(str(in_), self.inputs)}"
            raise UnknownNameError(f"{in_!r} is not one of the net's inputs: {problem}")
        return self.inputs[in_]

    def _order(self, in_: str, order: Sequence[int], count: int, what: str) -> Sequence[int]:
        if sorted(order) != list(range(count)):
            raise ArrayError(f"{in_}: expected an order of {count} {what}, got {tuple(order)}")
        return order


def _messages() -> Any:
    from minicaffe.interop.pycaffe.proto import caffe_pb2

    return caffe_pb2


def __getattr__(name: str) -> Any:
    if name != "caffe_pb2":  # scripts reach it from here too
        raise AttributeError(f"module 'minicaffe.pycaffe.io' has no attribute {name!r}")
    return _messages()
