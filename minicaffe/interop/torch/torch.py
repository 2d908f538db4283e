"""A net's parameters as PyTorch's state_dict in a .safetensors file, and a mapping that tells of each.

The names are those of a module whose children bear the layers' names; weights are laid out as PyTorch's
modules have them: an LSTM's gates by i, f, g, o, a BatchNorm's sums divided by their count, an InnerProduct's
weight (num_output, k) however it was stored.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minicaffe.core.layers.deconvolution import Deconvolution
from minicaffe.core.net import Net
from minicaffe.core.net.step import Step
from minicaffe.errors import CheckpointError, SpecError
from minicaffe.storage import checkpoint, safetensors_file
from minicaffe.tools.folding import by_channel

Arrays = Sequence[np.ndarray]
Named = Mapping[str, tuple[np.ndarray, tuple[int, ...]]]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Part:
    """A module, `made_by` as Python writes it; its arrays by key; what is added to the layer's name."""

    made_by: str | None
    arrays: Named
    remark: str = ""
    suffix: str = ""


def text(name: str, *sizes: Any, **settings: tuple[Any, Any]) -> str:
    """A module's call: its sizes, and of `settings` (value, PyTorch's default) those that differ.

    >>> text("Linear", 3, 2, bias=(False, True))
    'Linear(3, 2, bias=False)'
    """
    words = [f"{key}={value!r}" for key, (value, default) in settings.items() if value != default]
    return f"{name}({', '.join([*map(str, sizes), *words])})"


def by_key(arrays: Arrays, *keys: str) -> dict[str, tuple[np.ndarray, tuple[int, ...]]]:
    """Parameters in their order by these keys, `weight` and `bias` if none are given."""
    keys = keys or ("weight", "bias")
    return {keys[i]: (array, (i,)) for i, array in enumerate(arrays)}


def _windows(layer: Any, bottoms: Shapes, arrays: Arrays) -> list[Part]:
    window, axes = layer.geometry.window, len(layer.geometry.window.kernel)
    ones, zeros = (1,) * axes, (0,) * axes
    name, channels = "Conv", arrays[0].shape[1] * layer.group
    if isinstance(layer, Deconvolution):
        name, channels = "ConvTranspose", arrays[0].shape[0]
    call = text(
        f"{name}{axes}d",
        channels,
        layer.num_output,
        kernel_size=(window.kernel, None),
        stride=(window.stride, ones),
        padding=(window.pad, zeros),
        dilation=(window.dilation, ones),
        groups=(layer.group, 1),
        bias=(layer.bias is not None, True),
    )
    lead = len(bottoms[0]) - axes - 1
    remark = "" if lead == 1 else f"the first {lead} axes as one" if lead else "of x[None]"
    return [Part(call, by_key(arrays), remark)]


def _inner_product(layer: Any, bottoms: Shapes, arrays: Arrays) -> list[Part]:
    named = by_key(arrays)
    if layer.transpose:
        named["weight"] = (arrays[0].T, (0,))
    call = text("Linear", layer.k, layer.num_output, bias=(layer.bias is not None, True))
    axis = layer.axis % len(bottoms[0])
    return [Part(call, named, f"of x.flatten({axis})" if axis < len(bottoms[0]) - 1 else "")]


def _batch_norm(layer: Any, bottoms: Shapes, arrays: Arrays) -> list[Part]:
    mean, variance, count, *learnt = arrays
    share = 1 / count[0] if count[0] else 0
    axes, channels, shape = max(len(bottoms[0]) - 2, 1), len(mean), mean.shape
    named: dict[str, tuple[np.ndarray, tuple[int, ...]]] = {}
    if learnt:
        bias = learnt[1] if len(learnt) > 1 else np.zeros(shape, mean.dtype)
        named = {"weight": (learnt[0], (3,)), "bias": (bias, (4,) if len(learnt) > 1 else ())}
    named["running_mean"] = ((mean * share).astype(mean.dtype), (0, 2))
    named["running_var"] = ((variance * share).astype(mean.dtype), (1, 2))
    named["num_batches_tracked"] = (np.zeros((), np.int64), ())
    if axes > 3 or len(bottoms[0]) < 2:
        return [Part(None, named, "by channel, of a bottom that no BatchNorm of PyTorch's takes")]
    call = text(
        f"BatchNorm{axes}d",
        channels,
        eps=(layer.eps, 1e-5),
        momentum=(float(f"{1 - layer.moving_average_fraction:.6g}"), 0.1),
        affine=(bool(learnt), True),
    )
    return [Part(call, named)]


def _scale(layer: Any, bottoms: Shapes, arrays: Arrays) -> list[Part]:
    keys = ("weight", "bias") if layer.weight is not None else ("bias",)
    return [Part(None, by_key(arrays, *keys), f"x * weight + bias, from axis {layer.axis} on")]


def _embed(layer: Any, bottoms: Shapes, arrays: Arrays) -> list[Part]:
    parts = [Part(text("Embedding", *arrays[0].shape), {"weight": (arrays[0], (0,))})]
    if layer.bias is not None:
        parts.append(Part(None, {"bias": (arrays[1], (1,))}, "added to the row", "_bias"))
    return parts


def _recurrent(layer: Any, arrays: Arrays, name: str, order: Sequence[int]) -> Part:
    """An LSTM or RNN of one layer, its gates put in PyTorch's order, all its bias in bias_ih."""
    d = layer.num_output

    def by_gate(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array[i * d : (i + 1) * d] for i in order])

    at = 3 if layer.static else 2
    named = {
        "weight_ih_l0": (by_gate(arrays[0]), (0,)),
        "weight_hh_l0": (by_gate(arrays[at]), (at,)),
        "bias_ih_l0": (by_gate(arrays[1]), (1,)),
        "bias_hh_l0": (np.zeros_like(arrays[1]), ()),
    }
    remark = "for cont 1; a stream begins anew with states of zeros"
    if layer.static:
        named["weight_static"] = (by_gate(arrays[2]), (2,))
        remark = "with x_static too, which that of PyTorch does not take"
    call = text(name, math.prod(arrays[0].shape[1:]), d)
    return Part(None if layer.static else call, named, remark)


def _rnn(layer: Any, bottoms: Shapes, arrays: Arrays) -> list[Part]:
    hidden, n, d = _recurrent(layer, arrays, "RNN", (0,)), len(arrays), layer.num_output
    named = {"weight": (arrays[n - 2], (n - 2,)), "bias": (arrays[n - 1], (n - 1,))}
    return [hidden, Part(text("Linear", d, d), named, "tanh of it is the top", "_out")]


MODULES: dict[str, Callable[[Any, Shapes, Arrays], list[Part]]] = {
    "Convolution": _windows,
    "Deconvolution": _windows,
    "InnerProduct": _inner_product,
    "BatchNorm": _batch_norm,
    "Scale": _scale,
    "Bias": lambda layer, _, arrays: [
        Part(None, by_key(arrays, "bias"), f"x + bias, from axis {layer.axis} on")
    ],
    "PReLU": lambda layer, _, arrays: [
        Part(text("PReLU", arrays[0].size), by_key([arrays[0].reshape(-1)]))
    ],
    "Embed": _embed,
    "LayerNorm": lambda layer, _, arrays: [
        Part(
            text("LayerNorm", arrays[0].shape, eps=(layer.eps, 1e-5), bias=(len(arrays) > 1, True)),
            by_key(arrays),
        )
    ],
    "GroupNorm": lambda layer, _, arrays: [
        Part(
            text("GroupNorm", layer.num_groups, len(arrays[0]), eps=(layer.eps, 1e-5)),
            by_key(arrays),
        )
    ],
    "LSTM": lambda layer, _, arrays: [_recurrent(layer, arrays, "LSTM", (0, 1, 3, 2))],
    "RNN": _rnn,
}


@dataclass(frozen=True)
class Entry:
    """One array of a state_dict: its key there, and the parameters it was made of, `conv1__0`."""

    key: str
    array: np.ndarray
    made_of: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        params = zip(self.made_of, self.shapes, strict=True)
        source = " and ".join(f"{name} {shape}" for name, shape in params) or "nothing"
        return f"  {source} -> {self.key} {self.array.shape}"


@dataclass(frozen=True)
class Module:
    """A module of PyTorch, as Python writes it, None if there is none; its entries; what is to be said."""

    name: str
    made_by: str | None
    entries: tuple[Entry, ...]
    remark: str = ""

    def __str__(self) -> str:
        what = self.made_by or "no module of PyTorch's; the arrays are as they were"
        head = f"{self.name}: {what}" + (f"  # {self.remark}" if self.remark else "")
        return "\n".join([head, *map(str, self.entries)])


def modules(net: Net) -> list[Module]:
    """The modules that hold a net's parameters, in the order of its layers.

    A Scale that alone reads a BatchNorm's top, channel by channel, becomes that one's weight and bias, as
    PyTorch has it. Raises SpecError if two layers would have one name there, where a dot divides names.

    >>> from minicaffe.core.net import parse
    >>> net = Net(parse('''
    ... layers:
    ...   - {name: data, type: Input, shape: {dim: [1, 1, 28, 28]}}
    ...   - {name: conv1, type: Convolution, num_output: 20, kernel_size: 5}
    ... '''), device="cpu")
    >>> print(modules(net)[0])
    conv1: Conv2d(1, 20, kernel_size=(5, 5))
      conv1__0 (20, 1, 5, 5) -> conv1.weight (20, 1, 5, 5)
      conv1__1 (20,) -> conv1.bias (20,)
    """
    torch_modules: dict[str, Module] = {}
    folded = _folded(net.steps)
    for step in net.steps:
        if not step.layer.params or step in folded.values():
            continue
        steps = [step, folded[step]] if step in folded else [step]
        arrays = [param.to_host() for one in steps for param in one.layer.params]
        sources = [f"{one.spec.name}__{i}" for one in steps for i in range(len(one.layer.params))]
        of_type, bottoms = MODULES.get(step.spec.type), [value.shape for value in step.bottoms]
        numbered = Part(None, by_key(arrays, *map(str, range(len(arrays)))))
        for part in of_type(step.layer, bottoms, arrays) if of_type else [numbered]:
            name = step.spec.name.replace(".", "_") + part.suffix
            entries = []
            for key, (array, used) in part.arrays.items():
                made_of = tuple(sources[i] for i in used)
                shapes = tuple(arrays[i].shape for i in used)
                entries.append(Entry(f"{name}.{key}", np.array(array, order="C"), made_of, shapes))
            if name in torch_modules:
                raise SpecError(f"net {net.name!r}: two layers would be named {name!r} in PyTorch")
            torch_modules[name] = Module(name, part.made_by, tuple(entries), part.remark)
    return list(torch_modules.values())


def _folded(steps: list[Step]) -> dict[Step, Step]:
    """Each BatchNorm, with the Scale behind it that PyTorch's would hold."""
    pairs = {}
    for step in steps:
        readers = [other for other in steps if step.tops and step.tops[0] in other.bottoms]
        if step.spec.type != "BatchNorm" or len(step.layer.params) != 3 or len(readers) != 1:
            continue
        (scale,) = readers
        shapes = [param.shape for param in (step.layer.params[0], *scale.layer.params[:1])]
        if scale.spec.type != "Scale" or len(scale.bottoms) != 1 or shapes != shapes[:1] * 2:
            continue
        if by_channel(partial(getattr, scale.layer), len(scale.bottoms[0].shape)):
            pairs[step] = scale
    return pairs


def write(net: Net, path: str | Path) -> list[Module]:
    """Write a net's parameters as a state_dict to a .safetensors file, atomically; returns the mapping.

    Raises CheckpointError for a name that does not end so, without the package safetensors, or if the file
    cannot be written; SpecError for a net without parameters.
    """
    if Path(path).suffix != ".safetensors":
        raise CheckpointError(f"{path}: expected a name that ends in .safetensors")
    save = safetensors_file.library().numpy.save
    written = modules(net)
    arrays = {entry.key: entry.array for module in written for entry in module.entries}
    if not arrays:
        raise SpecError(f"net {net.name!r} has no parameters to write")
    checkpoint.replace(path, save(arrays, metadata={"format": "pt"}))
    return written
