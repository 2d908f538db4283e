"""PyTorch's launches for a training step of the same net, counted from its layers: modelled, not measured.

The rule, for eager PyTorch with cuDNN in float32, autograd and SGD with its default `foreach`:

    two copies from the host; zero_grad sets to None, and launches nothing
    convolution       forward a product and the bias; backward dweight, dbias, and dx where it is wanted
    inner product     the same, the bias within the product
    other layers      PASSES: of each launch how many arrays of the output's size it reads and writes
    n readers         of a blob: n - 1 sums of gradients
    the loss          its gradient is filled with 1
    SGD               four multi-tensor calls a group of parameters of one rate and decay, three without decay;
                      a launch takes 110, 64 or 48 tensors (of 1, 2 or 3 lists) and 320 chunks of 65,536
                      entries at the most

cuDNN's own changes of layout and memory are left out. With `tf32`, PyTorch's default, tensor cores compute the
products of convolutions, but not those of inner products.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from roofline_costs import Row, joined
from zoo_nets import spec_of

from minicaffe import Net

CHUNK, CHUNKS, TENSORS = 65_536, 320, {1: 110, 2: 64, 3: 48}  # ATen's MultiTensorApply.cuh
# (the lists of tensors, the arrays that are read or written): decay, momentum, gradient, step
SGD = ((3, 3), (1, 2), (2, 3), (2, 3))
# Forward, backward. A mask of bytes is a quarter of an array.
PASSES = {
    "ReLU": ((2,), (3,)),
    "Dropout": ((2.25,), (2.25,)),
    "BatchNorm": ((3, 0), (5,)),  # with the Scale behind it; and the counter of batches
    "Scale": ((), ()),
    "Eltwise": ((3,), ()),  # a sum
    "SoftmaxWithLoss": ((2, 1), (0, 1, 2, 3)),
    # x^2, two of padding, average, alpha, k, power, quotient; and their derivatives
    "LRN": ((2, 1, 2, 2, 2, 2, 2, 3), (3, 2, 3, 3, 3, 2, 2, 3, 2, 2, 2, 3, 3, 3, 3)),
}


def torch_rows(name: str, batch: int, tf32: bool = False) -> list[Row]:
    """The launches of a step of a net of models/."""
    net = Net(spec_of(name, "train", batch), "TRAIN", device="cpu", shapes_only=True)
    found = [Row("upload", "input", 4 * count, 0) for count in _inputs(net)]
    for step in net.steps:
        if step.bottoms:
            found += layer(step, tf32)
    for value in (value for step in net.steps for value in step.tops if value.gets_gradient):
        extra = max(0, value.readers - 1)
        found += [_entrywise("sum of gradients", 3, math.prod(value.shape))] * extra
    groups: dict[tuple[float, float], list[int]] = {}
    for param in net.learnable:
        if param.lr_mult:
            groups.setdefault((param.lr_mult, param.decay_mult), []).append(param.size)
    for (_, decay), group in groups.items():
        for lists, arrays in SGD if decay else SGD[1:]:
            found += foreach(group, lists, arrays)
    return joined(found)


def layer(step, tf32: bool = False) -> list[Row]:
    """The launches of a layer, forward and backward."""
    kind, layer = step.spec.type, step.layer
    x, y = (math.prod(values[0].shape) for values in (step.bottoms, step.tops))
    if kind in ("Convolution", "InnerProduct"):
        convolves = kind == "Convolution"
        return list(_product(layer, x, y, convolves, "Tf32" if convolves and tf32 else ""))
    if kind == "Pooling":
        which = 2 * y if layer.pool == "MAX" else 0  # 64 bits each
        return [_row("pool", x + y + which, x), _row("pool gradient", x + y + which, x)]
    if kind not in PASSES:
        raise ValueError(f"nothing is known of PyTorch's launches for layers of type {kind}")
    forward, backward = PASSES[kind]
    size = x if kind == "SoftmaxWithLoss" else y
    found = [_entrywise(kind, arrays, size) for arrays in forward]
    return found + [_entrywise(f"{kind} gradient", arrays, size) for arrays in backward]


def _product(layer, x: int, y: int, own_bias: bool, template: str) -> Iterator[Row]:
    """A convolution or an inner product."""
    weight, *bias = (param.size for param in layer.params)
    work = 2 * layer.multiply_adds
    product = replace(_row("product", x + weight + y, work), template=template)
    yield product
    if bias:
        if own_bias:
            yield _row("add bias", 2 * y + bias[0], y)
        yield _row("bias gradient", y + bias[0], y)
    yield product
    if layer.needs_gradient[0]:
        yield product


def foreach(group: list[int], lists: int, arrays: int) -> list[Row]:
    """The launches of one multi-tensor call on tensors of these sizes.

    >>> [row.flops for row in foreach([100] * 100, lists=2, arrays=3)]  # 64 tensors at the most
    [6400, 3600]
    >>> len(foreach([320 * 65536 + 1], lists=1, arrays=2))
    2
    """
    found, tensors, chunks, entries = [], 0, 0, 0
    for size in group:
        tensors += 1
        for first in range(0, size, CHUNK):
            chunks, entries = chunks + 1, entries + min(CHUNK, size - first)
            last = first + CHUNK >= size
            if chunks == CHUNKS or (last and tensors == TENSORS[lists]):
                found.append(_row("foreach", arrays * entries, entries))
                tensors, chunks, entries = int(not last), 0, 0
    if entries:
        found.append(_row("foreach", arrays * entries, entries))
    return found


def _inputs(net: Net) -> Iterable[int]:
    """The entries of each blob that the user fills."""
    return [math.prod(v.shape) for step in net.steps if not step.bottoms for v in step.tops]


def _entrywise(name: str, arrays: float, entries: int) -> Row:
    return _row(name, arrays * entries, entries if arrays else 0)


def _row(name: str, entries: float, flops: int) -> Row:
    return Row("kernel", name.replace(" ", "_"), int(4 * entries), flops)
