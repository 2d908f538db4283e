"""What a training step must cost on a GPU, on paper: what is recorded of it, against what devices can do.

    python examples/benchmarks/roofline.py                  two minutes, without a GPU
    python examples/benchmarks/roofline.py --into /tmp

Needs `pip install cupy-cuda12x`. The dry run of the tests lists each operation of a step: of five nets, in
float32 and with TF32, and of LeNet as the paper's tables compare it, with each of two lowerings. From these
roofline_costs.py takes bytes and flops, roofline_instructions.py instructions, roofline_devices.py the time
that they take of a device. roofline_torch.py counts PyTorch's launches, roofline_layout.py says what another
layout would change. Nothing runs: this is modelled, not measured. The result goes to
results/roofline_cuda.json; roofline_tables.py makes the Markdown, and roofline_measured.py holds it against
an H100.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from machine import describe
from measure import ROOT, write
from roofline_costs import Row, flops, rows, sizes
from roofline_layout import channels_last
from roofline_torch import torch_rows
from zoo_nets import spec_of

from minicaffe import Net

RESULTS = Path(__file__).resolve().parent / "results"
# models/, and the batch of a step
NETS = {"lenet_paper": 64, "alexnet": 128, "vgg16": 32, "resnet50": 32, "mobilenet": 32}
ENGINE = "implicit"
PRECISIONS = {"": "highest", "_tf32": "tf32"}  # by the end of a key in the result
OTHERWISE = "resnet50"  # whose other layout is modelled
PAPER = "lenet_paper"
ENGINES = ("caffe", "loopfree")
BATCHES, BATCH = (32, 64, 128, 256), 128  # of Table 3, of Table 4
LAYERS = ("conv1", "conv2")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, help="folder of the result; default: results/")
    args = parser.parse_args()
    result: dict = {"machine": describe(), "engine": ENGINE, "batch": BATCH, "nets": {}}
    result |= {"table3": {}, "table4": {}}
    for name, batch in NETS.items():
        result["nets"][name] = {"batch": batch, **of_net(name, batch)}
    for engine in ENGINES:
        steps = {str(n): operations(PAPER, engine, n)["step"] for n in BATCHES}
        result["table3"][engine] = {n: lines(rows(step)) for n, step in steps.items()}
        passes = operations(PAPER, engine, BATCH, "highest", *LAYERS)
        del passes["step"], passes["replayed"]
        result["table4"][engine] = {one: lines(rows(found)) for one, found in passes.items()}
    write((args.into or RESULTS) / "roofline_cuda.json", result)


def of_net(name: str, batch: int) -> dict[str, list[str]]:
    """A net's part of the result: lines of rows, of minicaffe and of PyTorch, in float32 and with TF32."""
    part = {}
    for end, precision in PRECISIONS.items():
        listed = operations(name, ENGINE, batch, precision)
        for step in listed.values():
            check(name, batch, step)
        if not end:
            part["minicaffe"] = lines(rows(listed["step"]))
        part[f"captured{end}"] = lines(rows(listed["replayed"]))
        part[f"torch{end}"] = lines(torch_rows(name, batch, bool(end)))
        if name == OTHERWISE:
            part[f"channels_last{end}"] = lines(rows(channels_last(listed["replayed"])))
    return part


def operations(
    name: str, engine: str, batch: int, precision: str = "highest", *layers: str
) -> dict[str, list[dict]]:
    """The operations of a step of a net of models/, on the real CuPy's arrays; and of layers' passes."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    model = str(ROOT / "models" / f"{name}.yaml")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "dry_run",
            "operations",
            model,
            engine,
            str(batch),
            precision,
            *layers,
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def check(name: str, batch: int, step: list[dict]) -> None:
    """Raise RuntimeError where not all products of a step were recognized as such.

    Together they have at least the multiply-adds of the layers: forward, of the weights' gradients, and of
    the inputs' where they are wanted.
    """
    net = Net(spec_of(name, "train", batch), "TRAIN", device="cpu", shapes_only=True)
    least = 0
    for one in net.steps:
        if one.layer.multiply_adds:
            least += 2 * one.layer.multiply_adds * (2 + one.layer.needs_gradient[0])
    found = sum(flops(op) for op in step if sizes(op))
    if found < least:
        raise RuntimeError(
            f"{name}: products of {found:,} flops were recognized, the layers have {least:,}: "
            "tell the names of a product's sizes to DEPTH in roofline_costs.py"
        )


def lines(found: list[Row]) -> list[str]:
    """Rows as the result file has them."""
    return [row.line() for row in found]


if __name__ == "__main__":
    main()
