"""Other runtimes for the nets that minicaffe writes: OpenCV 4, onnxruntime, OpenVINO; no line of minicaffe.

Started with settings as JSON it measures the peak memory of one of them; the answer is the last line printed.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from machine import peak_memory


class RefusedError(Exception):
    """Why a runtime cannot compute a net."""


def inputs(folder: Path) -> dict[str, np.ndarray]:
    """What a net is given, by name."""
    return dict(np.load(folder / "inputs.npz"))


def opencv(folder: Path, threads: int) -> Callable:
    """A forward pass in OpenCV 4, whose importer reads what minicaffe writes. Raises RefusedError."""
    import cv2

    cv2.setNumThreads(threads)
    given, outputs = inputs(folder), json.loads((folder / "outputs.json").read_text())
    try:
        net = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
        last = list(net.getUnconnectedOutLayersNames())
    except (cv2.error, AttributeError) as error:
        raise RefusedError(" ".join(str(error).split())[:160]) from None

    def call():
        for name, array in given.items():
            net.setInput(array, name)
        found = dict(zip(last, net.forward(last), strict=True))
        return [found[producer] for producer in outputs]

    try:
        call()
    except (cv2.error, ValueError) as error:
        raise RefusedError(" ".join(str(error).split())[:160]) from None
    return call


def onnxruntime(folder: Path, threads: int) -> Callable:
    """A forward pass in onnxruntime, of what `minicaffe export` writes. Raises RefusedError."""
    import onnxruntime as runtime

    path = folder / "net.onnx"
    if not path.exists():
        raise RefusedError("minicaffe export refuses it")
    given, options = inputs(folder), runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {one.name: one.type for one in session.get_inputs()}
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    feed = {
        name: array.astype(kinds[wanted[name]]) for name, array in given.items() if name in wanted
    }
    return lambda: session.run(None, feed)


def openvino(folder: Path, threads: int) -> Callable:
    """A forward pass in OpenVINO, of the same file, in float32. Raises RefusedError."""
    import openvino as runtime

    path = folder / "net.onnx"
    if not path.exists():
        raise RefusedError("minicaffe export refuses it")
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    settings |= {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    given = inputs(folder)
    try:
        model = runtime.Core().compile_model(str(path), "CPU", settings)
        request = model.create_infer_request()
        wanted = {one.any_name: one.element_type.to_dtype() for one in model.inputs}
        feed = {name: given[name].astype(kind) for name, kind in wanted.items()}
        request.infer(feed)
    except RuntimeError as error:
        raise RefusedError(" ".join(str(error).split())[:160]) from None
    return lambda: [value.copy() for value in request.infer(feed).to_tuple()]


RUNTIMES = {"opencv": opencv, "onnxruntime": onnxruntime, "openvino": openvino}
PACKAGES = {"opencv": "cv2", "onnxruntime": "onnxruntime", "openvino": "openvino"}


def memory(who: str, folder: str, threads: int) -> dict[str, float]:
    """Peak memory of this process in MiB, with one of them: of its imports, and of all of two passes."""
    importlib.import_module(PACKAGES[who])
    imports, call = peak_memory(), RUNTIMES[who](Path(folder), threads)
    for _ in range(2):
        call()
    return {"imports": imports, "peak": peak_memory()}


if __name__ == "__main__":
    print(json.dumps(memory(**json.loads(sys.argv[1]))))
