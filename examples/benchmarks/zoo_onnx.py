"""The nets of models/ through onnxruntime: how far every blob is from minicaffe's, at the nets' own sizes.

    python examples/benchmarks/zoo_onnx.py                          some 5 minutes on 2 CPU cores
    python examples/benchmarks/zoo_onnx.py --only lenet resnet50    these anew, the others as they were

Needs onnx and onnxruntime. Weights are as the fillers draw them, but that BatchNorms remember what the random
input gives, and that what fillers leave at zero is random. `minicaffe export` has compared the outputs before
a file is written; here it is read again, with each blob an output. Results go to results/zoo_onnx.json after
each net, which has a process of its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import describe, version
from measure import ROOT, write

RESULTS = Path(__file__).resolve().parent / "results" / "zoo_onnx.json"
ROUNDING = 1e-5  # where blobs are farther apart, both are compared with a net of float64
LEFT_OUT = ("lenet_paper",)  # whose net is another way to lenet's


def main() -> None:
    args = arguments()
    if args.one:
        print(json.dumps(measured(args.one)))
        return
    path = args.into / RESULTS.name
    found = json.loads(path.read_text()) if path.exists() else {"nets": {}}
    found["machine"] = describe() | {name: version(name) for name in ("onnx", "onnxruntime")}
    for name in args.only:
        command = [sys.executable, __file__, "--one", name]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found["nets"][name] = told = json.loads(child.stdout.splitlines()[-1])
        found["nets"] = dict(sorted(found["nets"].items(), key=lambda item: item[1]["parameters"]))
        write(path, found)
        print(f"{name}: outputs {told['outputs']:.1e}, {told['blob']} {told['worst']:.1e}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [path.stem for path in sorted((ROOT / "models").glob("*.yaml"))]
    names = [name for name in names if name not in LEFT_OUT]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NET")
    parser.add_argument("--into", type=Path, default=RESULTS.parent, help="a folder")
    parser.add_argument("--one", choices=names, help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(name: str) -> dict:
    """A net of models/ written, read by onnxruntime, and compared blob by blob."""
    import onnx
    import onnxruntime

    from minicaffe import Net
    from minicaffe.core.layers.sequence import Recurrent
    from minicaffe.interop.onnx.writer import check, to_onnx
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


if __name__ == "__main__":
    main()
