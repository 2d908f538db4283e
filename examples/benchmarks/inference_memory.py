"""Peak memory of inference, blobs apart and sharing memory: VGG-16 and ResNet-50, on the CPU.

    python examples/benchmarks/inference_memory.py        measure, and write results/inference_memory_cpu.json

Each net is built in a process of its own, by the fixed rule for convolutions, as a Classifier does it; its
weights are drawn at random, and one batch of random pictures is classified. `peak_mib` is the most that the
process ever had in memory (VmHWM), `loaded_mib` what it had when Python, NumPy, minicaffe and its loops were
loaded and had run; `weights_mib` the parameters. What is beyond both is the inference's own: blobs, work and
layers' buffers. `blobs_mib` is the blobs alone, as the plan has them, in integers.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import machine
import numpy as np

RESULT = Path(__file__).resolve().parent / "results" / "inference_memory_cpu.json"
MODELS, BATCHES = ("vgg16", "resnet50"), (1, 16)
EVERY_LOOP = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 4, 16, 16]}}
  - {name: conv, type: Convolution, num_output: 8, kernel_size: 3, pad: 1}
  - {name: point, type: Convolution, num_output: 8, kernel_size: 1}
  - {name: tiles, type: Convolution, bottom: point, num_output: 8, kernel_size: 3, pad: 1, engine: implicit}
  - {name: bn, type: BatchNorm}
  - {name: scale, type: Scale, bias_term: true}
  - {name: relu, type: ReLU}
  - {name: sum, type: Eltwise, bottom: [conv, relu]}
  - {name: pool, type: Pooling, kernel_size: 2, stride: 2}
  - {name: mean, type: Pooling, pool: AVE, kernel_size: 8}
  - {name: ip, type: InnerProduct, num_output: 4}
  - {name: prob, type: Softmax}
"""


def measure(name: str, batch: int, sharing: bool) -> dict[str, float]:
    """The figures of one net, in this process."""
    import zoo_nets

    from minicaffe import Net, parse

    given = {"device": "cpu", "deterministic": True, "keep": () if sharing else None}
    Net(parse(EVERY_LOOP), "TEST", **given).forward()
    loaded = machine.resident_memory()
    net = Net(zoo_nets.spec_of(name, "infer", batch), "TEST", **given)
    zoo_nets.begin(net)
    picture, random = net.steps[0].tops[0], np.random.default_rng(0)
    net.forward(**{picture.name: random.random(picture.shape, np.float32)})
    peak = machine.peak_memory()
    sizes = {"weights": sum(param.data.nbytes for param in net.learnable)}
    sizes["blobs"] = net.memory.sharing.after
    sizes["work"] = net.context.workspace_size * net.context.dtype.itemsize
    return {
        "loaded_mib": loaded,
        "peak_mib": peak,
        **{f"{key}_mib": round(size / 2**20, 1) for key, size in sizes.items()},
    }


def table(found: dict | None) -> str:
    """The result file as a table of the pages: MiB, blobs apart → sharing."""
    if found is None:
        return "Not yet measured."
    lines = [
        "| net, batch | weights | blobs | all but weights | all |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        pair = row["apart"], row["sharing"]
        cells = [f"{row['model']}, {row['batch']}", f"{pair[0]['weights_mib']:,.0f}"]
        for of in (blobs, beyond_weights):
            a, b = map(of, pair)
            cells.append(f"{a:,.0f} → {b:,.0f}: **{a / b:.1f}x**")
        cells.append(" → ".join(f"{peak(one):,.0f}" for one in pair))
        lines.append(f"| {' | '.join(cells)} |")
    at = found["machine"]
    place = f"{at['processor']}, {at['cores']} cores, Python {at['python']}, NumPy {at['numpy']}, {at['blas']}"
    return "\n".join([*lines, "", f"{place}."])


def blobs(one: dict) -> float:
    """What blobs alone take."""
    return one["blobs_mib"]


def peak(one: dict) -> float:
    """What inference took, with the weights."""
    return one["peak_mib"] - one["loaded_mib"]


def beyond_weights(one: dict) -> float:
    """What inference took, beyond the weights."""
    return peak(one) - one["weights_mib"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES, metavar="N")
    parser.add_argument("--out", type=Path, default=RESULT, metavar="FILE")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, batch, sharing = args.one
        print(json.dumps(measure(name, int(batch), sharing == "sharing")))
        return
    rows = []
    for name in args.models:
        for batch in args.batches:
            row: dict = {"model": name, "batch": batch}
            for way in ("apart", "sharing"):
                words = [sys.executable, __file__, "--one", name, str(batch), way]
                row[way] = json.loads(
                    subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
                )
            rows.append(row)
    written = {"machine": machine.describe(), "rows": rows}
    print(table(written))
    args.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
