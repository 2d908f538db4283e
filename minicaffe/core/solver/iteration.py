"""One iteration: for each batch forward, backward and the loss; sums with other ranks; the rule's step."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from minicaffe.core.communicator import OneRank, Parts
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.net.net import Net
from minicaffe.core.ops import arrays
from minicaffe.core.ops.nan_guard import DONE
from minicaffe.core.solver.average import Average
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.update_rules import Update
from minicaffe.errors import TrainingError

# The arguments of an iteration: spec, rule, the iteration's number, and its learning rate
Now = tuple[SolverSpec, Update, int, float]


class Iteration(Parts):
    """Computes iterations of a net: passes over iter_size batches, sums with other ranks, update, average.

    `recorded` counts the losses written to the watch's window since its start. Of the last iteration,
    `updated` says whether all of it was done, `torn` whether its update ended in between, `copied` if the
    watch has what passes change. With `graph` a backend may make one graph of an iteration on CUDA, unless
    `seen` is a reason against it.
    """

    graph = False
    seen: Any = ""
    recordings: Mapping[str, list[Any]] = {}  # of a replay

    def __init__(self, net: Net, watch: Watch, average: Average | None, ranks: OneRank):
        self.net, self.watch, self.average, self.ranks = net, watch, average, ranks
        self.device = net.device
        with self.device.current():
            self.one = self.device.xp.empty((), net.context.sum_dtype)  # the loss of a batch
        self.recorded = 0
        self.spec: SolverSpec
        self.rule: Update
        self.number: int  # of this iteration
        self.rate: float
        self.updated = self.torn = self.copied = False

    def run(self, now: Now) -> None:
        """Compute gradient and update."""
        self._set(now)
        with Undone(self):
            self.ranks.iterate(self._whole)

    def gradient(self, now: Now) -> None:
        """Run forward and backward over iter_size batches; their mean loss is written to the window.

        Several ranks sum their gradients and losses. An error on one rank is raised on all.
        """
        self._set(now)
        with Undone(self):
            self.ranks.run(self._gradient)

    def update(self, now: Now) -> None:
        """Update the parameters with the current gradients."""
        self._set(now)
        self._prepare_update()
        self.net.context.slots.send()
        self.watch.expect(self.number)
        self.compute("update", self.step)
        self.updated = True

    def explained(self, why: str) -> list[str]:
        """Why iterations, or parts of them, are not in a graph; `why` is what was `seen` before the last."""
        return [why] if why else []

    def compute(self, what: str, work: Callable[[], None]) -> None:
        """Compute the iteration, its passes or its update."""
        work()

    def passes(self) -> None:
        """For each batch forward, backward, and the loss; then the sums with other ranks."""
        net, count, loss, ranks = self.net, self.spec.iter_size, self.watch.loss, self.ranks
        if self.device.is_cuda:
            self.do("what is kept", self.watch.begin)
        for param in net.learnable:
            param.stale = True
        self.rule.before_passes(self)
        then = None if ranks.late else ranks.then
        for batch in range(count):
            net.then = then if batch == count - 1 else None
            net.context.passes = self.number * count + batch
            self.forward()
            self.backward()
            self.rule.after_backward(self, batch)
            self.do("loss", partial(_add_loss, net, self.one if batch else None, loss))
        net.then = None
        if count > 1:
            self.do("loss", partial(arrays.scale, loss, 1 / count, loss))
        ranks.reduce(self)

    def forward(self) -> None:
        """Run all layers forward."""
        self.net.forward()

    def backward(self) -> None:
        """Run all layers backward."""
        self.net.backward()

    def step(self) -> None:
        """Do the update; its step constants are set."""
        self.ranks.step(self)
        if self.average is not None:
            self.do("average", self.average.step)

    def all(self) -> None:
        """Run the passes and the update."""
        self.passes()
        self.ranks.agree_between(self)
        self.step()

    def _set(self, now: Now) -> None:
        self.spec, self.rule, self.number, self.rate = now
        self.updated = False

    def _whole(self) -> None:
        self._begin_passes()
        self._prepare_update()
        self._send()
        self.compute("iteration", self.all)
        self.watch.expect(self.number)
        self._end_passes()
        self.updated = True

    def _gradient(self) -> None:
        self._begin_passes()
        self.compute("passes", self.passes)
        self.ranks.agree()
        self._end_passes()

    def _begin_passes(self) -> None:
        if not self.device.is_cuda:  # on CUDA this is captured too
            self.watch.begin()
        self.copied = True

    def _send(self) -> None:
        self.net.context.slots.send()

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


def _add_loss(net: Net, one: Any, loss: Any) -> None:
    """Add the loss of a batch to that of the iteration, through `one`; without `one`, set it."""
    if one is None:
        net.loss_into(loss.reshape(()))
    else:
        arrays.add(net.loss_into(one), loss)


class Undone:
    """A context of an Iteration: what fails before the update is undone but for blobs, gradients are stale.

    An update that has begun is not: if it fails, the iteration is `torn`. Raises TrainingError if it was.
    """

    def __init__(self, iteration: Iteration):
        self.iteration = iteration

    def __enter__(self) -> None:
        iteration = self.iteration
        if iteration.torn:
            raise TrainingError(
                f"the update of iteration {iteration.number} was interrupted, and cannot be gone on from:"
                " restore a snapshot"
            )
        watch, self.recorded, iteration.copied = iteration.watch, iteration.recorded, False
        self.at_hand, self.slot = watch.at_hand, self.recorded % len(watch.losses)
        # How many updates were taken, and the loss whose place is taken; on CUDA that would be waited for
        if self.at_hand is not None:
            self.done, self.oldest = self.at_hand.flags[DONE], self.at_hand.losses[self.slot]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        iteration, at_hand = self.iteration, self.at_hand
        taken = at_hand is not None and at_hand.flags[DONE] != self.done
        iteration.torn = taken and not iteration.updated
        if taken or iteration.updated:
            return
        iteration.recorded = self.recorded
        if at_hand is not None:
            at_hand.losses[self.slot] = self.oldest
        net = iteration.net
        if iteration.copied:
            iteration.watch.take_back((self.recorded - 1) % len(iteration.watch.losses))
            net.context.passes = iteration.number * iteration.spec.iter_size
        net.memory.sharing.forget()
        net.context.refused.fill(0)
        for param in net.learnable:
            param.stale = True
