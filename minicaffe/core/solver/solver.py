"""The training loop: when to step, test, display and save; and how to resume."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from minicaffe.backends import device as backend
from minicaffe.backends.dispatch import on_its_device, replayed
from minicaffe.core.communicator import ALONE, Communicator, agree, device_of, one_by_one, together
from minicaffe.core.config.declare import NetSpec, check_max_iter, with_settings
from minicaffe.core.config.types import keys_of
from minicaffe.core.interrupt import Held, Signals, deliver, waiting
from minicaffe.core.layers.context import Numerics, Share
from minicaffe.core.net import Net, read
from minicaffe.core.plugins import hooks
from minicaffe.core.solver import snapshots
from minicaffe.core.solver.average import Average
from minicaffe.core.solver.iteration import Iteration, Now, Undone
from minicaffe.core.solver.learning_rate import learning_rate
from minicaffe.core.solver.mixed import Mixed, rule_of
from minicaffe.core.solver.nan_guard import watch_of
from minicaffe.core.solver.report import Mute, Report, keys_given, recorded
from minicaffe.core.solver.scores import Judge, score_suffixes, test_nets, test_scores, trends
from minicaffe.core.solver.snapshots import Saving
from minicaffe.errors import CheckpointError, DataError, SpecError

UNHEARD = Report.iterated  # which does nothing


class Solver:
    """Trains the net of a model file by its `solver`, in Caffe's order.

    `settings` replace keys of the model's solver: `Solver("lenet.yaml", max_iter=100)`. The test net shares
    the parameters; `numerics`, or its fields by name, and `keep` are Net's, but blobs share memory unless
    `keep` is None. With `graph` iterations and tests on CUDA are graphs. Nets of float16 and bfloat16 are
    updated and saved in float32 (see `mixed`). Each of several ranks of a `communicator` computes a part of
    every batch, with `batch_per_rank` its own batch; gradients are summed in `reduce_dtype` (docs/scale.md). A
    folder `run` receives the files of `minicaffe train` (docs/runs.md). On a CPU the same model, seed, data,
    plan of convolutions (`deterministic`: the fixed rule), threads, loops and BLAS compute the same bits. Its
    parts: `net`, `test_nets`, `rule`, `iterations`, `watch` (the NaN guard), `judge` (of tests), `saving`,
    `ranks`, `average` or None. Raises the MinicaffeErrors of Net; SpecError without a solver or, with
    `needs_loss`, a loss; CheckpointError if the folder that `snapshot` needs is missing.
    """

    _folder_comes = False  # the folder of snapshots may be one that is made when training begins

    def __init__(
        self,
        model: str | Path | Mapping[str, Any] | NetSpec,
        *,
        device: str | backend.Device | None = None,
        report: Report | None = None,
        numerics: Numerics | None = None,
        keep: Sequence[str] | None = (),
        needs_loss: bool = True,
        graph: bool = True,
        communicator: Communicator | None = None,
        batch_per_rank: bool = False,
        reduce_dtype: Any = None,
        run: str | Path | None = None,
        **settings: Any,
    ):
        spec = model if isinstance(model, NetSpec) else read(model)
        file = spec.path or spec.layers[0].mark.file
        if spec.solver is None:
            raise SpecError(f"{file}: has no 'solver'; training needs one").on_all()
        by_name = {key: settings.pop(key) for key in keys_of(Numerics) if key in settings}
        numerics = replace(numerics or Numerics(), **by_name)
        self.spec = with_settings(spec.solver, settings)
        check_max_iter(self.spec, needed=False)
        ranks = communicator or ALONE
        self.report = (report or Report()) if ranks.rank == 0 else Mute()
        self.run = Path(run) if run is not None else None
        if not isinstance(device, backend.Device):
            device = device_of(device or self.spec.device, ranks)
        self.communicator = ranks = ranks.on(device)
        self.record_folder: str | Path | None = None  # of the run, for diverged.npz
        self._kept = None if run is None else hooks().recorder(self, spec, settings)
        built: dict[str, Any] = {"device": device, "numerics": numerics, "keep": keep}
        built["seed"] = self.spec.random_seed
        share = Share(ranks.rank, ranks.size, batch_per_rank, ranks) if ranks.size > 1 else None
        state = self.spec.train_state
        learning = {**built, "level": state.level, "stages": state.stage, "share": share}
        self.net = one_by_one(ranks, partial(Net, spec, "TRAIN", **learning))
        if share is not None:
            ranks.check_net(self.net, state)
        self.device = self.net.device
        if needs_loss and not self.net.graph.losses:
            hint = "add one, such as SoftmaxWithLoss, or give a top a loss_weight"
            phase = "no layer of the phase TRAIN is a loss of a weight above 0"
            raise SpecError(f"{file}: nothing to learn from: {phase}; {hint}").on_all()
        with self.device.current():
            self.watch = watch_of(self.net, self.spec.average_loss)
            self.rule = rule_of(self.net, self.spec, self.watch, share is not None)
            decay = self.spec.ema_decay
            self.average = Average(decay, self.rule, self.watch) if decay else None
        summed = self.net, self.rule.laid, self.watch, isinstance(self.rule, Mixed), reduce_dtype
        self.ranks = self.communicator.solver_ranks(*summed)
        parts = self.net, self.watch, self.average, self.ranks
        self.iterations = replayed("training", Iteration)(*parts)
        self.iterations.graph = graph
        built["numerics"] = replace(numerics, precision=self.net.precision)
        built["replay"] = graph or not self.device.is_cuda
        self.test_nets = together(self.communicator, partial(test_nets, spec, self.spec, **built))
        for net in (self.net, *self.test_nets):
            net.share_with(self.net)
            net.context.tell = self.report.event if ranks.rank == 0 else ranks.note
            net.debug = self.report.line if self.spec.debug_info or net.debug else None
        self.report.tests_on(score_suffixes(self.test_nets, self.net))
        self.judge = Judge(trends(spec, self.spec, self.test_nets))
        self.iteration = 0
        self.stopped = self._asked_to_stop = False
        self.ended: str | None = None  # why training ended early, if it did
        self.scores: dict[str, Any] = {}  # of the last test
        self._shown: list[tuple[int, float, float]] = []  # iteration, loss and rate
        self._tests: list[tuple[int, dict[str, Any]]] = []  # iteration and scores
        self._said: list[str] = []  # reasons why an iteration is not one CUDA graph
        name = snapshots.name(spec)
        default_prefix = str(self.run / name if self.run else name)
        self.saving = Saving(self.spec.snapshot_prefix or default_prefix)
        self.saving.make_folder(self)
        self._alike = False  # whether several ranks started from one state
        self.ranks.check_alike(self)

    @property
    def test_net(self) -> Net | None:
        """The first of the test nets, if there is any."""
        return self.test_nets[0] if self.test_nets else None

    @property
    def rate(self) -> float:
        """The learning rate of the next iteration."""
        return self._now[-1]

    @property
    def log(self) -> Any:
        """Displayed losses and test results since the solver was made: arrays by name, and `frame()`."""
        return hooks().log(self._shown, self._tests)

    @property
    def unsaved(self) -> tuple[int, CheckpointError] | None:
        """The iteration of the last snapshot that could not be written, and why."""
        return self.saving.unsaved

    @property
    def _end(self) -> float:
        return math.inf if self.spec.max_iter is None else self.spec.max_iter

    @property
    def _now(self) -> Now:
        plateau = self.judge.trends.get("plateau")
        rate = learning_rate(self.spec, self.iteration, plateau.fallen if plateau else 0)
        return self.spec, self.rule, self.iteration, rate

    def __repr__(self) -> str:
        head = f"{self.net.name or 'net'}, {self.spec.type} at iteration {self.iteration}"
        return f"{head} on {self.device.name}\n{keys_given(self.spec)}"

    def _repr_html_(self) -> str:
        return f"<div><pre>{escape(repr(self))}</pre>{self.net._repr_html_()}</div>"

    def fit(
        self, x: Any = None, y: Any = None, *, validation: tuple[Any, Any] | None = None
    ) -> dict[str, Any]:
        """`solve`, watched: a bar and live curves in a notebook, a bar on a terminal, lines elsewhere.

        Arrays x (n, ...) and y (n,) are read in the place of the Data layer's pictures and labels, or by the
        two Inputs of a net; `validation`, (x, y), by the tests, else a fifth of each class. Raises DataError.
        """
        return hooks().fit(self, x, y, validation)

    def solve(self) -> dict[str, Any]:
        """Train to max_iter, snapshot, test. Returns the last test's scores, {} without a test.

        Tests may end it early (`early_stopping`): `ended` then says why. SIGINT (Ctrl-C) or SIGTERM stops
        after the iteration, with a snapshot; `stopped` is then true. SIGHUP takes a snapshot; training goes
        on, also if one cannot be written, which is reported. Raises CheckpointError if no snapshot can be
        written at the start or, after all else is done, if the last was not; DivergedError if a number is not
        finite; DataError if data can no longer be read, after a snapshot; SpecError without max_iter.
        """
        with self._recording(ends=True):
            check_max_iter(self.spec)
            self.saving.check(self)
            self.report.started(self.net.warnings)
            signals = Signals(silent=self.communicator.rank > 0)
            with signals, np.errstate(all="ignore"):  # a NaN loss is reported
                try:
                    self.step((self.spec.max_iter or 0) - self.iteration, signals)
                except DataError as error:
                    if self.net.context.passes != self.iteration * self.spec.iter_size:
                        raise  # a part of an iteration ran: layers may have counted it
                    self.stopped = True
                    raise self.saving.saved_before(self, error) from None
            self.loss()
            self.stopped = self._asked_to_stop and self.iteration < self._end and not self.ended
            self.saving.save_last(self)
            scores = self.scores if self.ended else {}
            if self.test_nets and not (self.stopped or self.ended):
                scores = self.test()
                self._go_by_test()
            self.report.finished(self.net.warnings)
            if isinstance(self.rule, Mixed) and (sentence := self.rule.passed_over()):
                self.report.failed(sentence)
            agree(self.communicator, self.unsaved[1] if self.unsaved is not None else None)
            return scores

    def _recording(self, ends: bool) -> contextlib.AbstractContextManager[None]:
        """A context in which this is recorded in the folder of the run, if it has one."""
        if self._kept is None or self._kept.inside:
            return contextlib.nullcontext()
        return recorded(self, ends)

    @on_its_device
    def step(self, count: int, signals: Signals | None = None) -> None:
        """Do `count` iterations, with their tests, lines and snapshots.

        It does fewer if early_stopping ends training; `ended` then says why. A snapshot that cannot be written
        is reported, and `unsaved` says why. A signal waits for the end of an iteration, or of a test's batch.
        """
        with self._recording(ends=False):
            self._asked_to_stop = False
            self.ranks.signals = signals
            if not self._alike:
                self.ranks.begin_alike(self)
            with Held():
                if self.average is not None:
                    self.average.leave()  # what interrupted a test may have interrupted its end
                for _ in range(count):
                    if waiting:
                        deliver()
                    if self.spec.test_interval and self.test_due():
                        self.loss()  # raises if training has diverged
                        self.test()
                        if self._go_by_test():
                            break
                    self._iterate_and_tell()
                    due = self.spec.snapshot and self.iteration % self.spec.snapshot == 0
                    if ((signals or self.ranks.several) and self.ranks.asked(self)) or due:
                        self.saving.try_to_save(self)
                    if self._asked_to_stop:
                        break

    def _iterate_and_tell(self) -> None:
        """Do an iteration, count it, and tell of it; once it is done it counts, whatever a report raises."""
        now, self.iterations.updated = self.iteration, False
        try:
            self._iterate()
            if self.watch.stopped_at_hand():
                self.loss()
            if self.spec.display and now % self.spec.display == 0:
                self._shown.append((now, self.loss(), self.rate))
                self.report.displayed(*self._shown[-1])
        except BaseException:
            if self.iterations.updated:
                self.iteration = now + 1
            raise
        self.iteration = now + 1
        if getattr(self.report.iterated, "__func__", None) is not UNHEARD:
            self.report.iterated(self)

    def test(self) -> dict[str, Any]:
        """The test nets' outputs, averaged over the first test_iter batches of the data, or all of it."""
        if not self.test_nets:
            raise SpecError("the solver has no 'test_interval': nothing to test")
        self.report.testing(self.iteration)
        batches, loss = self.spec.tests(len(self.test_nets)), self.spec.test_compute_loss
        with Held(), self.averaged():
            self.scores = test_scores(self.test_nets, batches, loss, self.communicator)
        self._tests.append((self.iteration, self.scores))
        self.report.tested(self.iteration, self.scores)
        return self.scores

    def _iterate(self) -> None:
        """Compute the gradient and the update; as one work, unless a user overrides one of them."""
        cls, why = type(self), self.iterations.seen
        own = "gradient" in vars(self) or "update" in vars(self)
        if own or cls.gradient is not Solver.gradient or cls.update is not Solver.update:
            why = f"{cls.__name__} takes gradient and update apart"
            self.ranks.share_no_more()
        begins = self.average is not None and self.iteration == 0  # between the two
        graphs = self.device.is_cuda and self.iterations.graph
        if why or begins or (self.device.is_cuda and not graphs):
            with Undone(self.iterations):
                self.gradient()
                self.update()
        else:
            self.iterations.run(self._now)
        if graphs and (reasons := self.iterations.explained(why)) not in ([], self._said):
            self._said = reasons
            self.report.event(f"not in a CUDA graph: {'; '.join(reasons)}")

    def gradient(self) -> None:
        """Compute the gradient of this iteration's batches."""
        self.iterations.gradient(self._now)

    def update(self) -> None:
        """Update the parameters with the current gradients, at the rate of this iteration."""
        self.iterations.update(self._now)

    @on_its_device
    def loss(self) -> float:
        """The loss averaged over the last average_loss iterations; waits for the device.

        Raises DivergedError for the first iteration whose loss or gradient was not finite, however long
        ago, and if the weights are not finite. Then parameters and state are as when that iteration began,
        `iteration` is its number, and a file to compute it again was saved. If a layer knows the cause,
        such as an invalid label, it raises its own MinicaffeError.
        """
        self.watch.weigh(self.rule.weights)
        watched = self._watched = self.watch.told(self.device)
        loss = float(np.mean(watched.losses[: max(self.iterations.recorded, 1)], dtype=np.float64))
        if watched.stopped or not math.isfinite(loss):
            at = self.watch.iteration(watched) if watched.stopped else self.iteration
            self._raise_diverged(at, loss)
        if not math.isfinite(watched.weights + watched.running):  # perhaps only the sum of squares
            running = [array for layer in self.net.layers.values() for array in layer.running]
            arrays = map(self.device.to_host, [*self.rule.weights, *running])
            if not all(np.isfinite(array).all() for array in arrays):
                self._raise_diverged(self.watch.last + 1, loss, before=True)
        return loss

    def _raise_diverged(self, iteration: int, loss: float, before: bool = False) -> NoReturn:
        self.iterations.updated = False  # all will be as when that iteration began
        hooks().raise_diverged(self, iteration, loss, before)

    def norms(self) -> tuple[float, float]:
        """The L2 norms of gradient and weights when `loss` was last read, of all learning parameters.

        The gradient is the mean over iter_size batches, before clip_gradients scales it.
        """
        return self._watched.gradient / self.spec.iter_size, self._watched.weights

    def test_due(self) -> bool:
        """Whether a test comes before the next iteration."""
        due = self.spec.test_interval and self.iteration % self.spec.test_interval == 0
        return bool(due and (self.iteration or self.spec.test_initialization))

    @on_its_device
    def _go_by_test(self) -> bool:
        """React to the last test; returns whether training ends early, with the reason in `ended`."""
        now, goes_on, self.ended = self.iteration, self.iteration < self._end, None
        report, keep = self.report.event, partial(self.saving.save_best, self)
        worn = self.judge.judge(self.spec, now, self.scores, report, keep)
        if worn is not None and goes_on:
            self.ended = str(worn)
            self.report.event(f"stopped early at iteration {now}: {worn}")
        return self.ended is not None

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """A context in which the nets have the averaged weights, if there are any."""
        if self.average is None:
            return contextlib.nullcontext()
        if self.iteration == 0:
            self.average.begin()
        return self.average.in_place()

    @on_its_device
    def snapshot(self) -> Path:
        """Write parameters and the solver's state as `snapshot_format` says, atomically; returns the file.

        With `snapshot_keep` older snapshots beyond that number are removed. Raises CheckpointError.
        """
        self.loss()
        return self.saving.save(self)

    @on_its_device
    def restore(self, path: str | Path, replay: bool = False) -> None:
        """Resume from a snapshot, with its seed; differences from its model are reported.

        A run's folder stands for its newest snapshot. Raises CheckpointError, before any change, for what may
        not differ (see `changes`). With `replay` nothing is compared, and numbers need not be finite.
        """
        self._alike = False
        self.saving.restore(self, path, replay)
        self.iterations.torn = False
        self.watch.reset()  # its flags are of other weights

    def latest_snapshot(self) -> Path:
        """The newest snapshot of this solver. Raises CheckpointError without one."""
        return snapshots.latest(self.saving.prefix)
