"""The exponential moving average of the weights: updated in each step, used for tests."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from minicaffe.backends import aligned
from minicaffe.core.interrupt import Held
from minicaffe.core.ops.update import average
from minicaffe.core.solver.mixed import Mixed
from minicaffe.core.solver.nan_guard import Watch
from minicaffe.core.solver.update_rules import Update


class Average:
    """For each parameter w, statistics of BatchNorm too, after iteration i, counted from 0:

        mean = d mean + (1 - d) w        d = min(decay, (1 + i) / (10 + i))

    It starts from the weights before the first update. Because d is lower in the first iterations, the mean
    soon forgets those. In mixed precision the master weights are averaged. An iteration that the
    watch skips does not change the mean. Source: Polyak and Juditsky, Acceleration of Stochastic
    Approximation by Averaging, 1992; d as TensorFlow's ExponentialMovingAverage.
    """

    def __init__(self, decay: float, rule: Update, watch: Watch):
        self.decay, self.xp, self.watch = decay, watch.xp, watch
        self.rule, self.params = rule, rule.params
        self.means = [aligned.zeros(self.xp, param.shape, param.dtype) for param in self.params]
        self.slot = self.rule.slots.take((1,), np.float64)
        self.inside = False  # the net has the means, and `means` the weights

    def prepare(self, iteration: int) -> None:
        """Set 1 - d for the update of an iteration, a step constant that is not sent yet."""
        self.slot.put(1 - min(self.decay, (1 + iteration) / (10 + iteration)))

    def step(self) -> None:
        """Update the mean with the weights."""
        for param, mean in zip(self.params, self.means, strict=True):
            flat = mean.reshape(-1), param.data.reshape(-1)
            average(*flat, self.slot.there, self.rule.scratch[: param.size], self.watch.skip)

    def begin(self) -> None:
        """Set the mean to the current weights."""
        for param, mean in zip(self.params, self.means, strict=True):
            self.xp.copyto(mean, param.data)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the net's weights are the means, and `means` holds the trained weights."""
        if self.inside:
            yield
            return
        try:
            with Held():
                self.swap()
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Give the net its weights back, if it has the means."""
        with Held():
            if self.inside:
                self.swap()

    def swap(self) -> None:
        """Exchange weights and means; all of them, or none if that fails, at whatever instant."""
        pairs, before, place = list(zip(self.params, self.means, strict=True)), self.inside, (0, 0)
        try:
            for i, (param, mean) in enumerate(pairs):
                for step, (to, source) in enumerate(self._copies(param, mean)):
                    place = i, step  # of the copy that may have been made
                    self.xp.copyto(to, source)
            if isinstance(self.rule, Mixed):
                self.rule.round()
            self.inside = not before
        except BaseException:
            if self.inside == before and pairs:
                i, step = place
                scratch, mean, data = (to for to, _ in self._copies(*pairs[i]))
                for to, source in [(data, mean), (mean, scratch)][2 - step :]:
                    self.xp.copyto(to, source)
                for param, mean in pairs[:i]:
                    for to, source in self._copies(param, mean):
                        self.xp.copyto(to, source)
            raise

    def _copies(self, param: Any, mean: Any) -> list[tuple[Any, Any]]:
        """The copies, to and from, that exchange a weight and its mean."""
        scratch = self.rule.scratch[: param.size].reshape(param.shape)
        return [(scratch, mean), (mean, param.data), (param.data, scratch)]
