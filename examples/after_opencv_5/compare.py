"""Four nets of the kinds that people ran with cv2.dnn.readNetFromCaffe: minicaffe, onnxruntime and OpenCV.

    python examples/after_opencv_5/compare.py

Each net, beside this script, gets weights by chance and is exported with a dynamic batch, height and width;
the classifier with a dynamic batch, for its fully connected layers want one size. Inputs of chance, of two
sizes, then go through minicaffe, onnxruntime and OpenCV: 4 reads the Caffe files, 5 the ONNX file. Differences
are parts of the largest number. Writes results/opencv_4.json or opencv_5.json; ends with 1 above 1e-4.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import cv2
import numpy as np
import onnxruntime
from machine import describe, version
from measure import digits, write
from minicaffe.caffe import read
from minicaffe.export import to_onnx

from minicaffe import Net

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-4
IMAGES = ("batch", "height", "width")
NETS = {  # name: the axes that are dynamic, and two shapes
    "classifier": (("batch",), (1, 3, 64, 64), (3, 3, 64, 64)),
    "faces": (IMAGES, (1, 3, 96, 96), (2, 3, 128, 96)),
    "pose": (IMAGES, (1, 3, 64, 64), (1, 3, 96, 64)),
    "colour": (IMAGES, (1, 1, 64, 64), (2, 1, 48, 80)),
}


def made(name: str) -> Net:
    """The net with weights by chance; a BatchNorm has seen a mean of 1, a variance of 5000."""
    net = Net(read(HERE / f"{name}.prototxt"), "TEST", device="cpu", deterministic=True)
    for step in net.steps:
        if step.spec.type == "BatchNorm":
            for param, value in zip(step.layer.params, (1, 5000, 1), strict=True):
                param.data[...] = value
    return net


def trimmed(array: np.ndarray) -> np.ndarray:
    """An array; of boxes those that were found: OpenCV 4 has rows of 0 behind them."""
    return array[:, :, array[0, 0, :, 2] > 0] if array.shape[-1] == 7 else array


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest number; infinite where the shapes differ."""
    if found.shape != wanted.shape:
        return float("inf")
    return float(np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max())


def compared(name: str, folder: Path) -> dict:
    """What is told of one net: of each size and each reader the difference."""
    (dynamic, *shapes), net = NETS[name], made(name)
    text, weights = str(HERE / f"{name}.prototxt"), str(folder / f"{name}.caffemodel")
    onnx = str(folder / f"{name}.onnx")
    net.save(weights)
    to_onnx(net, onnx, dynamic=dynamic)
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    if hasattr(cv2.dnn, "readNetFromCaffe"):
        opencv = cv2.dnn.readNetFromCaffe(text, weights)
    else:
        opencv = cv2.dnn.readNetFromONNX(onnx)
    blob, runs = net.steps[0].tops[0].name, []
    last = [step.spec.name for step in net.steps if step.tops][
        -1
    ]  # before the colouriser's Silence
    for shape in shapes:
        x = np.random.default_rng(5).uniform(-120, 130, shape).astype(np.float32)
        net.reshape(**{blob: shape})
        (ours,) = net.forward(end=last, **{blob: x}).values()
        opencv.setInput(x)
        theirs = {"onnxruntime": session.run(None, {blob: x})[0], "opencv": opencv.forward()}
        run = {"shape": list(shape), "output": list(ours.shape)}
        differ = {who: relative(trimmed(out), trimmed(ours)) for who, out in theirs.items()}
        runs.append(run | {who: digits(value) for who, value in differ.items()})
    return {"dynamic": list(dynamic), "runs": runs}


def main() -> int:
    """Compare, write the result file, say whether all is within the tolerance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    major = cv2.__version__.partition(".")[0]
    default = HERE / "results" / f"opencv_{major}.json"
    parser.add_argument("--out", type=Path, default=default, help=f"default: {default.name}")
    args = parser.parse_args()
    machine = describe()
    versions = {"opencv": cv2.__version__, "onnx": version("onnx")}
    versions["onnxruntime"] = onnxruntime.__version__
    with tempfile.TemporaryDirectory() as folder:
        nets = {name: compared(name, Path(folder)) for name in NETS}
    write(args.out, {"machine": machine | versions, "tolerance": TOLERANCE, "nets": nets})
    worst = 0.0
    for name, told in nets.items():
        for run in told["runs"]:
            print(name, run)
            worst = max([worst, *(value for value in run.values() if isinstance(value, float))])
    print(f"the largest difference is {worst} of the largest number")
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
