"""Peak memory of inference, blobs apart and sharing memory: VGG-16 and ResNet-50, on the CPU.

    python examples/benchmarks/inference_memory.py

Each net is built in a process of its own, by the fixed rule for convolutions, as a Classifier does it; its
weights are drawn at random, and one batch of random pictures is classified. `peak_mib` is the most that the
process ever had in memory (VmHWM), `loaded_mib` what it had when Python, NumPy, minicaffe and its loops were
loaded and had run; `weights_mib` the parameters. What is beyond both is the inference's own: blobs, work and
layers' buffers. `blobs_mib` is the blobs alone, as the plan has them, in integers.
"""

import machine
import numpy as np
from measure import parsed, parser, write
from turns import asked, child, say

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
    import nets

    from minicaffe import Net, parse

    settings = {"device": "cpu", "deterministic": True, "keep": () if sharing else None}
    Net(parse(EVERY_LOOP), "TEST", **settings).forward()
    loaded = machine.resident_memory()
    net = Net(nets.spec_of(name, "infer", batch), "TEST", **settings)
    nets.begin(net)
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


def main() -> None:
    if settings := asked():
        say(measure(**settings))
        return
    words = parser(__doc__)
    words.add_argument("--models", nargs="+", default=MODELS, metavar="NAME")
    words.add_argument("--batches", nargs="+", type=int, default=BATCHES, metavar="N")
    args, rows = parsed(words), []
    for name in args.models:
        for batch in args.batches:
            row: dict = {"model": name, "batch": batch}
            for way, sharing in (("apart", False), ("sharing", True)):
                settings = {"name": name, "batch": batch, "sharing": sharing}
                row[way] = child("inference_memory.py", settings)
            print(row)
            rows.append(row)
    report = {"machine": machine.describe(), "quick": args.quick, "rows": rows}
    write(args.into / "inference_memory_cpu.json", report)


if __name__ == "__main__":
    main()
