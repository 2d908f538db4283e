"""Measuring side by side: warm-up, interleaved repeats, medians with their spread; and result files."""

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml
from machine import ROOT, commit

RESULTS = ROOT / "examples" / "benchmarks" / "results"
REST = 0.02  # seconds, until idle threads have gone to sleep
NETS = {  # of models/, as the pages call them
    "logistic_regression": "logistic regression",
    "lenet": "LeNet",
    "cifar10_quick": "CIFAR-10 quick",
    "cifar10_full": "CIFAR-10 full",
    "mnist_autoencoder": "autoencoder of MNIST",
    "mnist_siamese": "siamese LeNet, of a pair",
    "lstm": "character LSTM",
    "squeezenet": "SqueezeNet 1.1",
    "mobilenet": "MobileNet v1",
    "googlenet": "GoogLeNet",
    "alexnet": "AlexNet",
    "caffenet": "CaffeNet",
    "resnet50": "ResNet-50",
    "vgg16": "VGG-16",
    "fcn8s": "FCN-8s",
}


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    timer: Callable[[], Callable[[], float]],
    rounds: int,
    block_ms: float,
    warm_up: int = 3,
) -> dict[str, list[float]]:
    """The ms of one call of each contender, one number a round.

    Every round gives each contender a block of about `block_ms`, in an order that turns from round to
    round, so that what disturbs the machine for a while disturbs all of them. Before a block there is a
    rest and one call that is not timed: threads that look for work a while longer, OpenMP's and
    minicaffe's, would else take a core from the next contender. `timer` starts a stopwatch that gives ms.
    """
    calls = {}
    for name, call in contenders.items():
        for _ in range(warm_up):
            call()
        stop = timer()
        call()
        calls[name] = max(1, min(10_000, round(block_ms / max(stop(), 1e-4))))
    names, times = list(contenders), {name: [] for name in contenders}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            call = contenders[name]
            time.sleep(REST)
            call()
            stop = timer()
            for _ in range(calls[name]):
                call()
            times[name].append(stop() / calls[name])
    return times


def clock() -> Callable[[], float]:
    """A stopwatch of the host: calling what it gives tells the ms since."""
    start = time.perf_counter()
    return lambda: (time.perf_counter() - start) * 1e3


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and count of measurements.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'low': 1.5, 'high': 2.5, 'repeats': 3}
    """
    if len(values) == 1:
        low = high = values[0]
    else:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "median": digits(statistics.median(values)),
        "low": digits(low),
        "high": digits(high),
        "repeats": len(values),
    }


def rates(times: Sequence[float]) -> dict[str, float]:
    """The spread of 1000 / ms: calls a second."""
    return spread([1e3 / ms for ms in times])


def ratios(others: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """The spread of others / ours, round by round: above 1, ours takes less time."""
    return spread([a / b for a, b in zip(others, ours, strict=True)])


def fastest(found: Mapping[str, Mapping[str, float]]) -> str:
    """The way in which PyTorch is fastest: of the times of contenders, or of their ratios to ours.

    >>> fastest({"minicaffe": {"median": 1}, "torch eager": {"median": 3}, "torch compile": {"median": 2}})
    'torch compile'
    """
    ways = (who for who in found if who.startswith("torch"))
    return min(ways, key=lambda who: found[who]["median"])


def geometric_mean(values: Sequence[float]) -> float:
    """The n-th root of the product.

    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    return digits(statistics.geometric_mean(values))


def digits(value: float) -> float:
    """Five significant digits: no measurement here has more."""
    return float(f"{value:.5g}")


def in_memory(model: Path, batch: int, engine: str | None = None, **solver: object) -> str:
    """A model's YAML with its data layers replaced by blobs (batch, 1, 28, 28) the user fills.

    Every convolution gets `engine`, if given; the solver neither tests, shows nor saves anything.
    """
    tree = yaml.safe_load(model.read_text())
    layers = [layer for layer in tree["layers"] if layer["type"] not in ("Data", "Accuracy")]
    shapes = [{"dim": [batch, 1, 28, 28]}, {"dim": [batch]}]
    data = {"name": "data", "type": "Input", "top": ["data", "label"], "shape": shapes}
    for layer in layers:
        if layer["type"] == "Convolution" and engine is not None:
            layer["engine"] = engine
    quiet = {"test_iter": 0, "test_interval": 0, "display": 0, "snapshot": 0}
    quiet |= {"snapshot_after_train": False}
    given = tree["solver"] | quiet | solver
    if given.get("lr_policy", "fixed") == "fixed":  # which has no use for these
        given = {key: value for key, value in given.items() if key not in ("gamma", "power")}
    tree |= {"layers": [data, *layers], "solver": given}
    return yaml.safe_dump(tree, sort_keys=False)


def drawn(count: int) -> tuple[object, object]:
    """`count` digits drawn by minicaffe, as LeNet reads them: (n, 1, 28, 28) from 0 to 1, and labels."""
    from minicaffe.tools.data.digits import draw

    images, labels = draw(count, seed=1)
    return images.reshape(count, 1, 28, 28).astype("float32") / 256, labels


def parser(description: str) -> argparse.ArgumentParser:
    """A command line that says on what device, by how many threads, how long, and where the result goes."""
    words = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N; default: cpu")
    words.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    words.add_argument("--quick", action="store_true", help="few repeats: a look, no result")
    words.add_argument("--into", type=Path, help="folder of the results; default: results/")
    words.add_argument(
        "--minutes", type=float, default=60, help="after which nothing is begun; default: 60"
    )
    return words


def parsed(words: argparse.ArgumentParser) -> argparse.Namespace:
    """What the command line says, with the kind of device and the time when all must have begun."""
    args = words.parse_args()
    if args.quick and args.into is None:
        words.error("--quick makes no result to keep: say with --into where it goes")
    args.into = args.into or RESULTS
    args.kind = args.device.partition(":")[0]
    args.until = time.monotonic() + 60 * args.minutes
    return args


def in_time(rows: Sequence, until: float) -> Iterator:
    """Rows one after the other; none is begun after a time, except the first."""
    for i, row in enumerate(rows):
        if i and time.monotonic() > until:
            print(f"no time remains for {len(rows) - i} of {len(rows)}, from {row} on")
            return
        yield row


def kept(path: Path) -> dict:
    """What a result file holds, of a measurement that adds to it."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, report: Mapping[str, object]) -> None:
    """A result file; says where it is."""
    save(path, report)
    print(f"-> {path}")


def save(path: Path, report: Mapping[str, object]) -> None:
    """A result file with its date and the commit that was measured, written whole or not at all."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    stamped = {**report, "date": today, "commit": commit()}
    beside.write_text(json.dumps(stamped, indent=1) + "\n")
    os.replace(beside, path)
