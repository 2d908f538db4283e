"""A net's parameters as PyTorch's state_dict in a .safetensors file, and a mapping that tells of each.

The names are those of a module whose children bear the layers' names; weights are laid out as PyTorch's
modules have them: an LSTM's gates by i, f, g, o, a BatchNorm's sums divided by their count, an InnerProduct's
weight (num_output, k) however it was stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from minicaffe.core.net import Net
from minicaffe.core.net.step import Step
from minicaffe.errors import CheckpointError, SpecError
from minicaffe.interop.torch.torch_modules import MODULES, Part, as_it_is
from minicaffe.storage import checkpoint, safetensors_file
from minicaffe.tools.folding import by_channel


@dataclass(frozen=True)
class Entry:
    """One array of a state_dict: its key there, and the parameters it was made of, `conv1__0`."""

    key: str
    array: np.ndarray
    made_of: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        given = zip(self.made_of, self.shapes, strict=True)
        source = " and ".join(f"{name} {shape}" for name, shape in given) or "nothing"
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
    made: list[Module] = []
    folded = _folded(net.steps)
    for step in net.steps:
        if not step.layer.params or step in folded.values():
            continue
        more = folded.get(step)
        arrays, sources = _arrays(step)
        if more is not None:
            scale, names = _arrays(more)
            arrays, sources = [*arrays, *scale], [*sources, *names]
        of_type = MODULES.get(step.spec.type, as_it_is)
        for part in of_type(step.layer, [value.shape for value in step.bottoms], arrays):
            made.append(_module(step.spec.name, part, arrays, sources))
    _check_names(net, made)
    return made


def _arrays(step: Step) -> tuple[list[np.ndarray], list[str]]:
    params = step.layer.params
    names = [f"{step.spec.name}__{i}" for i in range(len(params))]
    return [param.to_host() for param in params], names


def _module(layer: str, part: Part, arrays: list[np.ndarray], sources: list[str]) -> Module:
    name = layer.replace(".", "_") + part.suffix
    entries = []
    for key, (array, used) in part.arrays.items():
        shapes = tuple(arrays[i].shape for i in used)
        made_of = tuple(sources[i] for i in used)
        entries.append(Entry(f"{name}.{key}", np.array(array, order="C"), made_of, shapes))
    return Module(name, part.made_by, tuple(entries), part.remark)


def _folded(steps: list[Step]) -> dict[Step, Step]:
    """Each BatchNorm, with the Scale behind it that PyTorch's would hold."""
    pairs = {}
    for step in steps:
        readers = [other for other in steps if step.tops and step.tops[0] in other.bottoms]
        if step.spec.type != "BatchNorm" or len(step.layer.params) != 3 or len(readers) != 1:
            continue
        (scale,) = readers
        same = scale.layer.params[:1] and scale.layer.params[0].shape == step.layer.params[0].shape
        alone = scale.spec.type == "Scale" and len(scale.bottoms) == 1
        if (
            alone
            and same
            and by_channel(partial(getattr, scale.layer), len(scale.bottoms[0].shape))
        ):
            pairs[step] = scale
    return pairs


def _check_names(net: Net, made: list[Module]) -> None:
    names = [module.name for module in made]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"net {net.name!r}: two layers would be named {name!r} in PyTorch")


def entries(made: list[Module]) -> Iterator[Entry]:
    """All entries of modules."""
    return (entry for module in made for entry in module.entries)


def write(net: Net, path: str | Path) -> list[Module]:
    """Write a net's parameters as a state_dict to a .safetensors file, atomically; returns the mapping.

    Raises CheckpointError for a name that does not end so, without the package safetensors, or if the file
    cannot be written; SpecError for a net without parameters.
    """
    if Path(path).suffix != ".safetensors":
        raise CheckpointError(f"{path}: expected a name that ends in .safetensors")
    save = safetensors_file.library().numpy.save
    made = modules(net)
    arrays = {entry.key: entry.array for entry in entries(made)}
    if not arrays:
        raise SpecError(f"net {net.name!r} has no parameters to write")
    data = save(arrays, metadata={"format": "pt"})
    checkpoint.replace(path, lambda file: file.write(data))
    return made
