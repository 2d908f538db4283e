"""Training steps on several ranks of this machine, beside one rank, beside PyTorch's DistributedDataParallel.

    mpiexec -n 2 python examples/scale/ranks.py              some 9 minutes on 2 cores
    mpiexec -n 4 python examples/scale/ranks.py --nets lenet:128 --no-torch

Each rank has one thread. All contenders live in the same processes and take turns, the others' threads
asleep: one rank with the whole batch, all ranks with their parts, the same with the sums begun while the
backward pass goes on (as between machines), and with the sums left out; the sums alone, of gradients and
weights as they are handed out, and mpi4py's Allreduce of one array as long. Then, where PyTorch is installed,
all ranks beside its eager and channels_last nets, alone and in DistributedDataParallel with gloo. A turn's
time is the median of its steps: what others do to the machine meanwhile meets two ranks twice as often as
one, and is not theirs. All are made several times: where arrays happen to lie makes a step of the same net
2 % longer or shorter. Results go to results/ranks_N.json, beside this; scale_tables.py
makes docs/scale.md's tables of them.
"""

import argparse
import copy
import dataclasses
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

from machine import PINS, describe, peak_memory, version  # noqa: E402

for name in PINS:
    if os.environ.pop(name, None) is not None:  # libraries read them once, when they are loaded
        os.execv(sys.executable, [sys.executable, *sys.argv])
os.environ |= dict.fromkeys(
    ("MINICAFFE_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"
)

import numpy as np  # noqa: E402
import yaml  # noqa: E402
from measure import in_memory, ratios, spread, write  # noqa: E402
from mpi4py import MPI  # noqa: E402
from nets import spec_of  # noqa: E402

from minicaffe import Solver, parse  # noqa: E402
from minicaffe.core.config.declare import NetSpec, SolverSpec  # noqa: E402
from minicaffe.core.solver import Report  # noqa: E402
from minicaffe.tools.parallel import Communicator, world  # noqa: E402

NETS = ("lenet:128", "lenet:256", "cifar10_quick:100")
SHAPES = {"lenet": (1, 28, 28), "cifar10_quick": (3, 32, 32)}
# Nobody learns much: some loops take longer or shorter by what blobs hold.
RULE = {"base_lr": 1e-9, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 0.0005}
SUMS = (4, 2**12, 2**16, 2**20, 2**22, 2**24)  # bytes
COMM = MPI.COMM_WORLD


class Quiet(Report):
    """Says nothing."""

    def write(self, text: str) -> None:
        """Nothing."""


class Without(type(world())):  # type: ignore[misc]
    """Ranks that sum nothing, nor hand anything out: a step without it."""

    def allreduce_init(self, array):
        return lambda: None

    reduce_scatter_init = allgather_init = allreduce_init

    def iallreduce(self, array):
        return lambda: None


def model(net: str, batch: int) -> str:
    """A net whose batch the user fills."""
    path = ROOT / "models" / f"{net}.yaml"
    if net == "lenet":
        return in_memory(path, batch, **RULE)
    tree = yaml.safe_load(path.read_text())
    for layer in tree["layers"]:
        if layer["type"] == "Input":
            shape = layer["shape"]["dim"]
            layer["shape"]["dim"] = [batch, *shape[1:]] if isinstance(shape, list) else [batch]
    tree["solver"] = RULE | {"max_iter": 1, "snapshot_after_train": False}
    return yaml.safe_dump(tree, sort_keys=False)


def spec(net: str, batch: int) -> NetSpec:
    """A net whose batch the user fills: small ones as they are, others without their data sets."""
    if net in SHAPES:
        return parse(model(net, batch))
    rule = SolverSpec(**RULE, max_iter=1, snapshot_after_train=False)
    return dataclasses.replace(spec_of(net, "train", batch), solver=rule)


def ours(net: str, batch: int, ranks: Communicator | None) -> Solver:
    """A solver whose batch is filled."""
    solver = Solver(spec(net, batch), device="cpu", communicator=ranks, report=Quiet())
    rng = np.random.default_rng(0)
    images = rng.random((batch, *solver.net.blobs["data"].shape[1:]), np.float32)
    labels = rng.integers(0, 10, batch).astype(np.float32)
    start, count = solver.net.context.share.of(batch)
    for blob, array in (("data", images), ("label", labels)):
        solver.net.blobs[blob].data = array[start : start + count]
    return solver


def overlapped() -> Communicator:
    """The ranks, as if they were of several machines: sums begin while the backward pass goes on."""
    ranks = copy.copy(world())
    ranks.overlaps = True
    return ranks


def torchs(net: str, batch: int, together: bool) -> dict[str, Callable[[], object]]:
    """PyTorch's steps by the mode it runs in, of the part of a batch that is here."""
    import torch
    from contenders import in_mode
    from torch.nn.parallel import DistributedDataParallel
    from torch_nets import Module

    torch.set_num_threads(1)
    solver = ours(net, batch, world() if together else None)
    given = {name: solver.net.blobs[name].data.copy() for name in ("data", "label")}
    calls = {}
    for mode in ("eager", "channels_last"):
        plain = Module(solver.net)
        groups = plain.groups(RULE["base_lr"], RULE["weight_decay"])
        module, inputs = in_mode(plain, given, mode)
        module = DistributedDataParallel(module) if together else module
        sgd = torch.optim.SGD(groups, lr=RULE["base_lr"], momentum=RULE["momentum"], fused=True)

        def step(module=module, inputs=inputs, sgd=sgd):
            sgd.zero_grad()
            module(*inputs).backward()
            sgd.step()

        calls[f"torch {mode}{' DDP' if together else ''}"] = step
    return calls


Contenders = tuple[dict[str, Callable], set[str], int]


def contenders(net: str, batch: int) -> Contenders:
    """All of ours that take turns, which of them are for rank 0 alone, and the bytes of the gradients."""
    one, all_of_them = ours(net, batch, None), ours(net, batch, world())
    left_out, meanwhile = ours(net, batch, Without()), ours(net, batch, overlapped())
    calls = {
        "one rank": one,
        "all ranks": all_of_them,
        "sums left out": left_out,
        "sums meanwhile": meanwhile,
    }
    reduced = all_of_them.ranks
    assert reduced is not None
    if reduced.shared is not None:  # as it is of small nets
        calls["update not shared"] = whole = ours(net, batch, world())
        whole.ranks.share_no_more()
    steps = {name: lambda solver=solver: solver.step(1) for name, solver in calls.items()}
    size = sum(bucket.array.nbytes for bucket in reduced.buckets)
    array = np.zeros(size // 4, np.float32)

    def sums() -> None:
        reduced.finish(reduced.loose())
        for gather in reduced.shared.gathers if reduced.shared is not None else ():
            gather()

    steps["its sums alone"] = sums
    steps["mpi4py's Allreduce"] = lambda: COMM.Allreduce(MPI.IN_PLACE, array)
    return steps, {"one rank"}, size


def beside_torch(net: str, batch: int) -> Contenders:
    """All ranks and PyTorch's, in the same way."""
    solver = ours(net, batch, world())
    single, together = torchs(net, batch, together=False), torchs(net, batch, together=True)
    steps = {"all ranks": lambda: solver.step(1)} | single | together
    return steps, set(single), sum(one.array.nbytes for one in solver.ranks.buckets)


def turn(call: Callable, count: int, alone: bool) -> float:
    """The ms of a call, once caches and cores are used to it. Where it is rank 0's alone, the others sleep."""
    begun = [time.perf_counter()]
    if not alone or COMM.rank == 0:
        for _ in range(1 + count // 8):
            call()
        if not alone:
            COMM.Barrier()
        begun = [time.perf_counter()]
        for _ in range(count):
            call()
            begun.append(time.perf_counter())
    if alone and COMM.size > 1:
        done = COMM.Ibarrier()
        while not done.Test():
            time.sleep(0 if COMM.rank == 0 else 0.002)
    else:
        COMM.Barrier()
    return 1e3 * COMM.bcast(float(np.median(np.diff(begun))) if COMM.rank == 0 else None)


def measured(make: Callable[[], Contenders], args: argparse.Namespace) -> dict:
    """The ms of each contender, and how they compare."""
    times: dict[str, list[float]] = {}
    order = random.Random(0)
    for _ in range(args.anew):
        steps, alone, size = make()
        times = times or {name: [] for name in steps}
        for name, call in steps.items():
            turn(call, 5, name in alone)
        count = {
            name: max(1, round(args.block / turn(call, 3, name in alone)))
            for name, call in steps.items()
        }
        for _ in range(args.rounds):
            for name in order.sample(list(steps), len(steps)):  # the same on all ranks
                times[name].append(turn(steps[name], count[name], name in alone))
    mine = times["all ranks"]
    compared = {
        f"{name} / all ranks": ratios(ms, mine) for name, ms in times.items() if ms is not mine
    }
    if "its sums alone" in times:
        compared["mpi4py's Allreduce / its sums alone"] = ratios(
            times["mpi4py's Allreduce"], times["its sums alone"]
        )
    found = {"ms": {name: spread(ms) for name, ms in times.items()}, "ratios": compared}
    if COMM.rank == 0:
        medians = {name: ms["median"] for name, ms in found["ms"].items()}
        print(medians, {name: ratio["median"] for name, ratio in compared.items()}, flush=True)
    return found | {"gradient_bytes": size, "peak_mib": peak_memory()}


def sums_alone(rounds: int) -> dict[str, dict]:
    """The ms of mpi4py's Allreduce by the bytes of its array."""
    found = {}
    for size in SUMS:
        array, count = np.zeros(size // 4, np.float32), max(3, 2**23 // (size + 2**16))
        times = [
            turn(lambda array=array: COMM.Allreduce(MPI.IN_PLACE, array), count, False)
            for _ in range(rounds)
        ]
        found[str(size)] = spread(times)
    return found


def start_gloo() -> None:
    """PyTorch's group of the same processes."""
    import torch.distributed

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = COMM.bcast(free.getsockname()[1])
    where = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", where, rank=COMM.rank, world_size=COMM.size)


def main() -> None:
    """Measure, and let rank 0 write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET:BATCH")
    parser.add_argument("--anew", type=int, default=3, help="times that all contenders are made")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each, each time")
    parser.add_argument("--block", type=float, default=300.0, help="ms that a turn takes")
    parser.add_argument("--no-torch", dest="torch", action="store_false")
    parser.add_argument("--into", type=Path, default=HERE / "results")
    args = parser.parse_args()
    args.torch = args.torch and version("torch") is not None
    machine = describe()  # before the machine is busy with us
    machine |= {name: version(name) for name in ("numba", "mpi4py", *["torch"] * args.torch)}
    nets = [(text, *text.split(":")) for text in args.nets]
    found = {text: measured(partial(contenders, net, int(n)), args) for text, net, n in nets}
    if args.torch:  # which is not loaded before
        start_gloo()
        for text, net, n in nets:
            found[text]["torch"] = measured(partial(beside_torch, net, int(n)), args)
    report = {"machine": machine, "mpi": world().name, "ranks": COMM.size, "nets": found}
    report["sums"] = sums_alone(args.rounds)
    if COMM.rank == 0:
        write(args.into / f"ranks_{COMM.size}.json", report)


if __name__ == "__main__":
    main()
