"""caffe.SGDSolver and the others: our solver under the names of pycaffe."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import minicaffe
from minicaffe.core.config.declare import MEANS, NetSpec, SolverSpec
from minicaffe.core.solver import Report
from minicaffe.core.solver.report import banner
from minicaffe.interop import caffe
from minicaffe.interop.pycaffe import mode
from minicaffe.interop.pycaffe.blob import push
from minicaffe.interop.pycaffe.net import Net, model, own_errors

Callback = Callable[[], Any]


class Glog(Report):
    """A solver's lines, as far as their level is shown."""

    def line(self, text: str) -> None:
        """A line of the level INFO."""
        if mode.is_shown(mode.INFO):
            super().line(text)

    def started(self, warnings: Sequence[str]) -> None:
        """Training starts."""
        if mode.is_shown(mode.WARNING):
            for warning in warnings:
                Report.line(self, banner(warning))

    def failed(self, text: str) -> None:
        """Something did not succeed, and training went on."""
        if mode.is_shown(mode.ERROR):
            Report.line(self, text)


class _Watched(minicaffe.Solver):
    """A solver that calls functions before an iteration's gradient, and when that is there."""

    callbacks: tuple[tuple[Callback, Callback], ...] = ()
    ran = frozenset[str]()  # the phases of the nets that have run

    def test(self) -> dict[str, Any]:
        self.ran |= {"TEST"}
        return super().test()

    def gradient(self) -> None:
        for on_start, _ in self.callbacks:
            on_start()
        push()
        self.ran |= {"TRAIN"}
        super().gradient()

    def update(self) -> None:
        for _, on_gradients_ready in self.callbacks:
            on_gradients_ready()
        push()
        super().update()


class Solver:
    """The solver in a file, a prototxt or a model of ours (.yaml), of the type that the file says.

    `net` is the net that is trained, `test_nets` those it is tested with, which share its parameters. It is
    built where `set_mode_cpu` and `set_mode_gpu` say, whatever its solver_mode; in `step` and `solve` tests,
    lines on stderr (of the level INFO) and snapshots fall where they do in Caffe. Raises the MinicaffeErrors
    of minicaffe.Solver, and what a layer in Python raises.
    """

    kind: str | None = None

    def __init__(self, solver_file: str | Path | NetSpec):
        spec = model(solver_file, self.kind)
        settings: dict[str, Any] = {"device": mode.device_name()}
        if spec.solver is not None:
            if self.kind is not None:
                settings["type"] = self.kind
            if self.kind in MEANS:
                settings["momentum"] = spec.solver.momentum
            if "random_seed" not in spec.solver.nodes:
                settings["random_seed"] = mode.random_seed(spec.solver.random_seed)
        with own_errors():
            self.solver = _Watched(spec, keep=None, needs_loss=False, report=Glog(), **settings)
        self.net = Net.of(self.solver.net)
        self.test_nets = [Net.of(net) for net in self.solver.test_nets]

    def __repr__(self) -> str:
        return repr(self.solver)

    iter = property(lambda self: self.solver.iteration, doc="How many iterations were taken.")
    lr = property(lambda self: self.solver.rate, doc="The learning rate of the next iteration.")

    @property
    def param(self) -> SolverSpec:
        """What the solver does, by Caffe's names: `param.max_iter`, `param.base_lr`, ..."""
        return self.solver.spec

    def step(self, iterations: int) -> None:
        """Take so many iterations, with the tests, lines and snapshots that fall into them."""
        self._run(lambda: self.solver.step(iterations))

    def solve(self, resume_file: str | Path | None = None) -> None:
        """Train to max_iter, from a snapshot if one is given, with a snapshot and a test at the end."""
        if resume_file is not None:
            self.restore(resume_file)
        self._run(self.solver.solve)

    def _run(self, train: Callable[[], Any]) -> None:
        """Train, with all nets as scripts see them before and after."""
        nets = [self.net, *self.test_nets]
        for net in nets:
            net.reshape()
            net._ready("data", net.net.steps)
        self.solver.ran = frozenset()
        try:
            with own_errors():
                train()
        finally:
            for net in [net for net in nets if net.net.phase in self.solver.ran]:
                net._passed("data", net.net.steps)
            if "TRAIN" in self.solver.ran:
                self.net._passed("diff", self.net.net.steps[::-1])

    def apply_update(self) -> None:
        """Change the parameters by the gradients that are there, at the rate `lr`; `iter` stays."""
        push()
        with self.solver.device.current():
            minicaffe.Solver.update(self.solver)

    def restore(self, file: str | Path) -> None:
        """Go on where a snapshot (.solverstate, .solverstate.h5, .npz) was taken. Raises CheckpointError."""
        push()
        self.solver.restore(file)

    def snapshot(self) -> None:
        """Write PREFIX_iter_N.caffemodel and .solverstate, or what snapshot_format says."""
        push()
        self.solver.snapshot()

    def share_weights(self, net: Net) -> None:
        """Train the parameters of another net, layer by layer of one name. Raises ShapeError."""
        self.net.share_with(net)
        for test_net in self.test_nets:
            test_net.share_with(self.net)

    def add_callback(self, on_start: Callback, on_gradients_ready: Callback) -> None:
        """Call one function before each iteration's first pass, one before its update."""
        self.solver.callbacks += ((on_start, on_gradients_ready),)


RULES = {
    "SGD": "Stochastic gradient descent with momentum.",
    "Nesterov": "Nesterov's accelerated gradient.",
    "AdaGrad": "Rates by the sum of all squared gradients.",
    "RMSProp": "Rates by the running mean of squared gradients.",
    "AdaDelta": "Steps by running means of squared gradients and squared steps.",
    "Adam": "Steps by running means of gradients and of their squares.",
}
KINDS: dict[str, type[Solver]] = {
    kind: type(f"{kind}Solver", (Solver,), {"kind": kind, "__doc__": text, "__module__": __name__})
    for kind, text in RULES.items()
}
SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver = KINDS.values()


def get_solver(solver_file: str | Path) -> Solver:
    """The solver in a file, of the class that its `type` says. Raises the MinicaffeErrors of Solver."""
    return _solver(model(solver_file))


def get_solver_from_string(text: str) -> Solver:
    """The solver in a prototxt's text, as `get_solver` does.

    >>> solver = get_solver_from_string('''
    ... base_lr: 0.1 max_iter: 5 net_param {
    ...   layer { type: "DummyData" name: "x" top: "x" dummy_data_param { shape { dim: 2 dim: 3 } } }
    ...   layer { type: "InnerProduct" name: "ip" bottom: "x" top: "ip" inner_product_param { num_output: 1 } }
    ...   layer { type: "Reduction" name: "sum" bottom: "ip" top: "sum" loss_weight: 1 } }''')
    >>> solver.step(3)
    >>> round(float(solver.net.params["ip"][1].data[0]), 6)
    -0.6
    """
    return _solver(caffe.parse(text))


def _solver(spec: NetSpec) -> Solver:
    return KINDS.get(spec.solver.type if spec.solver is not None else "SGD", Solver)(spec)
