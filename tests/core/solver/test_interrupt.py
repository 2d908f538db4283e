"""Whatever interrupts a step, and whenever: all of the solver is as before the iteration, or as after it."""

import itertools
import signal
import sys
import threading

import numpy as np
import pytest

from minicaffe import Solver, parse
from minicaffe.core import interrupt
from minicaffe.core.solver.report import Mute
from minicaffe.errors import TrainingError

TEXT = """
layers:
  - {name: data, type: Data, top: [data, label], source: digits, batch_size: 4, transform: {scale: 0.01}}
  - {name: conv, type: Convolution, bottom: data, num_output: 2, kernel_size: 5, stride: 3}
  - {name: bn, type: BatchNorm, bottom: conv, top: conv}
  - {name: relu, type: ReLU, bottom: conv, top: conv}
  - {name: ip, type: InnerProduct, bottom: conv, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {type: SGD, base_lr: 0.05, momentum: 0.9, lr_policy: fixed, max_iter: 99999, display: 2, average_loss: 3,
  ema_decay: 0.9, test_interval: 3, test_iter: 2, test_initialization: false}
"""


class Stop(BaseException):
    pass


def stop(*_):
    raise Stop


def solver(how: str, report=None) -> Solver:
    """One whose iterations are replayed from the third on; or are never, so that gradient and update are apart."""
    made = Solver(parse(TEXT), device="cpu", report=report or Mute(), deterministic=True)
    if how == "ordinary":
        made.iterations.premise.never = "asked for"
    made.step(5)
    assert bool(made.iterations.whole.nodes) == (how == "replayed")
    return made


def state(of: Solver, folder) -> dict:
    """All that a snapshot has, and what a Solver shows."""
    with np.load(of.snapshot()) as file:
        held = {name: file[name].tobytes() for name in file.files}
    return held | {"iteration": of.iteration, "passes": of.net.context.passes}


def at_instruction(number: int, act):
    """Call `act` before the instruction of Python's of this number, of all that this thread runs."""
    count = itertools.count()

    def trace(frame, event, arg):
        frame.f_trace_opcodes = True
        if event == "opcode" and next(count) == number:
            sys.settrace(None)
            act()
        return trace

    sys.settrace(trace)
    return count


@pytest.fixture
def alarm():
    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


def instructions(of: Solver, steps: int) -> int:
    """How many a number of steps take, at the least of three times."""
    counts = []
    for _ in range(3):
        count = at_instruction(-1, stop)
        of.step(steps)
        sys.settrace(None)
        counts.append(next(count))
    return min(counts)


@pytest.mark.parametrize("how", ["replayed", "ordinary"])
def test_a_signal_at_any_instruction(how, tmp_path, alarm, request, here):
    """Three steps, so that one tests, with averaged weights, and one displays."""
    subject, twin = solver(how), solver(how)
    every = max(1, instructions(subject, 3) // (2000 if request.config.getoption("--long") else 24))
    twin.step(subject.iteration - twin.iteration)
    interrupted = 0
    for number in range(0, 10**9, every):
        begun = subject.iteration
        at_instruction(number, lambda: signal.raise_signal(signal.SIGALRM))
        try:
            subject.step(3)
        except Stop:
            interrupted += 1
        ended = sys.gettrace() is not None  # and nothing interrupted it
        sys.settrace(None)
        assert begun <= subject.iteration <= begun + 3
        twin.step(subject.iteration - twin.iteration)
        assert state(subject, tmp_path) == state(twin, tmp_path), number
        assert signal.getsignal(signal.SIGALRM) is stop and not interrupt._before
        if ended:
            break
    assert interrupted > 12


@pytest.mark.parametrize("how", ["replayed", "ordinary"])
def test_an_exception_at_any_instruction_is_told_at_the_least(how, tmp_path, request, here):
    """As a debugger or another thread raises them: undone, done, or the solver says that its update is torn."""
    subject, twin = solver(how), solver(how)
    every = max(1, instructions(subject, 1) // (1000 if request.config.getoption("--long") else 16))
    twin.step(subject.iteration - twin.iteration)
    torn = tried = 0
    for number in range(0, 10**9, every):
        at_instruction(number, stop)
        try:
            subject.step(1)
        except Stop:
            tried += 1
        ended = sys.gettrace() is not None
        sys.settrace(None)
        interrupt._let_go()
        twin.step(subject.iteration - twin.iteration)
        was_torn = subject.iterations.torn
        if was_torn:
            with pytest.raises(TrainingError, match="the update of iteration .* restore a snapsho"):
                subject.step(1)
            subject.restore(twin.snapshot())
            subject.net.context.passes = twin.net.context.passes  # the next iteration sets it
        assert state(subject, tmp_path) == state(twin, tmp_path), number
        if was_torn:  # what is restored is traced anew
            torn, subject, twin = torn + 1, solver(how), solver(how)
        if ended:
            break
    assert tried > 8 and torn < tried / 3


@pytest.mark.parametrize("what", ["displayed", "iterated", "tested", "testing"])
def test_an_exception_of_a_report(what, tmp_path, monkeypatch, here):
    subject, twin = solver("replayed"), solver("replayed")
    monkeypatch.setattr(subject.report, what, stop)
    with pytest.raises(Stop):
        subject.step(6)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    twin.step(subject.iteration - twin.iteration)
    assert state(subject, tmp_path) == state(twin, tmp_path)
    subject.step(6)
    twin.step(6)
    assert state(subject, tmp_path) == state(twin, tmp_path)


def test_an_exchange_with_the_average_is_whole_or_not_at_all():
    """At whatever instruction it fails: else some weights would be means, or means would be trained."""
    subject = solver("replayed")
    subject.step(1)
    average = subject.average

    def all_of_them():
        weights = [param.data.tobytes() for param in average.params]
        return weights, [mean.tobytes() for mean in average.means]

    both, failed = all_of_them(), 0
    assert both[0] != both[1]
    for number in itertools.count():
        at_instruction(number, stop)
        try:
            average.swap()
        except Stop:
            failed += 1
        ended = sys.gettrace() is not None
        sys.settrace(None)
        assert all_of_them() == (both[::-1] if average.inside else both), number
        if ended:
            break
    assert failed > 100


def test_an_exchange_that_was_left_out_is_made_before_the_next_step(tmp_path, here):
    subject, twin = solver("ordinary"), solver("ordinary")
    subject.average.swap()  # as it is if something fails between a test and the exchange after it
    for one in (subject, twin):
        one.step(2)
    assert state(subject, tmp_path) == state(twin, tmp_path)


def test_a_second_signal_does_not_wait(alarm):
    seen = []
    with pytest.raises(Stop), interrupt.Held():
        signal.raise_signal(signal.SIGALRM)
        seen.append("held")
        signal.raise_signal(signal.SIGALRM)
        seen.append("not reached")
    assert seen == ["held"]
    interrupt.waiting.clear()


def test_signals_of_several_kinds_wait_and_other_threads_change_nothing(alarm):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append("user"))
    try:
        with pytest.raises(Stop), interrupt.Held():
            with interrupt.Held():
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGALRM)
            assert not seen
            thread = threading.Thread(target=lambda: interrupt.Held().__enter__().__exit__())
            thread.start()
            thread.join()
            assert not seen
        assert seen == ["user"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_rule_of_ones_own_that_fails_is_undone_or_done(tmp_path, here):

    class Own(Solver):
        fails = ""

        def update(self):
            if self.fails == "before":
                stop()
            super().update()
            if self.fails == "after":
                stop()

    made = [Own(parse(TEXT), device="cpu", report=Mute(), deterministic=True) for _ in range(2)]
    for when in ("before", "after", "before"):
        for one in made:
            one.fails = ""
            one.step(2)
        made[0].fails = when
        with pytest.raises(Stop):
            made[0].step(1)
        made[0].fails = ""
        assert made[0].iteration - made[1].iteration == (when == "after")
        made[1].step(made[0].iteration - made[1].iteration)
        assert state(made[0], tmp_path) == state(made[1], tmp_path)


def test_a_signal_as_the_hold_ends_leaves_no_handler_behind(alarm):
    def as_it_ends(frame, event, arg):
        if event == "call" and frame.f_code is interrupt.Held.__exit__.__code__:
            signal.raise_signal(signal.SIGALRM)

    def held():
        with interrupt.Held():
            signal.raise_signal(signal.SIGALRM)  # waits
            sys.setprofile(as_it_ends)  # the second comes before the handlers are back

    try:
        with pytest.raises(Stop):
            held()
    finally:
        sys.setprofile(None)
    with pytest.raises(Stop):  # outside of any hold, as ever
        signal.raise_signal(signal.SIGALRM)
    with interrupt.Held():
        pass
    assert signal.getsignal(signal.SIGALRM) is stop and not interrupt._before


def test_an_old_signal_is_not_raised_by_the_next_hold(alarm):
    # As one that came while handlers were put back
    interrupt.waiting.append((signal.SIGALRM, None))
    with interrupt.Held():
        pass
    assert not interrupt.waiting
