"""Arrays to the messages BlobProto, BlobProtoVector and Datum of caffe.proto, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.errors import ShapeError
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


def _messages() -> Any:
    from minicaffe.interop.pycaffe.proto import caffe_pb2

    return caffe_pb2
