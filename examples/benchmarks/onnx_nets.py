"""Nets through ONNX: models/ as onnxruntime computes them, and torchvision's as minicaffe reads them.

    python examples/benchmarks/onnx_nets.py export                       some 5 minutes on 2 CPU cores
    python examples/benchmarks/onnx_nets.py import                       some 10 minutes
    python examples/benchmarks/onnx_nets.py import --only resnet18 cases     these anew, others as they were

`export` compares every blob of the nets of models/, at their own sizes. Weights are as the fillers draw them,
but that BatchNorms remember what the random input gives, and that what fillers leave at zero is random.
`import` has torch.onnx.export write nets of torchvision with random weights, which become net.prototxt and
net.caffemodel once each blob is as onnxruntime computes it; with OpenCV below 5 what it reads of the Caffe
files is compared as well. `cases` are those of the package onnx for each operator, judged as
tests/interop/onnx/reader/test_onnx_cases.py does. Each net has a process of its own. Results go to
results/onnx_export.json and onnx_import.json after each.
"""

import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, free_process, version
from measure import ROOT, in_time, kept, parsed, parser, write
from turns import asked, child, say

from minicaffe import MinicaffeError, Net
from minicaffe.interop.onnx.writer import check

ROUNDING = 1e-5  # where blobs are farther apart, both are compared with a net of float64
LEFT_OUT = ("lenet_paper",)  # whose net is another way to lenet's
CLASSIFIERS = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "vgg16", "squeezenet1_1"),
    *("shufflenet_v2_x1_0", "googlenet", "densenet121", "efficientnet_b0", "regnet_y_400mf"),
    *("mnasnet0_5", "inception_v3", "convnext_tiny"),
)
SEGMENTERS = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
SIZES = {"inception_v3": 299} | dict.fromkeys(SEGMENTERS, 128)
OPENCV_TARGET = "caffe"  # its layers alone: OpenCV knows no round_mode, Clip or ReLU6
MODELS = [path.stem for path in sorted((ROOT / "models").glob("*.yaml"))]
NETS = {
    "export": [name for name in MODELS if name not in LEFT_OUT],
    "import": [*CLASSIFIERS, *SEGMENTERS, "cases"],
}
PACKAGES = {
    "export": ("onnx", "onnxruntime"),
    "import": ("torch", "torchvision", "onnx", "onnxruntime"),
}


def main() -> None:
    free_process()
    if settings := asked():
        say(measured(**settings))
        return
    words = parser(__doc__)
    words.add_argument("way", choices=[*NETS])
    words.add_argument("--only", nargs="+", metavar="NET", help="nets; default: all")
    args = parsed(words)
    known = NETS[args.way]
    if unknown := set(args.only or ()) - set(known):
        words.error(f"unknown net {min(unknown)!r}; there are {', '.join(known)}")
    path = args.into / f"onnx_{args.way}.json"
    found = kept(path) or {"nets": {}}
    found["quick"] = args.quick
    found["machine"] = describe() | {name: version(name) for name in PACKAGES[args.way]}
    found["machine"] |= {"opencv": version("cv2")} if args.way == "import" else {}
    for name in in_time(args.only or known, args.until):
        row = child("onnx_nets.py", {"way": args.way, "name": name})
        if name == "cases":
            found["cases"] = row
            print(f"cases: {len(row)} operators")
        else:
            found["nets"][name] = row
            print(f"{name}: {row}")
        size = lambda item: (item[1].get("parameters", 0), item[0])  # noqa: E731
        found["nets"] = dict(sorted(found["nets"].items(), key=size))
        write(path, found)


def measured(way: str, name: str) -> dict[str, Any]:
    """The row of a net, or of the operators' cases."""
    if way == "export":
        return exported(name)
    return cases() if name == "cases" else imported(name)


def exported(name: str) -> dict[str, Any]:
    """A net of models/ written, read by onnxruntime, and compared blob by blob."""
    import onnx
    import onnxruntime

    from minicaffe.core.layers.recurrent import Recurrent
    from minicaffe.interop.onnx.writer import to_onnx
    from minicaffe.interop.onnx.writer.onnx import inferring

    start = time.perf_counter()
    net, _ = inferring(str(ROOT / "models" / f"{name}.yaml"))
    arrays = check.drawn(net)
    brought_to_life(net, arrays)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.onnx")
        to_onnx(net, path)
        model, size = onnx.load(path), path.stat().st_size
    written = {output for node in model.graph.node for output in node.output}
    blobs = [blob for blob in net.blobs if blob in written]
    for blob in set(blobs) - {output.name for output in model.graph.output}:
        model.graph.output.append(onnx.helper.make_tensor_value_info(blob, 1, None))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = dict(zip(blobs, session.run(blobs, arrays), strict=True))
    for layer in net.layers.values():
        if isinstance(layer, Recurrent):
            layer.reset()  # to begin with zeros, as a file does
    net.forward(**arrays)
    apart = {blob: check.difference(found[blob], net.blobs[blob].data) for blob in blobs}
    worst = max(apart, key=apart.__getitem__)
    told = {
        "input": {blob: list(array.shape) for blob, array in arrays.items()},
        "parameters": sum(param.size for param in net.learnable),
        "nodes": len(model.graph.node),
        "mib": size / 2**20,
        "blobs": len(blobs),
        "outputs": max(apart[output] for output in net.outputs),
        "blob": worst,
        "worst": apart[worst],
        "seconds": time.perf_counter() - start,
    }
    if apart[worst] > ROUNDING:
        exact = Net(net.spec, "TEST", device="cpu", dtype="float64", deterministic=True)
        exact.load(net.weights())
        exact.forward(**arrays)
        both = {"minicaffe": net.blobs[worst].data, "onnxruntime": found[worst]}
        wanted = exact.blobs[worst].data
        told["from_float64"] = {who: check.difference(data, wanted) for who, data in both.items()}
    return told


def brought_to_life(net, arrays: dict) -> None:
    """Let every blob of a net that has not been trained hold numbers of a usual size."""
    random = np.random.default_rng(0)
    net.forward(end=net.steps[0].spec.name, **arrays)
    for step in net.steps:
        if step.spec.type == "BatchNorm":
            x = step.bottoms[0].blob.data
            axes = tuple(axis for axis in range(x.ndim) if axis != 1)
            variance = x.var(axis=axes)
            seen = x.mean(axis=axes), variance + variance.mean(), np.ones(1)  # no channel is still
            for param, values in zip(step.layer.past, seen, strict=True):
                param.load(values)
        for param in step.layer.params[:1]:
            if step.spec.type != "BatchNorm" and not param.data.any():
                param.load(
                    random.standard_normal(param.shape) / np.sqrt(param.size / param.shape[0])
                )
        if step.bottoms:
            net.forward(start=step.spec.name, end=step.spec.name)


def model(name: str) -> Any:
    """A net of torch with random weights and statistics."""
    import torch
    import torchvision

    torch.manual_seed(0)
    if name in SEGMENTERS:
        make = getattr(torchvision.models.segmentation, name)
        net = of_scores(make(weights=None, weights_backbone=None))
    else:
        drawn = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        net = getattr(torchvision.models, name)(weights=None, **drawn)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return net.eval()


def of_scores(net: Any) -> Any:
    """A segmenter whose output is the map of scores alone, not a dict of it."""
    import torch

    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x)["out"]

    return Scores()


def imported(name: str) -> dict[str, Any]:
    """A net exported by torch, then read: what was compared and how far it is apart, or why it is refused."""
    import torch

    from minicaffe.interop.onnx.reader import from_onnx

    size = SIZES.get(name, 224)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracer's
            x = torch.randn(1, 3, size, size)
            torch.onnx.export(
                model(name), (x,), path, dynamo=False, opset_version=17, input_names=["input"]
            )
        told: dict[str, Any] = {"input": [1, 3, size, size]}
        try:
            net = from_onnx(path, Path(folder, "net"))
        except MinicaffeError as error:
            return told | {"refused": reason(error)}
        line = net.notes[-1]
        words = re.fullmatch(r"(\d+) blobs .*largest difference is (\S+), of layer '(.*)'", line)
        assert words is not None, line
        told |= {
            "nodes": len(net.source.nodes),
            "layers": len(net.spec.layers),
            "parameters": sum(array.size for array in net.arrays.values()),
            "blobs": int(words[1]),
            "worst": float(words[2]),
            "layer": words[3],
        }
        if version("cv2") is not None and int(str(version("cv2")).partition(".")[0]) < 5:
            told["opencv"] = by_opencv(path, Path(folder, "for_opencv"))
    return told


def by_opencv(path: Path, out: Path) -> dict[str, Any]:
    """How far the outputs of OpenCV are, which reads the Caffe files; or why there are none."""
    import cv2

    from minicaffe.interop.onnx.reader import from_onnx

    try:
        imported = from_onnx(path, out, target=OPENCV_TARGET)
    except MinicaffeError as error:
        return {"refused": reason(error)}
    try:
        theirs = cv2.dnn.readNetFromCaffe(f"{out}.prototxt", f"{out}.caffemodel")
        net = imported.net()
        arrays = check.drawn(net)
        (array,) = arrays.values()
        theirs.setInput(array)
        outputs = [imported.tensors[name] for name in imported.source.outputs]
        found = theirs.forward(outputs)
    except cv2.error as error:
        return {"refused": " ".join(str(error.err or error).split())[:200]}
    net.forward(**arrays)
    apart = [
        check.difference(np.asarray(other).reshape(net.blobs[name].shape), net.blobs[name].data)
        for name, other in zip(outputs, found, strict=True)
    ]
    return {"layers": len(imported.spec.layers), "outputs": max(apart)}


def reason(error: MinicaffeError) -> str:
    """Why a model is refused, without its file, its node and what else is refused.

    >>> reason(MinicaffeError("a.onnx: node 'x' (Erf): no layer (and 2 other nodes are refused)"))
    'no layer'
    """
    text = re.sub(
        r"( \(and \d+ other nodes are refused\))?(; nothing was written)?$", "", str(error)
    )
    text = re.sub(r"^\S+\.onnx: ", "", text)
    return re.sub(r"^(a node \w+( of '[^']*')?|node '[^']*'( \(\w+\))?): ", "", text)


def cases() -> dict[str, Any]:
    """Of each operator: the cases that are right, refused by reason, wrong, and those not converted down."""
    sys.path[:0] = [str(ROOT / "tests" / "interop" / "onnx" / "reader")]
    import test_onnx_cases as judge

    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, some in sorted(judge.cases().items()):
            counts: dict[str, Any] = {"right": 0, "wrong": [], "later_opset": 0}
            refused = Counter[str]()
            for case in some:
                try:
                    result = judge.outcome(case, Path(folder, "case.onnx"))
                except RuntimeError:  # of the package's converter
                    counts["later_opset"] += 1
                    continue
                if isinstance(result, float):
                    right = result < judge.most(case)
                    counts["right"] += right
                    counts["wrong"] += [] if right else [case.name]
                else:
                    refused[reason(result) if result else "a type that NumPy lacks"] += 1
            told[kind] = counts | {"refused": dict(refused.most_common())}
    return told


if __name__ == "__main__":
    main()
