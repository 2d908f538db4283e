"""Two solvers of one model: one records its iterations and replays them, the other takes each as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minicaffe import Solver, parse
from minicaffe.backends.replay.replay import Call, Segment
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
    """The two of them; `step` takes an iteration with both, and sees that all numbers are the same bits."""

    def __init__(self, make: Callable[[], Solver]):
        self.replaying, self.plain = self.both = make(), make()
        plainly(self.plain)

    def step(self, count: int = 1) -> None:
        """Take iterations with both."""
        for _ in range(count):
            for solver in self.both:
                solver.step(1)
            self.check()

    def check(self) -> None:
        """What differs fails."""
        found = differences(*map(numbers, self.both))
        assert not found, f"iteration {self.plain.iteration - 1}: {', '.join(found)}"

    @property
    def replays(self) -> bool:
        """Whether the one replays an iteration, all of it."""
        return bool(self.replaying.iterations.recordings["iteration"])


def plainly(solver: Solver) -> None:
    """Have a solver take each iteration as it is: on CUDA it is asked to, else somebody watches."""
    if solver.device.is_cuda:
        solver.iterations.graph = False
        return
    solver.net.steps[0].watchers.setdefault("before_forward", []).append(lambda: None)


def twins(more: str = "", text: str = SMALL, **settings: Any) -> Twins:
    """Twins of a model's text, with more keys of the solver."""
    given = {"device": "cpu", "report": Quiet()} | settings
    return Twins(lambda: Solver(parse(text.format(more=more)), **given))


def numbers(solver: Solver) -> dict[str, np.ndarray]:
    """All that an iteration computes, by name."""
    net, found = solver.net, dict[str, np.ndarray]()
    for name, param in net.named_params.items():
        found[f"{name} data"], found[f"{name} diff"] = param.data, param.diff
    for step in net.steps:
        for value in step.tops:
            found[f"{value.name} of {step.spec.name}"] = value.blob.data
            if value.blob._diff is not None and not net.memory.sharing.lives:
                found[f"{value.name} of {step.spec.name} diff"] = value.blob.diff
    found |= {f"history {i}": array for i, array in enumerate(solver.rule.history)}
    if isinstance(solver.rule, Mixed):
        found |= {f"master {i}": one.data for i, one in enumerate(solver.rule.masters)}
    if solver.average is not None:
        found |= {f"mean {i}": array for i, array in enumerate(solver.average.means)}
    found |= {
        "losses": solver.watch.losses,
        "flags": solver.watch.flags,
        "square": solver.watch.squares[:1],
    }
    return {name: solver.device.to_host(array) for name, array in found.items()}


def differences(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> list[str]:
    """The names of arrays whose bits differ."""
    both = [name for name in mine if name in theirs]
    apart = [name for name in both if mine[name].tobytes() != theirs[name].tobytes()]
    return [*apart, *sorted(mine.keys() ^ theirs.keys())]


def calls(solver: Solver) -> dict[str, str]:
    """What of an iteration a replay does in Python, and why."""
    nodes = [node for half in solver.iterations.recordings.values() for node in half]
    return {node.what: node.why for node in nodes if isinstance(node, Call)}


def segments(solver: Solver) -> list[Segment]:
    """What of an iteration is replayed."""
    return [node for node in solver.iterations.recordings["iteration"] if isinstance(node, Segment)]
