"""The loop: when to step, test, show, save; and how to go on after a stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe import backend
from minicaffe.backend import on_its_device
from minicaffe.errors import DataError, SpecError
from minicaffe.net import Net, read
from minicaffe.ops import conv
from minicaffe.parallel import ALONE, Communicator, device_of, on
from minicaffe.parallel.together import agree, one_by_one, together
from minicaffe.solver import snapshots
from minicaffe.solver.alike import begin_alike, check_alike, check_parts
from minicaffe.solver.average import Average
from minicaffe.solver.interrupt import Signals
from minicaffe.solver.iteration import Iterating
from minicaffe.solver.judging import Judging
from minicaffe.solver.kept import Kept, recorded
from minicaffe.solver.mixed import Mixed
from minicaffe.solver.nan_guard import Watch
from minicaffe.solver.ranks import Ranks, share_of, told_by
from minicaffe.solver.report import Mute, Report, keys_given
from minicaffe.solver.rules import Update
from minicaffe.solver.scores import score_suffixes, test_nets, test_scores
from minicaffe.solver.trend import trends
from minicaffe.spec.declare import NetSpec
from minicaffe.spec.solver_rules import check_max_iter, with_settings


class Solver(Judging, Iterating):
    """Trains the net of a model file as its `solver` says, in Caffe's order of things.

    `settings` replace keys of the model's solver: `Solver("lenet.yaml", max_iter=100)`. The test net shares
    the parameters; `dtype`, `precision`, `engine`, `workspace_cap`, `deterministic`, `keep` are Net's, but
    blobs share memory unless `keep` is None. With `graph` iterations on CUDA are captured into a graph.
    Nets of 16 bits are learnt and saved in float32 (see `mixed`). Of several ranks of a `communicator` each
    computes a part of every batch, with `batch_per_rank` one of its own, and gradients are summed in
    `reduce_dtype`, if that is given (docs/scale.md). In the folder `run` it leaves, if that is given,
    what `minicaffe train` does: model, log, snapshots (docs/runs.md). On a CPU the same model, seed, data,
    plan of convolutions (`deterministic`: the fixed rule), threads, loops and BLAS give the same bits.
    Raises the MinicaffeErrors of Net; SpecError without a solver or, with `needs_loss`, a loss.
    """

    def __init__(
        self,
        model: str | Path | Mapping[str, Any] | NetSpec,
        *,
        device: str | backend.Device | None = None,
        report: Report | None = None,
        dtype: Any = None,
        precision: str | None = None,
        engine: str = "auto",
        workspace_cap: int = conv.CAP,
        deterministic: bool = False,
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
        self.spec = with_settings(spec.solver, settings)
        check_max_iter(self.spec, needed=False)
        self.communicator, self._graph = communicator or ALONE, graph
        self.report = (report or Report()) if self.communicator.rank == 0 else Mute()
        self.run = Path(run) if run is not None else None
        self._kept = Kept(self, spec, settings) if run is not None else None
        built, given = self.spec.train_state, {"dtype": dtype, "seed": self.spec.random_seed}
        given |= {"engine": engine, "workspace_cap": workspace_cap, "deterministic": deterministic}
        if not isinstance(device, backend.Device):
            device = device_of(device or self.spec.device, self.communicator)
        given |= {"device": device, "precision": precision, "keep": keep}
        self.communicator = on(device, self.communicator)
        share = share_of(self.communicator, batch_per_rank)
        make = partial(
            Net, spec, "TRAIN", **given, level=built.level, stages=built.stage, share=share
        )
        self.net = one_by_one(self.communicator, make)
        self.device = self.net.device
        if share is not None:
            check_parts(self.communicator, self.net, built)
        if needs_loss and not self.net.graph.losses:
            told = "add one, such as SoftmaxWithLoss, or give a top a loss_weight"
            phase = "no layer of the phase TRAIN is a loss of a weight above 0"
            raise SpecError(f"{file}: nothing to learn from: {phase}; {told}").on_all()
        xp = self.device.xp
        self._mixed: Mixed | None = None
        with self.device.current():
            half, learnt = self.net.context.dtype.itemsize == 2, self.net.learnable
            window = self.spec.average_loss, self.net.context.sum_dtype
            self._watch = Watch(xp, *window, half, self.net.context.refused)
            self._watch.keep(self.net.layers.values())
            self._losses = self._watch.losses
            means = (
                self.spec,
                learnt,
                self.device,
                self._watch,
                self.net.context.slots,
                share is not None,
            )
            if half:
                self._mixed = Mixed(*means)
                self.net.loss_scale = self._mixed.scale
            self.rule = self._mixed or Update(*means)
            decay = self.spec.ema_decay
            self._average = Average(decay, self.rule, self._watch) if decay else None
            self._one = xp.empty((), self.net.context.sum_dtype)
        self._ranks: Ranks | None = None
        if share is not None:
            given_to = self.communicator, self.net, self.rule.laid, self._watch
            self._ranks = Ranks(*given_to, late=half, dtype=reduce_dtype)
        tests = partial(test_nets, spec, self.spec, **given)
        self.test_nets = together(self.communicator, tests)
        rank = self.communicator.rank
        for net in (self.net, *self.test_nets):
            net.share_with(self.net)
            net.context.tell = self.report.event if rank == 0 else partial(told_by, rank)
            net.debug = self.report.line if self.spec.debug_info or net.debug else None
        self.iteration, self._recorded, self.stopped = 0, 0, False
        self.scores: dict[str, Any] = {}  # of the last test
        self.report.tests_on(score_suffixes(self.test_nets, self.net))
        self._trends = trends(spec, self.spec, self.test_nets)
        self._begin_saving(spec)
        self._begin_iterating()
        if self._ranks is not None:
            check_alike(self)

    @property
    def test_net(self) -> Net | None:
        """The first of the test nets, if there is any."""
        return self.test_nets[0] if self.test_nets else None

    def __repr__(self) -> str:
        head = f"{self.net.name or 'net'}, {self.spec.type} at iteration {self.iteration}"
        return f"{head} on {self.device.name}\n{keys_given(self.spec)}"

    def _repr_html_(self) -> str:
        return f"<div><pre>{escape(repr(self))}</pre>{self.net._repr_html_()}</div>"

    @recorded(ends=True)
    def solve(self) -> dict[str, Any]:
        """Train to max_iter, snapshot, test. Gives the last test's scores, {} without a test.

        Tests may end it early (`early_stopping`): `ended` then says why. SIGINT (Ctrl-C) or SIGTERM stops
        after the iteration, with a snapshot; `stopped` is then true. SIGHUP takes a snapshot. After that, as
        after one that could not be written and was reported, training goes on. Raises CheckpointError if
        none could be from the beginning or, after all else is done, if the last could not; DivergedError if
        a number is not finite; DataError if data cannot be read on the way, after a snapshot; SpecError
        without max_iter.
        """
        check_max_iter(self.spec)
        self._check_left()
        writable = self._prefix, self.spec.snapshot_format, self.net.layers
        self._one_writes(lambda: snapshots.check(*writable))
        self.report.started(self.net.warnings)
        signals = Signals(silent=self.communicator.rank > 0)
        with signals, np.errstate(all="ignore"):  # a loss that is no number is told
            self._step_or_save((self.spec.max_iter or 0) - self.iteration, signals)
        self.loss()
        self.stopped = self._asked_to_stop and self.iteration < self._end and not self.ended
        self._last_snapshot()
        scores = self.scores if self.ended else {}
        if self.test_nets and not (self.stopped or self.ended):
            scores = self.test()
            self._judge()
        self.report.finished(self.net.warnings)
        if self._mixed is not None and (skipped := int(self._mixed.skipped)):
            self.report.failed(
                f"{skipped} iterations passed over: gradients beyond {self.net.context.dtype.name}; "
                f"loss_scale is {self._mixed.scale:g}"
            )
        unsaved = self.unsaved[1] if self.unsaved is not None else None
        agree(self.communicator, unsaved)
        return scores

    def _step_or_save(self, count: int, signals: Signals) -> None:
        """Step; where data cannot be read any more, take a snapshot before the error goes on."""
        try:
            self.step(count, signals)
        except DataError as error:
            if self.net.context.passes != self.iteration * self.spec.iter_size:
                raise  # a part of an iteration was done: layers may have counted it
            self.stopped = True
            self._try_snapshot()
            if self._saved != self.iteration:
                raise
            told = DataError(f"{error}; stopped at iteration {self.iteration}, with a snapshot")
            told.everywhere = error.everywhere
            raise told from None

    @recorded(ends=False)
    @on_its_device
    def step(self, count: int, signals: Signals | None = None) -> None:
        """Take `count` iterations, with the tests, lines and snapshots that fall into them.

        Fewer where early_stopping ends training, which `ended` then says.
        A snapshot that cannot be written is reported, and `unsaved` says why.
        """
        spec, self._asked_to_stop = self.spec, False
        if self._ranks is not None:
            self._ranks.signals = signals
            begin_alike(self)
        for _ in range(count):
            if self._test_due():
                self.loss()  # no test of what has diverged
                self.test()
                if self._judge():
                    break
            self._iterate()
            self._look()
            if spec.display and self.iteration % spec.display == 0:
                self._shown.append((self.iteration, self.loss(), self.rate))
                self.report.displayed(*self._shown[-1])
            self.iteration += 1
            self.report.iterated(self)
            if self._save_asked(signals) or (spec.snapshot and self.iteration % spec.snapshot == 0):
                self._try_snapshot()
            if self._asked_to_stop:
                break

    def test(self) -> dict[str, Any]:
        """The test nets' outputs, averaged over test_iter batches from the data's beginning, or all of it."""
        if not self.test_nets:
            raise SpecError("the solver has no 'test_interval': nothing to test")
        self.report.testing(self.iteration)
        given = self.spec.tests(len(self.test_nets)), self.spec.test_compute_loss
        with self.averaged():
            self.scores = test_scores(self.test_nets, *given, self.communicator)
        self._tests.append((self.iteration, self.scores))
        self.report.tested(self.iteration, self.scores)
        return self.scores
