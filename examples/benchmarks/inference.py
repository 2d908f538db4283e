"""Inference of one picture on one thread and on all, beside the fastest PyTorch: AlexNet, VGG-16, ResNet-50.

    python examples/benchmarks/inference.py              some 4 minutes on 2 CPU cores
    python examples/benchmarks/inference.py --quick --only alexnet --into /tmp

Each contender on each number of threads is a process of its own; all of a net take turns, and have first been
seen to find the same. With them takes turns who only reads as many bytes as the net has weights. Goes to
results/inference_cpu.json, which readme.py makes a table of.
"""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "paper_tables"))

from machine import describe, free_process, new_plans, version, warn_if_busy
from measure import clock, fastest, interleaved, parsed, ratios, spread, write
from peer_tables import NOT_YET, faster, milliseconds, mode, where
from served import Served
from tables import lay_out
from threadpoolctl import threadpool_limits
from zoo_names import NETS
from zoo_nets import spec_of
from zoo_peers import MODES

from minicaffe import Net

ONLY = ("alexnet", "vgg16", "resnet50")
WHO = {one: one for one in ("minicaffe", *(f"torch {mode}" for mode in MODES))}
CLOSE = 1e-3  # of what the contenders find


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(NETS), default=ONLY, metavar="NET")
    args = parsed(parser)
    free_process()
    warn_if_busy()
    machine = describe() | {name: version(name) for name in ("torch", "numba", "threadpoolctl")}
    found = {"device": "cpu", "threads": args.threads, "quick": args.quick, "machine": machine}
    machine["blas_threads"] = "1 a thread"  # in every process
    found["nets"] = {}
    with new_plans():
        for name in args.only:
            found["nets"][name] = net = measure(name, args.threads, 3 if args.quick else 9)
            told = {way: one["ratio"]["median"] for way, one in net["threads"].items()}
            print(name, told, "all threads to one:", net["scaling"]["median"], flush=True)
    write(args.into / "inference_cpu.json", found)


def measure(name: str, threads: int, rounds: int, who: dict[str, str] = WHO) -> dict:
    """The ms of all contenders on one thread and on all; ours beside the fastest, and beside ours on one."""
    counts = list(dict.fromkeys((1, threads)))
    each, answers = {}, {}
    try:
        for key in [(one, count) for count in counts for one in who]:
            each[key] = begun(name, who[key[0]], key[1])
            answers[key] = float(each[key]())  # before the next one begins
        least, most = min(answers.values()), max(answers.values())
        if not most - least <= CLOSE * most:
            raise SystemExit(f"{name}: the contenders find different numbers: {answers}")
        net = Net(spec_of(name, "infer"), "TEST", device="cpu", shapes_only=True)
        weights = np.ones(sum(param.size for param in net.learnable), np.float32)
        readers = {("reading", count): reader(weights, count) for count in counts}
        with threadpool_limits(1, "blas"):
            times = interleaved(each | readers, clock, rounds, 200.0)
    finally:
        for one in each.values():
            one.end()
    by_threads = {}
    for count in counts:
        ms = {one: spread(times[one, count]) for one in who}
        ours, theirs = times["minicaffe", count], times[fastest(ms), count]
        by_threads[str(count)] = {"ms": ms, "ratio": ratios(theirs, ours)}
        by_threads[str(count)]["reading"] = spread(times["reading", count])
    scaling = ratios(times["minicaffe", 1], times["minicaffe", threads])
    return {"threads": by_threads, "scaling": scaling}


def begun(name: str, who: str, threads: int) -> Served:
    """A process that computes a net when asked."""
    told = {"name": name, "way": "infer", "who": who, "passes": 1}
    return Served("zoo_turns.py", told | {"form": "numba", "threads": threads})


def reader(numbers: np.ndarray, threads: int) -> Callable[[], object]:
    """A call that reads all of some numbers, each thread a part of them."""
    parts, pool = np.array_split(numbers, threads), ThreadPoolExecutor(threads)
    return lambda: list(pool.map(lambda part: part @ part, parts))


def table(found: dict | None) -> str:
    """A row a net and a number of threads."""
    if found is None:
        return NOT_YET
    rows = []
    for name, net in found["nets"].items():
        for count, one in net["threads"].items():
            way = fastest(one["ms"])
            theirs = f"{milliseconds(one['ms'][way])} {mode(way)}"
            row = [NETS[name], count, faster(one["ratio"])]
            row += [milliseconds(one["ms"]["minicaffe"]), theirs, milliseconds(one["reading"])]
            rows.append([*row, faster(net["scaling"]) if count != "1" else ""])
    head = ["one picture", "threads", "minicaffe : PyTorch", "ms", "PyTorch's"]
    head += ["ms to read its weights", "to one thread"]
    return lay_out(head, rows) + "\n\n" + where(found)


if __name__ == "__main__":
    main()
