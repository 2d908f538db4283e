"""One iteration: its gradient and its update, which are recorded and then replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from minicaffe.backends.replay.replay import Assumed, Call, Node, Repeated, Tape, take
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.layers.blob import Param
from minicaffe.core.net.inference_replay import check
from minicaffe.core.net.net import Net
from minicaffe.core.net.passes import Passes, Premise, take_sum
from minicaffe.core.ops import arrays
from minicaffe.core.solver.average import Average
from minicaffe.core.solver.compare import compared
from minicaffe.core.solver.mixed import Mixed
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.together import Together
from minicaffe.core.solver.undo import Undone
from minicaffe.core.solver.update_rules import Update

# The arguments of an iteration: spec, rule, the iteration's number, and its learning rate
Now = tuple[SolverSpec, Update | Mixed, int, float]


class Iteration:
    """Computes iterations of a net: passes over iter_size batches, sums with other ranks, update, average.

    On the CPU they are recorded and replayed, on CUDA captured into a graph, unless `graph` is false.
    `recorded` counts the losses written to the watch's window since its start; `reasons` lists the parts of
    an iteration on CUDA that are not in a graph, and why. Of the last iteration, `updated` says whether all of
    it was done, `torn` whether its update ended in between, `copied` if the watch has what passes change.
    """

    def __init__(
        self,
        net: Net,
        watch: Watch,
        premise: Premise,
        average: Average | None,
        ranks: Together | None,
        graph: bool,
    ):
        self.net, self.watch, self.average, self.ranks = net, watch, average, ranks
        self.premise = premise  # the guard of replays
        self.device, self.graph = net.device, graph
        with self.device.current():
            self.one = self.device.xp.empty((), net.context.sum_dtype)  # the loss of a batch
        self.recorded = 0
        self.spec: SolverSpec
        self.rule: Update | Mixed
        self.number: int  # of this iteration
        self.rate: float
        self.noted = Passes(net)
        self.passes, self.updates = Repeated(self.device), Repeated(self.device)
        self.whole = Repeated(self.device)
        self.taken = net.context.taken
        self.reasons: list[str] = []
        self.updated = self.torn = self.copied = False

    @property
    def recordings(self) -> dict[str, list[Node]]:
        """The nodes of replays, of an iteration, or of passes and update; empty if there are none."""
        apart = {"passes": self.passes.nodes or [], "update": self.updates.nodes or []}
        return apart if any(apart.values()) else {"iteration": self.whole.nodes or []}

    def run(self, now: Now) -> None:
        """Compute gradient and update as one work, which one command buffer or graph can hold."""
        self.updated = False
        self.spec, self.rule, self.number, self.rate = now
        if self.ranks is None:
            self._attempt(self._as_one)
        elif self.device.is_cuda:  # ranks agree once all work is launched
            self._attempt(self._as_one)
            self.ranks.agree()
        else:
            self._attempt(partial(self.ranks.run, self._as_one))

    def gradient(self, now: Now) -> None:
        """Run forward and backward over iter_size batches; their mean loss is written to the window.

        Several ranks sum their gradients and losses. An error on one rank is raised on all.
        """
        self.updated = False
        self.spec, self.rule, self.number, self.rate = now
        work = self._only_passes
        self._attempt(work if self.ranks is None else partial(self.ranks.run, work))

    def update(self, now: Now) -> None:
        """Update the parameters with the current gradients."""
        self.spec, self.rule, self.number, self.rate = now
        self._prepare_update()
        self.net.context.slots.send()
        self.watch.expect(self.number)
        self.updates.run(self._step, partial(self._on_cpu, self.premise.of_update))
        self.updated = True

    def _as_one(self) -> None:
        self._begin_passes()
        self._prepare_update()
        if not self.noted.sends:
            self.net.context.slots.send()
        beside = partial(compared, self) if self.device.is_cuda else None
        self.whole.run(self._all, self._of_iteration, beside)
        check(self.net.steps, self.net.context)
        self.watch.expect(self.number)
        self._end_passes()
        self.updated = True

    def _only_passes(self) -> None:
        self._begin_passes()
        self.passes.run(self._all_passes, partial(self._on_cpu, self.premise.of_all))
        check(self.net.steps, self.net.context)
        if self.ranks is not None:
            self.ranks.agree()
        self._end_passes()

    def _attempt(self, work: Callable[[], None]) -> None:
        with Undone(self):
            work()

    def _begin_passes(self) -> None:
        if self.taken != self.net.context.taken:  # free arrays that the net has dropped
            self.taken = self.net.context.taken
            for repeated in (self.passes, self.updates, self.whole):
                repeated.begin()
        if not self.device.is_cuda:  # on CUDA this is captured too
            self.watch.begin()
        self.copied = True
        self.noted.begin(self.number * self.spec.iter_size)

    def _end_passes(self) -> None:
        self.watch.end(self.recorded % len(self.watch.losses))
        self.recorded += 1

    def _prepare_update(self) -> None:
        """Set the step constants of the update; they are not sent yet."""
        self.rule.prepare(self.rate, self.number)
        if self.average is not None:
            if self.number == 0:
                self.average.begin()
            self.average.prepare(self.number)

    def _all(self, tape: Tape | None) -> None:
        """Run the passes and the update; on the CPU, several ranks agree in between whether to go on."""
        self._all_passes(tape)
        if self.ranks is not None and not self.device.is_cuda:
            take_sum(tape, self.ranks.agree, what="what all ranks ask for")
        self._step(tape)

    def _all_passes(self, tape: Tape | None) -> None:
        """Run all passes, and record them if there is a tape."""
        net, noted, loss = self.net, self.noted, self.watch.loss
        count, rule = self.spec.iter_size, self.rule
        if self.device.is_cuda:
            take(tape, "what is kept", self.watch.begin)
        for param in net.learnable:
            param.stale = True
        if self.device.is_cuda and isinstance(rule, Update):
            take(tape, "gradients", rule.laid.clear)
        ranks = self.ranks
        then = None if ranks is None or ranks.late else ranks.then
        for batch in range(count):
            net.then = then if batch == count - 1 else None
            net.context.passes = noted.first + batch
            noted.forward(tape)
            if ranks is not None or count > 1:  # before any sum with others, and the next batch
                noted.refuse(tape)
            noted.backward(tape)
            if isinstance(rule, Mixed):
                take(tape, "16 bits", partial(rule.gather, first=batch == 0))
            take(tape, "loss", partial(_add_loss, net, self.one if batch else None, loss))
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
                take(tape, "squares", partial(shared.measure, self.watch))
        noted.end(tape)

    def _step(self, tape: Tape | None) -> None:
        """Do the update; its step constants are set."""
        stale = [param for param in self.net.learnable if param.stale]  # they have no gradient
        shared = self.ranks.shared if self.ranks is not None else None
        if shared is None:
            take(tape, self.spec.type, self.rule.step)
        else:
            assert isinstance(self.rule, Update)  # float16 and bfloat16 need CUDA
            take(tape, self.spec.type, partial(self.rule.step, shared))
            for work in shared.gathers:
                take_sum(tape, work, what="weights of other ranks")
        if self.average is not None:
            take(tape, "average", self.average.step)
        if tape is not None and (read := [param for param in stale if not param.stale]):
            known = "what the net knows of itself"
            tape.notes.append(Call("the end", known, partial(_read, read), sets=True, late=True))

    def _on_cpu(self, assumes: Callable[..., Assumed | None]) -> Assumed | None:
        """What recorded passes or updates assume; None on CUDA, where only whole iterations are replayed."""
        return None if self.device.is_cuda else assumes(self._parts())

    def _of_iteration(self) -> Assumed:
        """What a recorded iteration assumes; that it may be replayed was just checked."""
        return self.premise.of_all_unseen(self._parts())

    def _parts(self) -> list[Any]:
        """The objects of the solver that a replay assumes."""
        rule, means = self.rule, self.average.means if self.average else ()
        of_update = (rule.rule if isinstance(rule, Mixed) else rule).spec
        ranks = self.ranks and self.ranks.shared
        return [
            self.spec,
            rule,
            of_update,
            self.watch,
            self.watch.loss,
            ranks,
            *rule.history,
            *means,
        ]


def _read(params: list[Param]) -> None:
    """Mark the gradients in memory as those of this step."""
    for param in params:
        param.stale = False


def _add_loss(net: Net, one: Any, loss: Any) -> None:
    """Add the loss of a batch to that of the iteration, through `one`; without `one`, set it."""
    if one is None:
        net.loss_into(loss.reshape(()))
    else:
        arrays.add(net.loss_into(one), loss)
