"""Sentences of README and docs that sum up a table, made from the table's result file.

    python examples/benchmarks/readme.py

puts them between their marks.
"""

from forms import FORMS
from measure import fastest, geometric_mean
from peer_tables import means, read
from zoo_names import ALONE
from zoo_tables import NETS, reading

SLOWER = 0.9  # a rung of the ladder below it is named


def span(values: list[float], digits: int = 2, unit: str = "x") -> str:
    """The least and the most of some ratios.

    >>> span([1.5, 3.2, 1.42], 1)
    '1.4x to 3.2x'
    """
    return " to ".join(f"{value:.{digits}f}{unit}" for value in (min(values), max(values)))


def joined(parts: list[str]) -> str:
    """A list in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def numba_gain(report: dict) -> str:
    """By how much the extra [cpu] makes LeNet's step faster, over the batches of the table."""
    compiled, plain = (
        [one["rates"]["minicaffe"]["median"] for one in report["lenet"][form].values()]
        for form in ("numba", "numpy")
    )
    return span([a / b for a, b in zip(compiled, plain, strict=True)], 1, "")


def beside_torch(report: dict, form: str) -> str:
    """LeNet's step of one form beside the fastest PyTorch, over the batches of the table."""
    ratios = [one["ratios"] for one in report["lenet"][form].values()]
    return span([ratio[fastest(ratio)]["median"] for ratio in ratios])


def ladder_slower(report: dict) -> str:
    """The rungs on which PyTorch is clearly faster, with both speeds."""
    parts = []
    for name, one in report["rungs"].items():
        for way, products in (("forward", 1), ("backward", 2)):
            ratio, ms = one[way]["ratio"]["median"], one[way]["ms"]
            if ratio < SLOWER:
                whose = (ms["minicaffe"]["median"], ms[fastest(ms)]["median"])
                ours, theirs = (f"{products * one['gflop'] / value * 1e3:.0f}" for value in whose)
                parts.append(f"{name} {way} ({ratio:.2f}x: {ours} GFLOP/s, PyTorch's at {theirs})")
    if not parts:
        return f"None is below {SLOWER} of PyTorch."
    return f"Below {SLOWER} of PyTorch: {joined(parts)}."


def checkouts(report: dict) -> str:
    """LeNet's step beside the commit before, of both forms."""
    parts = []
    for form, batches in report["step"].items():
        told = joined([f"{one['ratio']['median']:.2f}x at {n}" for n, one in batches.items()])
        parts.append(f"{FORMS[form]}: {told}")
    return f"{report['machine']['processor']}, by batch; {'; '.join(sorted(parts, reverse=True))}."


def training_slower(report: dict) -> str:
    """The nets of the zoo that train slower than by PyTorch."""
    ratios = {}
    for name, net in report["nets"].items():
        one = net["train"]
        ratios[NETS[name]] = one["ratios"][fastest(one["ms"])]["median"]
    slower = [f"{name} ({ratio:.2f}x)" for name, ratio in ratios.items() if ratio < 1]
    return f"Slower than by PyTorch: {joined(slower)}." if slower else "No net trains slower."


def zoo_elsewhere(report: dict) -> str:
    """The nets of the zoo on another machine, each contender in a process of its own."""
    infer = {}
    for name, net in report["nets"].items():
        ratios = [one["median"] for who, one in net["infer"]["ratios"].items() if who != ALONE]
        infer[NETS[name]] = min(ratios)
    behind = joined([f"{name} {ratio:.2f}x" for name, ratio in infer.items() if ratio < 0.995])
    lacking = joined([title for name, title in NETS.items() if name not in report["nets"]])
    return (
        f"With newer code on another machine ({report['machine']['processor']}, {report['threads']} threads, "
        "which others use too), each contender in a process of its own that takes turns, without "
        f"{lacking}. {reading(report['nets'])} Beside the fastest of the others, whichever that is, inference "
        f"is **{geometric_mean(list(infer.values())):.2f}x**; it is behind in {behind}. "
        f"{training_slower(report)}"
    )


def lenet_elsewhere(report: dict) -> str:
    """LeNet's step of newer code on another machine."""
    parts = []
    for form, batches in report["lenet"].items():
        ratios = [one["ratios"][fastest(one["ratios"])]["median"] for one in batches.values()]
        parts.append(f"{FORMS[form]} {', '.join(f'{ratio:.2f}x' for ratio in ratios)}")
    sizes = ", ".join(next(iter(report["lenet"].values())))
    return (
        f"With newer code on another machine ({report['machine']['processor']}, {report['threads']} threads, "
        f"which others use too), batches of {sizes}: {'; '.join(parts)} of PyTorch's speed."
    )


def ladder_elsewhere(report: dict) -> str:
    """The ladder of newer code on another machine."""
    ratios = {
        f"{name} {way} {one[way]['ratio']['median']:.2f}x": one[way]["ratio"]["median"]
        for name, one in report["rungs"].items()
        for way in ("forward", "backward")
    }
    behind = joined([text for text, ratio in ratios.items() if ratio < SLOWER])
    return (
        f"With newer code on another machine ({report['machine']['processor']}, {report['threads']} threads, "
        f"which others use too). {means(report)} Below {SLOWER} of PyTorch: {behind or 'none'}."
    )


def engines() -> str:
    """How many ways of computing a convolution there are."""
    from minicaffe.core.ops.conv import ENGINES

    return str(len(ENGINES))


SENTENCES = {
    "numba_gain_cpu": lambda: numba_gain(read("peers", "cpu")),
    "numba_beside_torch_cpu": lambda: beside_torch(read("peers", "cpu"), "numba"),
    "numpy_beside_torch_cpu": lambda: beside_torch(read("peers", "cpu"), "numpy"),
    "ladder_slower_cpu": lambda: ladder_slower(read("ladder", "cpu")),
    "checkouts_cpu": lambda: checkouts(read("checkouts", "cpu")),
    "training_slower_cpu": lambda: training_slower(read("zoo", "cpu")),
    "zoo_elsewhere_cpu": lambda: zoo_elsewhere(read("xeon/zoo", "cpu")),
    "lenet_elsewhere_cpu": lambda: lenet_elsewhere(read("xeon/peers", "cpu")),
    "ladder_elsewhere_cpu": lambda: ladder_elsewhere(read("xeon/ladder", "cpu")),
    "engines": engines,
}
