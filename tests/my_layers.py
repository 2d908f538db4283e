"""Layers as users wrote them for Caffe's Python interface."""

import numpy as np

from minicaffe.interop.pycaffe.host_blob import PythonLayer


class Scaled(PythonLayer):
    """y = factor x + bias, the bias a number learnt."""

    def setup(self, bottom, top):
        self.factor = float(self.param_str or 1)
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 0.5

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.factor * bottom[0].data + self.blobs[0].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += top[0].diff.sum()
        if propagate_down[0]:
            bottom[0].diff[...] = self.factor * top[0].diff


class Distance:
    """Half the mean squared distance of two bottoms; no base class."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("need two inputs")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("inputs must have the same dimension")
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.difference = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.difference**2) / bottom[0].num / 2.0

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            sign = 1 if i == 0 else -1
            bottom[i].diff[...] = sign * self.difference / bottom[i].num


class Counting:
    """Numbers in their order, a batch of three after the other; reshape prepares them."""

    def setup(self, bottom, top):
        self.start = -3

    def reshape(self, bottom, top):
        self.start += 3
        top[0].reshape(3)
        top[1].reshape(3, 1)

    def forward(self, bottom, top):
        top[0].data[...] = np.arange(self.start, self.start + 3) % 7
        top[1].data[:, 0] = 2 * top[0].data


class Growing:
    """Images of another height from pass to pass, as many as there are in param_str: in forward or reshape."""

    def setup(self, bottom, top):
        self.where, *self.heights = self.param_str.split()
        self.passes = 0
        top[0].reshape(1, 2, int(self.heights[0]), 3)

    def _next(self, where, top):
        if where == self.where:
            top[0].reshape(1, 2, int(self.heights[self.passes % len(self.heights)]), 3)

    def reshape(self, bottom, top):
        self._next("reshape", top)

    def forward(self, bottom, top):
        self._next("forward", top)
        top[0].data[...] = self.passes + np.arange(top[0].count).reshape(top[0].shape)
        self.passes += 1

    def backward(self, top, propagate_down, bottom):
        pass


class Faulty:
    """Goes wrong where its param_str says."""

    def _at(self, where):
        if self.param_str == where:
            raise ValueError(f"in {where}")

    def setup(self, bottom, top):
        self._at("setup")

    def reshape(self, bottom, top):
        self._at("reshape")
        if self.param_str != "no shape":
            top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        self._at("forward")
        if self.param_str == "write":
            bottom[0].data[...] = 0
        if self.param_str == "late":
            self.blobs.add_blob(3)
        if self.param_str == "sizes":
            top[0].reshape(2.5)


class Sloppy(Faulty):
    """Its backward goes wrong, too."""

    def backward(self, top, propagate_down, bottom):
        self._at("backward")


class Unfinished:
    """Lacks two methods."""

    def setup(self, bottom, top):
        raise AssertionError("must not be called")


def function():
    """No class."""
