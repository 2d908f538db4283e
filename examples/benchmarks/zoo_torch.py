"""A net of minicaffe as PyTorch would compute it: the same steps, weights and losses, by torch's functions.

What PyTorch has one function for is one: a BatchNorm and the Scale behind it, a whole LSTM. What works in
place here does so there, where autograd lets it, and a value is dropped behind its last reader.
"""

import time

import numpy as np
import torch
from torch import nn
from zoo_recipes import RECIPES, Call, Use, normalisation

from minicaffe.core.net import Net
from minicaffe.core.net.step import Step


class Module(nn.Module):
    """The net. Gives its outputs in the order of `net.outputs`, in TRAIN the weighted sum of its losses."""

    def __init__(self, net: Net):
        super().__init__()
        self.train(net.phase == "TRAIN")
        use, numbers = Use(), {}
        self.inputs: list[str] = []
        self.plan: list[tuple[Call, list[int], list[int], list[int]]] = []
        self.names: list[str] = []  # of the layers that they are
        last, steps = {}, fused(net)
        for i, (step, _) in enumerate(steps):
            last |= dict.fromkeys(step.bottoms, i)
        kept = set(net.graph.losses if self.training else net.graph.outputs.values())
        for i, (step, scale) in enumerate(steps):
            tops = list((scale or step).tops)
            for value in tops:
                numbers[value] = len(numbers)
            if not step.bottoms:
                self.inputs += [value.name for value in tops]
                continue
            if step.spec.type not in RECIPES:
                raise NotImplementedError(f"{step.spec.type} has no recipe in PyTorch")
            call = normalisation(step, scale, use) if scale else RECIPES[step.spec.type](step, use)
            done = {v for v in step.bottoms if last[v] == i and v not in kept}
            done |= {v for v in tops if v not in last and v not in kept}
            places = [[numbers[v] for v in group] for group in (step.bottoms, tops, done)]
            self.plan.append((call, *places))
            self.names.append(step.spec.name)
        self.kept = [
            numbers[v] for v in (net.graph.losses if self.training else net.graph.outputs.values())
        ]
        self.loss_weights = [v.loss_weight for v in net.graph.losses]
        self.count, self.use = len(numbers), use
        arrays = [self.theirs(i, owner.to_host()) for i, owner in enumerate(use.owners)]
        self.weights = nn.ParameterList(
            nn.Parameter(torch.from_numpy(array), requires_grad=owner.learns)
            for array, owner in zip(arrays, use.owners, strict=True)
        )

    def forward(self, *inputs):
        return self.run(inputs, None)

    def run(self, inputs, times: dict[str, list[float]] | None):
        """The passes; the seconds of each step go to `times`, by its layer's name."""
        values = [*inputs, *[None] * (self.count - len(inputs))]
        for n, (call, bottoms, tops, done) in enumerate(self.plan):
            start = 0.0 if times is None else time.perf_counter()
            given = call(self.weights, *[values[i] for i in bottoms])
            if times is not None:
                times[self.names[n]].append(time.perf_counter() - start)
            for i, one in zip(
                tops, given if isinstance(given, (tuple, list)) else (given,), strict=True
            ):
                values[i] = one
            for i in done:
                values[i] = None
        kept = [values[i] for i in self.kept]
        if self.training:
            return sum(weight * one for weight, one in zip(self.loss_weights, kept, strict=True))
        return kept

    def theirs(self, i: int, array: np.ndarray) -> np.ndarray:
        """A parameter of ours as PyTorch has it."""
        order = self.use.orders[i]
        return np.ascontiguousarray(array if order is None else array[order])

    def gradients(self) -> list[tuple[object, np.ndarray]]:
        """Our parameters that learn, each with the gradient that PyTorch found."""
        found = []
        for owner, order, weight in zip(
            self.use.owners, self.use.orders, self.weights, strict=True
        ):
            if owner.learns:
                array = weight.grad.numpy()
                found.append((owner, array if order is None else array[np.argsort(order)]))
        return found

    def groups(self, rate: float, decay: float) -> list[dict]:
        """What an optimiser of PyTorch takes: parameters by their multipliers of rate and decay."""
        found: dict[tuple[float, float], list] = {}
        for owner, weight in zip(self.use.owners, self.weights, strict=True):
            if owner.learns:
                found.setdefault((owner.lr_mult, owner.decay_mult), []).append(weight)
        return [
            {"params": params, "lr": rate * lr, "weight_decay": decay * wd}
            for (lr, wd), params in found.items()
        ]


def fused(net: Net) -> list[tuple[Step, Step | None]]:
    """The steps, each BatchNorm together with a Scale that alone reads it and stands right behind it."""
    found, behind = [], None
    for i, step in enumerate(net.steps):
        if step is behind:
            continue
        behind = net.steps[i + 1] if i + 1 < len(net.steps) else None
        joined = (
            step.spec.type == "BatchNorm"
            and not step.layer.learnt
            and behind.spec.type == "Scale"
            and behind.bottoms == step.tops
            and step.tops[0].readers == 1
            and behind.layer.axis == behind.layer.num_axes == 1
        )
        behind = behind if joined else None
        found.append((step, behind))
    return found
