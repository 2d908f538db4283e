"""What one iteration computes: its gradient, and its update. They are recorded, and then replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from minicaffe.layers.blob import Param
from minicaffe.net.inference_replay import check
from minicaffe.net.net import Net
from minicaffe.net.passes import Passes, Premise, take_sum
from minicaffe.ops import arrays
from minicaffe.replay.guards import Assumed
from minicaffe.replay.replay import Call, Node, Repeated, Tape, take
from minicaffe.solver.compare import compared
from minicaffe.solver.finite import Finite
from minicaffe.solver.interrupt import Signals
from minicaffe.solver.mixed import Mixed
from minicaffe.solver.ranks import Ranks
from minicaffe.solver.rules import Update


class Iterating(Finite):
    """The part of a Solver that computes an iteration."""

    _mixed: Mixed | None
    _graph: bool  # on CUDA, whether iterations are captured and replayed
    _ranks: Ranks | None  # those that compute an iteration together, if there are several
    _asked_to_stop = False
    _one: Any  # where the loss of a batch is summed

    def _begin_iterating(self) -> None:
        """Nothing is recorded yet."""
        self._noted, self._premise = Passes(self.net), Premise(self.net)
        self._passes, self._update = Repeated(self.device), Repeated(self.device)
        self._whole = Repeated(self.device)
        self._taken = self.net.context.taken
        self._reasons: list[str] = []  # what of an iteration on CUDA is not in a graph, and why
        self._told: list[str] = []

    @property
    def _recordings(self) -> dict[str, list[Node]]:
        """What replays go through, of an iteration, or of passes and update; nothing if there are none."""
        found = {"passes": self._passes.nodes or [], "update": self._update.nodes or []}
        return found if any(found.values()) else {"iteration": self._whole.nodes or []}

    def _iterate(self) -> None:
        """Compute the gradient and update by it; as one work, which one program or graph can hold."""
        cls, why = type(self), self._premise.seen
        own = "gradient" in vars(self) or "update" in vars(self)
        if own or cls.gradient is not Iterating.gradient or cls.update is not Iterating.update:
            why = f"{cls.__name__} takes gradient and update apart"
            if self._ranks is not None:
                self._ranks.share_no_more()
        begins = self._average is not None and self.iteration == 0  # between the two
        is_cuda = self.device.is_cuda
        if why or begins or (is_cuda and not self._graph):
            self.gradient()
            self.update()
        elif is_cuda:  # ranks agree once it has been asked for all
            self._attempt(self._as_one)
            if self._ranks is not None:
                self._ranks.agree()
        else:
            self._together(self._as_one)
        if is_cuda and self._graph:
            self._tell(why)

    def _as_one(self) -> None:
        self._begin_passes()
        self._prepare_update()
        if not self._noted.sends:
            self.net.context.slots.send()
        beside = partial(compared, self) if self.device.is_cuda else None
        self._whole.run(self._all, self._now_of_all, beside)
        check(self.net.steps, self.net.context)
        self._watch.expect(self.iteration)
        self._end_passes()

    def _tell(self, why: str) -> None:
        """Say what of an iteration on CUDA is not in a graph, if it is another than was said."""
        self._reasons = [why] if why else self._whole.reasons
        if self._reasons not in ([], self._told):
            self.report.event(f"not in a CUDA graph: {'; '.join(self._reasons)}")
            self._told = self._reasons

    def gradient(self) -> None:
        """Compute the gradient of this iteration's batches."""
        self._run_passes()

    def _run_passes(self) -> None:
        """Forward and backward over iter_size batches; their mean loss goes into the window.

        Of several ranks all do it, and sum their gradients and losses. Raises what fails on any of them.
        """
        self._together(self._only_passes)

    def _only_passes(self) -> None:
        self._begin_passes()
        self._passes.run(self._all_passes, partial(self._on_cpu, self._premise.of_all))
        check(self.net.steps, self.net.context)
        if self._ranks is not None:
            self._ranks.agree()
        self._end_passes()

    def _together(self, work: Callable[[], None]) -> None:
        """Do what has passes in it, on all ranks, if there are several. Raises what fails on any of them."""
        self._attempt(work if self._ranks is None else partial(self._ranks.run, work))

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do what has passes in it; should it fail, all is as before, but for blobs: there is no gradient."""
        loss = self._watch.loss_at_hand
        try:
            work()
        except BaseException:
            self._watch.take_back(loss)
            self.net.memory.sharing.forget()
            self.net.context.refused.fill(0)
            self.net.context.passes = self.iteration * self.spec.iter_size
            for param in self.net.learnable:
                param.stale = True
            raise

    def update(self) -> None:
        """Change the parameters by the gradients that are there, at the rate of this iteration."""
        self._prepare_update()
        self.net.context.slots.send()
        self._watch.expect(self.iteration)
        self._update.run(self._step, partial(self._on_cpu, self._premise.of_update))

    def _begin_passes(self) -> None:
        if self._taken != self.net.context.taken:  # keep no array alive that the net has no more
            self._taken = self.net.context.taken
            for repeated in (self._passes, self._update, self._whole):
                repeated.begin()
        if not self.device.is_cuda:  # where that is a part of what is captured
            self._watch.begin()
        self._noted.begin(self.iteration * self.spec.iter_size)

    def _end_passes(self) -> None:
        self._watch.end(self._recorded % len(self._losses))
        self._recorded += 1

    def _prepare_update(self) -> None:
        """Set what changes from one update to the next, yet to be sent."""
        self.rule.prepare(self.rate, self.iteration)
        if self._average is not None:
            if self.iteration == 0:
                self._average.begin()
            self._average.prepare(self.iteration)

    def _all(self, tape: Tape | None) -> None:
        """The passes and the update; several ranks of CPUs agree in between whether to go on."""
        self._all_passes(tape)
        if self._ranks is not None and not self.device.is_cuda:
            take_sum(tape, self._ranks.agree, what="what all ranks ask for")
        self._step(tape)

    def _all_passes(self, tape: Tape | None) -> None:
        """All of the passes; noted, if there is a tape."""
        net, noted, count, loss = self.net, self._noted, self.spec.iter_size, self._watch.loss
        if self.device.is_cuda:
            take(tape, "what is kept", self._watch.begin)
        for param in net.learnable:
            param.stale = True
        if self.device.is_cuda and isinstance(self.rule, Update):
            take(tape, "gradients", self.rule.laid.clear)
        ranks = self._ranks
        then = None if ranks is None or ranks.late else ranks.then
        for batch in range(count):
            net.then = then if batch == count - 1 else None
            net.context.passes = noted.first + batch
            noted.forward(tape)
            if ranks is not None or count > 1:  # before any sum with others, and the next batch
                noted.refuse(tape)
            noted.backward(tape)
            if self._mixed is not None:
                take(tape, "16 bits", partial(self._mixed.gather, first=batch == 0))
            take(tape, "loss", partial(_add_loss, net, self._one if batch else None, loss))
        net.then = None
        if count > 1:
            take(tape, "loss", partial(arrays.scale, loss, 1 / count, loss))
        if ranks is not None:
            loose = ranks.loose()
            if not ranks.late:
                then = partial(ranks.start, len(ranks.buckets))
                take_sum(tape, then, noted.with_flags(net.learnable, then))
            ranks.finish(loose, tape)
            if (shared := ranks.shared) is not None:
                take(tape, "squares", partial(shared.measure, self._watch))
        noted.end(tape)

    def _step(self, tape: Tape | None) -> None:
        """The update, whose numbers are set."""
        stale = [param for param in self.net.learnable if param.stale]  # no gradient comes to them
        shared = self._ranks.shared if self._ranks is not None else None
        if shared is None:
            take(tape, self.spec.type, self.rule.step)
        else:
            assert isinstance(self.rule, Update)  # nets of 16 bits are CUDA's
            take(tape, self.spec.type, partial(self.rule.step, shared))
            for work in shared.gathers:
                take_sum(tape, work, what="weights of other ranks")
        if self._average is not None:
            take(tape, "average", self._average.step)
        if tape is not None and (read := [param for param in stale if not param.stale]):
            known = "what the net knows of itself"
            tape.notes.append(Call("the end", known, partial(_read, read), sets=True, late=True))

    def _save_asked(self, signals: Signals | None) -> bool:
        """Whether a snapshot was asked for; sees, too, whether an end was. Of any of several ranks."""
        if self._ranks is not None:
            self._asked_to_stop = self._ranks.stop
            if self._ranks.stop:
                who = ", ".join(map(str, self._ranks.stopped_by))
                self.report.event(f"asked to stop: rank {who} of {self.communicator.size}")
            return self._ranks.save
        self._asked_to_stop = signals is not None and signals.asked
        return signals is not None and signals.snapshot_asked()

    def _on_cpu(self, assumes: Callable[..., Assumed | None]) -> Assumed | None:
        """What recorded passes or updates go by; nothing on CUDA, where but a whole iteration is replayed."""
        return None if self.device.is_cuda else assumes(self._parts)

    def _now_of_all(self) -> Assumed | None:
        """What a recorded iteration goes by."""
        return self._premise.of_all(self._parts)

    @property
    def _parts(self) -> list[Any]:
        """What of the solver a replay goes by."""
        rule, means = self.rule, self._average.means if self._average else ()
        parts: list[Any] = [self.spec, rule, (rule.rule if isinstance(rule, Mixed) else rule).spec]
        parts += [self._watch, self._watch.loss, self._ranks and self._ranks.shared]
        return [*parts, *rule.history, *means]


def _read(params: list[Param]) -> None:
    """What lies in the memory of their gradients is of this step."""
    for param in params:
        param.stale = False


def _add_loss(net: Net, one: Any, loss: Any) -> None:
    """Add the loss of a batch to that of the iteration, by way of `one`; the first batch's is that."""
    if one is None:
        net.loss_into(loss.reshape(()))
    else:
        arrays.add(net.loss_into(one), loss)
