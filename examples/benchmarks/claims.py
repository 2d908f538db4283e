"""README's one table: five claims, each with its figure, machine, date and commit, of the result files.

    python examples/benchmarks/readme.py

puts it between its marks. A result that names an engine which is no longer there claims nothing.
"""

from collections.abc import Iterator

import tables
from measure import geometric_mean
from result_tables import beside_torch, place, read, span, zoo_ratios

from minicaffe.core.ops.conv import ENGINES
from minicaffe.core.ops.conv.plan import RENAMED

# three runs of BVLC Caffe 1.0 with its own LeNet and solver: 10,000 iterations, the 10,000 test images
CAFFES = (0.9904, 0.9904, 0.9913)


def claims() -> str:
    """A row a claim: what was measured, minicaffe's figure, what it is compared with, on what and when."""
    rows = [accuracy(), step("cpu", "numba"), step("cuda", "cuda"), paper(), inference()]
    return tables.lay_out(["measured", "minicaffe", "compared with", "on"], rows).replace(
        "--:", "---"
    )


def accuracy() -> list[str]:
    """LeNet trained to the end on MNIST."""
    report = of_today(read("lenet_mnist_cpu"))
    minutes = max(run["seconds"] / 60 for run in report["runs"])
    figure = f"**{report['mean_accuracy']:.4f}**, mean of {len(report['runs'])} runs"
    others = f"Caffe's three runs: {', '.join(f'{share:.4f}' for share in CAFFES)}"
    title = "LeNet's share of right answers on MNIST's test digits"
    return [title, f"{figure} of {minutes:.1f} minutes at the most", others, place(report)]


def step(device: str, form: str) -> list[str]:
    """LeNet's training step beside the fastest PyTorch, of the slowest and of the fastest batch."""
    report = of_today(read(f"lenet_step_{device}"))
    title = {"cpu": "a training step of LeNet, extra `[cpu]`", "cuda": "the same on CUDA"}[device]
    return [title, f"**{beside_torch(report, form)}** the speed", "PyTorch", place(report)]


def paper() -> list[str]:
    """The paper's first table on a GPU."""
    report = of_today(tables.read("cuda"))
    ratios = {
        engine: [row["ratios"][engine]["median"] for row in report["table3"].values()]
        for engine in ("loopfree", "auto")
    }
    both = zip(
        *(tables.PAPER_RATES[engine].values() for engine in ("loopfree", "caffe")), strict=True
    )
    figure = f"without a loop **{span(ratios['loopfree'])}** the speed, our fastest {span(ratios['auto'])}"
    others = f"Caffe's im2col; the paper: {span([a / b for a, b in both])}, K80"
    where = place(report | {"runs": [{"device": report["device"]}]})
    return ["iterations of the paper's LeNet, by its im2col", figure, others, where]


def inference() -> list[str]:
    """Inference of one sample beside PyTorch and onnxruntime: geometric means."""
    report = of_today(read("zoo_cpu"))
    means = [geometric_mean(zoo_ratios(report, "infer", who)) for who in ("torch", "onnxruntime")]
    figure = " and ".join(f"**{mean:.2f}x**" for mean in means)
    title = f"inference of one sample, {len(report['nets'])} nets of the zoo"
    return [title, f"{figure} the speed", "PyTorch and onnxruntime", place(report)]


def of_today(report: dict) -> dict:
    """A result whose engines are all registered. Raises ValueError for another."""
    if gone := sorted(set(engines_of(report)) - {*ENGINES, *RENAMED}):
        raise ValueError(
            f"a result of {report['date']} names engines that are gone: {', '.join(gone)}"
        )
    return report


def engines_of(value: object, named: bool = False) -> Iterator[str]:
    """The engines that a result names, in its plans or as a list."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from engines_of(part, named or key in ("plan", "engines"))
    elif isinstance(value, list):
        for part in value:
            yield from engines_of(part, named)
    elif named:
        yield str(value)
