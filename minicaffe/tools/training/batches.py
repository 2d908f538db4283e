"""What the layers without bottoms give to a net, pass by pass: kept while it runs, or given to it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minicaffe.core.config.declare import LayerSpec, NetSpec
from minicaffe.core.layers import REGISTRY
from minicaffe.core.layers.base import bottom_counts
from minicaffe.core.layers.inputs import BlobShape
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step

NAME = "@batch/"  # of the entries of a file: @batch/0/data is blob data of the first pass

Pass = dict[str, np.ndarray]


class Batches:
    """Within it, what the layers without bottoms or parameters give a net in each pass is kept in `passes`.

    With `given`, as many passes, they are Inputs, and each pass is given that.
    """

    def __init__(self, net: Net, given: Sequence[Mapping[str, np.ndarray]] = ()):
        self.net, self.given, self.passes, self.begun = net, given, list[Pass](), 0
        self.watched: list[tuple[Step, Any]] = []

    def __enter__(self) -> Batches:
        sources = [step for step in self.net.steps if not step.bottoms and not step.layer.params]
        when = "before_forward" if self.given else "after_forward"
        for i, step in enumerate(sources):
            watcher = self._watcher(step, i == 0)
            step.watchers.setdefault(when, []).append(watcher)
            self.watched.append((step, watcher))
        return self

    def __exit__(self, *error: Any) -> None:
        for step, watcher in self.watched:
            for watchers in step.watchers.values():
                if watcher in watchers:
                    watchers.remove(watcher)
            if not any(step.watchers.values()):
                step.watchers.clear()

    def _watcher(self, step: Step, begins: bool) -> Any:
        def watcher() -> None:
            self.begun += begins
            if self.given:
                for value in step.tops:
                    if (array := self.given[self.begun - 1].get(value.name)) is not None:
                        self.net.device.copy_from_host(value.blob.data, array)
                return
            if begins:
                self.passes.append({})
            for value in step.tops:
                self.passes[-1][value.name] = np.array(self.net.device.to_host(value.blob.data))

        return watcher


def entries(passes: Sequence[Pass]) -> dict[str, np.ndarray]:
    """Batches as entries of a file; of 16 bits in float32.

    >>> list(entries([{"data": np.ones(2)}]))
    ['@batch/0/data']
    """
    return {
        f"{NAME}{i}/{name}": array.astype(np.float32) if array.itemsize == 2 else array
        for i, one in enumerate(passes)
        for name, array in one.items()
    }


def of_file(arrays: Mapping[str, np.ndarray]) -> list[Pass]:
    """The batches among the entries of a file.

    >>> of_file({"@batch/0/data": 1, "ip__0": 2})
    [{'data': 1}]
    """
    passes: dict[int, Pass] = {}
    for name, array in arrays.items():
        number, _, blob = name.removeprefix(NAME).partition("/")
        if name.startswith(NAME) and number.isdecimal():
            passes.setdefault(int(number), {})[blob] = array
    return [passes[i] for i in sorted(passes)]


def as_inputs(spec: NetSpec, batch: Mapping[str, np.ndarray]) -> NetSpec:
    """A model whose layers that gave this batch are Inputs of its shapes: its data need not be there."""

    def given(layer: LayerSpec) -> LayerSpec:
        reads = bottom_counts(REGISTRY[layer.type])[1] > 0
        if reads or not layer.tops or any(top not in batch for top in layer.tops):
            return layer
        shapes = tuple(BlobShape(dim=batch[top].shape) for top in layer.tops)
        new: dict[str, Any] = {"type": "Input", "options": {"shape": shapes}, "nodes": {}}
        return dataclasses.replace(layer, **new)

    return dataclasses.replace(spec, layers=tuple(map(given, spec.layers)))
