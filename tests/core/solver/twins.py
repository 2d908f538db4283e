"""Two solvers or nets of one model: one records its work and replays it, the other does it as it is."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe import Net, Solver, parse
from minicaffe.backends.replay.replay import Call, CudaGraph, Segment
from minicaffe.core.solver.mixed import Mixed
from minicaffe.core.solver.report import Mute as Quiet

SMALL = """
name: small
layers:
  - {{name: data, type: Data, top: [x, label], source: digits, batch_size: 6, transform: {{scale: 0.004, crop_size: 20, mirror: true}}}}
  - {{name: conv, type: Convolution, bottom: x, num_output: 4, kernel_size: 5, stride: 2}}
  - {{name: norm, type: BatchNorm}}
  - {{name: pool, type: Pooling, kernel_size: 2, stride: 2}}
  - {{name: ip, type: InnerProduct, num_output: 12, param: [{{lr_mult: 1}}, {{lr_mult: 2, decay_mult: 0}}]}}
  - {{name: relu, type: ReLU, top: ip}}
  - {{name: drop, type: Dropout, top: ip}}
  - {{name: left, type: InnerProduct, num_output: 10}}
  - {{name: right, type: InnerProduct, bottom: ip, num_output: 10}}
  - {{name: sum, type: Eltwise, bottom: [left, right]}}
  - {{name: acc, type: Accuracy, bottom: [sum, label], include: TEST}}
  - {{name: loss, type: SoftmaxWithLoss, bottom: [sum, label]}}
  - {{name: more, type: SoftmaxWithLoss, bottom: [right, label], loss_weight: 0.3}}
solver: {{base_lr: 0.05, momentum: 0.9, weight_decay: 0.001, max_iter: 1000{more}}}
"""


class Twins:
    """The two of them; what is done with both leaves the same bits of all that a user can see."""

    def __init__(self, make: Callable[[], Any]):
        self.replaying, self.plain = self.both = make(), make()
        plainly(self.plain)

    def step(self, count: int = 1) -> None:
        """Take iterations with both, or passes; all numbers are compared behind each."""
        for _ in range(count):
            self.do(go)
            self.check()

    def do(self, work: Callable[[Any], Any]) -> list[Any]:
        """Do something with both; what it returned."""
        return [work(one) for one in self.both]

    def check(self) -> None:
        """What differs fails."""
        apart = differences(*map(numbers, self.both))
        assert not apart, f"apart: {', '.join(apart)}"

    @property
    def replays(self) -> bool:
        """Whether the one replays all of it."""
        return replays(self.replaying)


def go(one: Solver | Net) -> Any:
    """Take an iteration of a solver, or a pass of a net."""
    return one.step(1) if isinstance(one, Solver) else one.forward()


def plainly(one: Solver | Net) -> None:
    """Have a solver or a net replay nothing."""
    for net in one.test_nets if isinstance(one, Solver) else [one]:
        net.passes.guard.never = "asked"
    if isinstance(one, Solver):
        one.iterations.premise.never = "asked"


def nodes(one: Solver | Net) -> list[Any]:
    """What a solver replays of whole iterations, or a net of passes."""
    return one.iterations.whole.nodes or [] if isinstance(one, Solver) else [*one.passes.nodes]


def replays(one: Solver | Net) -> bool:
    """Whether it replays whole iterations, or passes."""
    return bool(nodes(one))


def twins(more: str = "", text: str = SMALL, kind: str = "SGD", **settings: Any) -> Twins:
    """Twins of a model's text, with more keys of the solver."""
    more += f", type: {kind}"
    if kind in ("AdaGrad", "RMSProp"):
        text = text.replace("momentum: 0.9, ", "")
    given = {"device": "cpu", "report": Quiet()} | settings
    return Twins(lambda: Solver(parse(text.format(more=more)), **given))


def numbers(one: Solver | Net) -> dict[str, np.ndarray]:
    """All that a user can see of a solver or a net, by name."""
    of_solver = isinstance(one, Solver)
    nets, seen = [one.net, *one.test_nets] if of_solver else [one], dict[str, Any]()
    for number, net in enumerate(nets):
        trains, shares = of_solver and number == 0, net.memory.sharing
        hidden = shares.lives if shares.which == "data" else ()
        for name, param in net.named_params.items():
            seen[f"{number} {name}"] = param.data
            if trains:
                seen[f"{number} {name} diff"] = param.diff
        for step in net.steps:
            where = f"of {step.spec.name}"
            for i, statistic in enumerate(step.layer.running):
                seen[f"{number} {step.spec.name} running {i}"] = statistic
            for value in step.tops:
                if value.root not in hidden:
                    seen[f"{number} {value.name} {where}"] = value.blob.data
                if trains and value.blob._diff is not None and not shares.lives:
                    seen[f"{number} diff of {value.name} {where}"] = value.blob.diff
        seen[f"{number} passes"] = np.array(net.context.passes)
    if of_solver:
        seen |= {f"history {i}": x for i, x in enumerate(one.rule.history)}
        seen |= {"losses": one.watch.losses, "flags": one.watch.flags}
        seen |= {"square": one.watch.squares[:1]}
        seen |= {f"score {name}": np.array(score) for name, score in one.scores.items()}
        seen["recorded"] = np.array([one.iterations.recorded, one.iteration])
        if isinstance(one.rule, Mixed):
            seen |= {f"master {i}": master.data for i, master in enumerate(one.rule.masters)}
        if one.average is not None:
            seen |= {f"mean {i}": x for i, x in enumerate(one.average.means)}
    host = one.device.to_host
    return {name: np.array(x if isinstance(x, np.ndarray) else host(x)) for name, x in seen.items()}


def differences(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> list[str]:
    """The names of arrays whose bits differ."""
    both = [name for name in mine if name in theirs]
    apart = [name for name in both if mine[name].tobytes() != theirs[name].tobytes()]
    return [*apart, *sorted(mine.keys() ^ theirs.keys())]


def calls(one: Solver | Net) -> dict[str, str]:
    """What of an iteration or a pass a replay does in Python, and why."""
    return {node.what: node.why for node in nodes(one) if isinstance(node, Call)}


def segments(one: Solver | Net) -> list[Segment]:
    """What of it is replayed by commands."""
    return [node for node in nodes(one) if isinstance(node, Segment)]


def graphs(one: Solver | Net) -> list[CudaGraph]:
    """What of it is captured on CUDA."""
    return [node for node in nodes(one) if isinstance(node, CudaGraph)]
