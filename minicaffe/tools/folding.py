"""BatchNorm, Scale, Bias and Power multiplied into the convolution or product before them.

y = a (W x + b) + c becomes y = (a W) x + (a b + c), computed in float64 once. A net that infers is then
smaller and faster, and what compilers of chips make of it is seen in its own weights.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from minicaffe.core.config.declare import NetSpec
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step

Numbers = tuple[np.ndarray, np.ndarray]  # a factor and a term
WEIGHTED = ("Convolution", "Deconvolution", "InnerProduct")


@dataclass
class Folded:
    """A net's spec without the layers that are folded, its parameters, and a line for each such layer."""

    spec: NetSpec
    arrays: dict[str, np.ndarray]
    notes: list[str]

    def net(self, **how: Any) -> Net:
        """The net, with its parameters; `how` is what Net takes beside a model and a phase."""
        net = Net(self.spec, "TEST", **how)
        net.load(self.arrays)
        return net


@np.errstate(all="ignore")  # what is not finite is so in the net as well
def folded(net: Net) -> Folded:
    """A net of the phase TEST without layers that only multiply and add what a product before them computes.

    Folded are BatchNorm by what was seen in training, Scale, Bias and Power with a power of 1, one number a
    channel or one for all; Dropouts, which do nothing, are left out. The product must be the only one with
    its weights, and nothing else reads its top. Outputs differ by rounding alone. The layers that remain keep
    their names, and the net its outputs; a product takes over the name of the blob that it computes now.
    """
    arrays = net.weights()
    owners = Counter(param.owner for step in net.steps for param in step.layer.params)
    makers = {value: step for step in net.steps for value in step.tops}
    held = {value: value for value in makers}  # the value of a layer that remains, for each
    names = {value: value.name for value in makers}
    readers = {value: value.readers for value in makers}
    gone: dict[Step, str] = {}
    biases: set[Step] = set()
    for step in net.steps:
        numbers = _numbers(step, arrays)
        if numbers is None:
            continue
        (bottom, *_), (top, *_) = step.bottoms, step.tops
        value = held[bottom]
        source = makers[value]
        nothing = step.spec.type == "Dropout" and [one.item() for one in numbers] == [1, 0]
        alone = readers[value] == 1 and len(source.tops) == 1
        if top.name != names[value] and not (alone and source.bottoms):
            continue
        if nothing and (alone or top.readers):  # else it is an output only because it stands there
            gone[step] = "left out"
        elif alone and _fits(source, step, *numbers, owners):
            gone[step] = f"folded into {source.spec.name!r}"
            biases |= {source} if _into(source, arrays, *numbers) else set()
        else:
            continue
        held[top], names[value] = value, top.name
        readers[value] += top.readers - 1
    layers = []
    for step in net.steps:
        if step not in gone:
            bottoms = tuple(names[held[value]] for value in step.bottoms)
            tops = tuple(names[value] for value in step.tops)
            own: Any = {"bottom": bottoms, "top": tops, "include": (), "exclude": ()}
            if step in biases:
                own["options"] = {**step.spec.options, "bias_term": True}
            layers.append(replace(step.spec, **own))
    spec = replace(net.spec, layers=tuple(layers), solver=None, test_nets=())
    lost = {f"{step.spec.name}__{i}" for step in gone for i in range(len(step.layer.params))}
    remaining = {name: array for name, array in arrays.items() if name not in lost}
    return Folded(spec, remaining, [f"{step.spec}: {why}" for step, why in gone.items()])


def _into(
    source: Step, arrays: dict[str, np.ndarray], factor: np.ndarray, term: np.ndarray
) -> bool:
    """Multiply into the arrays of a product, and add; whether it has a bias now."""
    first, second = (f"{source.spec.name}__{i}" for i in (0, 1))
    layer: Any = source.layer
    how = getattr(layer, "group", 1), getattr(layer, "transpose", False)
    numbers = arrays[first], arrays.get(second), factor, term
    arrays[first], bias = multiplied(source.spec.type, *numbers, *how)
    if bias.any() or second in arrays:
        arrays[second] = bias
    return second in arrays


def _numbers(step: Step, arrays: dict[str, np.ndarray]) -> Numbers | None:
    """The numbers of a layer that multiplies and adds, or does nothing; None of another."""
    layer: Any = step.layer
    names = [f"{step.spec.name}__{i}" for i in range(len(layer.params))]
    if any(name not in arrays for name in names):  # parameters of another layer
        return None
    if step.spec.type == "Dropout":
        left = 1.0 if layer.scale_train else 1.0 - layer.dropout_ratio
        return None if layer.drops else (np.asarray(left), np.zeros(()))
    if len(step.bottoms) != 1 or not getattr(layer, "by_past", True):
        return None
    own = [arrays[name] for name in names]
    return factor_and_term(step.spec.type, partial(getattr, layer), own, len(step.bottoms[0].shape))


def factor_and_term(
    kind: str, key: Callable[[str, Any], Any], arrays: Sequence[np.ndarray], rank: int
) -> Numbers | None:
    """What a layer multiplies by and adds, float64, of a channel each or one for all; None if it does else.

    `key` returns one of its keys, or what is usual; a BatchNorm's averages are those seen in training.
    """
    own = [array.astype(np.float64) for array in arrays]
    zero, one = np.zeros(()), np.ones(())
    if kind == "Power" and key("power", 1.0) == 1:
        return np.asarray(key("scale", 1.0)), np.asarray(key("shift", 0.0))
    if kind == "BatchNorm":
        mean, variance, count, *learnt = own
        share = 1 / count[0] if count[0] else 0.0
        factor, term = learnt or (one, zero)
        factor = factor / np.sqrt(variance * share + key("eps", 1e-5))
        return factor, term - mean * share * factor
    if kind not in ("Scale", "Bias") or any(array.ndim > 1 for array in own):
        return None
    if not by_channel(key, rank):
        return None
    if kind == "Bias":
        return one, own[0]
    return own[0], own[1] if len(own) > 1 else zero


def by_channel(key: Callable[[str, Any], Any], rank: int) -> bool:
    """True if a Scale's or a Bias's numbers are the channels', or one for all."""
    return key("num_axes", 1) == 0 or key("axis", 1) in (1, 1 - rank)


def _fits(source: Step, step: Step, factor: np.ndarray, term: np.ndarray, owners: Counter) -> bool:
    """Whether a layer's numbers are those of outputs of a product whose weights nothing else has."""
    if source.spec.type not in WEIGHTED:
        return False
    if any(owners[param.owner] != 1 for param in (*source.layer.params, *step.layer.params)):
        return False
    if not (np.isfinite(factor).all() and np.isfinite(term).all()):
        return False  # no weights could be loaded that hold them
    axis, rank = getattr(source.layer, "axis", 1), len(source.tops[0].shape)
    return by_outputs(source.spec.type, axis, rank) or max(factor.size, term.size) == 1


def by_outputs(kind: str, axis: int, rank: int) -> bool:
    """True if the outputs of a product are the channels of its top."""
    return axis == 1 and (kind != "InnerProduct" or rank == 2)


def multiplied(
    kind: str,
    weight: np.ndarray,
    bias: np.ndarray | None,
    factor: np.ndarray,
    term: np.ndarray,
    group: int = 1,
    turned: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The weight and bias of a product whose outputs are multiplied and added to, of the weight's type.

    `factor` and `term` are of one number or of one an output. A Deconvolution's outputs are the second axis
    of its weight, in each group; those of an InnerProduct that is `turned` the last.
    """
    wide = weight.astype(np.float64)
    if kind == "Deconvolution":
        wide = wide.reshape(group, -1, *weight.shape[1:])
        shape = (group, 1, -1, *(1,) * (weight.ndim - 2))
        count = group * weight.shape[1]
    else:
        count = weight.shape[-1] if turned else len(weight)
        shape = (1, -1) if turned else (-1, *(1,) * (weight.ndim - 1))
    factor = np.broadcast_to(factor.ravel(), (count,))
    before = np.zeros(count) if bias is None else bias.astype(np.float64)
    wide = (wide * factor.reshape(shape)).reshape(weight.shape)
    return wide.astype(weight.dtype), (before * factor + term.ravel()).astype(weight.dtype)
