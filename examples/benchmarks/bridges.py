"""Models of ONNX read as nets: torchvision's, a detector's body, and the operator cases of the onnx package.

    python examples/benchmarks/bridges.py                          some 10 minutes on 2 CPU cores
    python examples/benchmarks/bridges.py --only resnet18 vgg16    these anew, the others as they were
    python examples/benchmarks/bridges.py --only cases

Needs torch, torchvision, onnx, onnxruntime and pytest; with OpenCV below 5 what it reads of Caffe files that
are written for `target="caffe"` is compared as well. Weights and the statistics of BatchNorms are random. The
file of torch.onnx.export becomes net.prototxt and net.caffemodel, which `from_onnx` writes once each blob is
as onnxruntime computes it. The operator cases are judged as tests/interop/onnx/reader/test_onnx_cases.py
does. Results go to results/bridges.json after each net, which has a process of its own.
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, free_process, version
from measure import ROOT, write

from minicaffe import MinicaffeError
from minicaffe.interop.onnx.reader import from_onnx
from minicaffe.interop.onnx.writer import check

RESULTS = Path(__file__).resolve().parent / "results" / "bridges.json"
CLASSIFIERS = (
    *("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "vgg16", "squeezenet1_1"),
    *("shufflenet_v2_x1_0", "googlenet", "densenet121", "efficientnet_b0", "regnet_y_400mf"),
    *("mnasnet0_5", "inception_v3", "convnext_tiny"),
)
SEGMENTERS = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
NETS = (*CLASSIFIERS, *SEGMENTERS, "yolo")
SIZES = {"inception_v3": 299, "yolo": 160} | dict.fromkeys(SEGMENTERS, 128)
PACKAGES = ("torch", "torchvision", "onnx", "onnxruntime")
DECLARED: list[Any] = []  # operators, as long as they are held
OPENCV_TARGET = "caffe"  # its layers alone: OpenCV knows no round_mode, Clip or ReLU6


def main() -> None:
    free_process()
    args = arguments()
    if args.one:
        print(json.dumps(cases() if args.one == "cases" else measured(args.one)))
        return
    path = args.into / RESULTS.name
    found = json.loads(path.read_text()) if path.exists() else {"nets": {}, "cases": {}}
    versions = {name: version(name) for name in PACKAGES if name != "torchvision"}
    found["machine"] = describe() | versions | {"opencv": version("cv2")}
    for name in args.only:
        command = [sys.executable, __file__, "--one", name]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(child.stdout.splitlines()[-1])
        if name == "cases":
            found["cases"] = told
            print(f"cases: {totals(told)}")
        else:
            found["nets"][name] = told
            found["machine"]["torchvision"] = told.pop("torchvision")
            print(f"{name}: {told}")
        found["nets"] = {net: found["nets"][net] for net in NETS if net in found["nets"]}
        write(path, found)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*NETS, "cases"]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NET")
    parser.add_argument("--into", type=Path, default=RESULTS.parent, help="a folder")
    parser.add_argument("--one", choices=names, help=argparse.SUPPRESS)
    return parser.parse_args()


def torchvision() -> Any:
    """The package torchvision.

    A wheel built for another torch has no compiled operators, and then cannot be imported; its models need
    none. The two that the import asks for are declared, without a body, before it is tried again.
    """
    import torch

    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        DECLARED.append(library)
    for name in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[name]
    return importlib.import_module("torchvision")


def model(name: str) -> Any:
    """A net of torch with random weights and statistics."""
    import torch

    torch.manual_seed(0)
    if name == "yolo":
        net = yolo()
    elif name in SEGMENTERS:
        make = getattr(torchvision().models.segmentation, name)
        net = of_scores(make(weights=None, weights_backbone=None))
    else:
        drawn = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        net = getattr(torchvision().models, name)(weights=None, **drawn)
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


def yolo() -> Any:
    """A detector's body and heads as YOLOv5 has them, a quarter as wide."""
    import torch
    from torch import nn

    def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> Any:
        layers = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(layers, nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())

    class Focus(nn.Module):
        """Every other pixel, four times, as channels."""

        def __init__(self, outputs):
            super().__init__()
            self.conv = conv(12, outputs, 3)

        def forward(self, x):
            parts = [x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)]
            return self.conv(torch.cat(parts, 1))

    class Bottleneck(nn.Module):
        def __init__(self, channels, add):
            super().__init__()
            self.cv1, self.cv2 = conv(channels, channels), conv(channels, channels, 3)
            self.add = add

        def forward(self, x):
            y = self.cv2(self.cv1(x))
            return x + y if self.add else y

    class CSP(nn.Module):
        """Half of the channels through bottlenecks, half beside them."""

        def __init__(self, inputs, outputs, count, add=True):
            super().__init__()
            half = outputs // 2
            self.cv1, self.cv2 = conv(inputs, half), conv(inputs, half)
            self.cv3 = conv(2 * half, outputs)
            self.m = nn.Sequential(*(Bottleneck(half, add) for _ in range(count)))

        def forward(self, x):
            return self.cv3(torch.cat([self.m(self.cv1(x)), self.cv2(x)], 1))

    class SPPF(nn.Module):
        """Maxima of windows of 5, 9 and 13."""

        def __init__(self, channels):
            super().__init__()
            self.cv1, self.cv2 = conv(channels, channels // 2), conv(2 * channels, channels)
            self.pool = nn.MaxPool2d(5, 1, 2)

        def forward(self, x):
            parts = [self.cv1(x)]
            parts += [self.pool(parts[0])]
            parts += [self.pool(parts[1])]
            return self.cv2(torch.cat([*parts, self.pool(parts[2])], 1))

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.eighth = nn.Sequential(
                *(Focus(16), conv(16, 32, 3, 2), CSP(32, 32, 1), conv(32, 64, 3, 2)),
                CSP(64, 64, 2),
            )
            self.sixteenth = nn.Sequential(conv(64, 128, 3, 2), CSP(128, 128, 3))
            self.last = nn.Sequential(conv(128, 256, 3, 2), CSP(256, 256, 1), SPPF(256))
            self.up = nn.Upsample(scale_factor=2, mode="nearest")
            self.lateral5, self.csp4 = conv(256, 128), CSP(256, 128, 1, False)
            self.lateral4, self.csp3 = conv(128, 64), CSP(128, 64, 1, False)
            self.down3, self.csp_n4 = conv(64, 64, 3, 2), CSP(128, 128, 1, False)
            self.down4, self.csp_n5 = conv(128, 128, 3, 2), CSP(256, 256, 1, False)
            self.heads = nn.ModuleList(nn.Conv2d(size, 3 * 85, 1) for size in (64, 128, 256))

        def forward(self, x):
            c3 = self.eighth(x)
            c4 = self.sixteenth(c3)
            p5 = self.lateral5(self.last(c4))
            p4 = self.lateral4(self.csp4(torch.cat([self.up(p5), c4], 1)))
            n3 = self.csp3(torch.cat([self.up(p4), c3], 1))
            n4 = self.csp_n4(torch.cat([self.down3(n3), p4], 1))
            n5 = self.csp_n5(torch.cat([self.down4(n4), p5], 1))
            return [head(n) for head, n in zip(self.heads, (n3, n4, n5), strict=True)]

    return Yolo()


def measured(name: str) -> dict[str, Any]:
    """A net exported by torch, then read: what was compared and how far it is apart, or why it is refused."""
    import warnings

    import torch

    size = SIZES.get(name, 224)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracer's
            x = torch.randn(1, 3, size, size)
            torch.onnx.export(
                model(name), (x,), path, dynamo=False, opset_version=17, input_names=["input"]
            )
        told: dict[str, Any] = {
            "torchvision": torchvision().__version__,
            "input": [1, 3, size, size],
        }
        try:
            imported = from_onnx(path, Path(folder, "net"))
        except MinicaffeError as error:
            return told | {"refused": reason(error)}
        line = imported.notes[-1]
        words = re.fullmatch(r"(\d+) blobs .*largest difference is (\S+), of layer '(.*)'", line)
        assert words is not None, line
        told |= {
            "nodes": len(imported.source.nodes),
            "layers": len(imported.spec.layers),
            "parameters": sum(array.size for array in imported.arrays.values()),
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


def totals(told: dict[str, Any]) -> dict[str, int]:
    """The sums over all operators."""
    return {
        "right": sum(one["right"] for one in told.values()),
        "refused": sum(sum(one["refused"].values()) for one in told.values()),
        "wrong": sum(len(one["wrong"]) for one in told.values()),
        "later_opset": sum(one["later_opset"] for one in told.values()),
    }


if __name__ == "__main__":
    main()
