"""Each layer's example, forward and backward on a device, beside the CPU's in float64."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import yaml
from turns import one_line

from minicaffe.backends.device import Device
from minicaffe.cli.catalogue import example
from minicaffe.core.layers import REGISTRY
from minicaffe.core.net import Net, parse
from minicaffe.core.ops import conv
from minicaffe.errors import DeviceError, MinicaffeError

TOLERANCES = {"float32": 1e-4, "float64": 1e-11, "float16": 2e-2, "bfloat16": 0.15}
Shaped = tuple[
    tuple[int, ...], dict[str, Any]
]  # a bottom's shape, and the keys of a convolution of it
ENGINES: dict[str, Shaped] = {
    "3 x 3": ((2, 6, 9, 10), {"num_output": 8, "kernel_size": 3, "pad": 1}),
    "5 x 5": ((3, 3, 12, 12), {"num_output": 20, "kernel_size": 5}),
    "grouped, strided, dilated": (
        (2, 6, 13, 11),
        {"num_output": 8, "kernel_size": 3, "stride": 2, "dilation": 2, "pad": 2, "group": 2},
    ),
    "1 x 1": ((4, 80, 5, 5), {"num_output": 70, "kernel_size": 1}),
}


class Finding(NamedTuple):
    """What was checked; the largest error, relative to an array's largest entry; what is wrong, or nothing."""

    what: str
    error: float
    wrong: str = ""


def layers(device: Device, dtype: str) -> Iterator[Finding | None]:
    """A finding for each layer; None for one without bottoms, in Python, or that refuses what it is given."""
    for name, cls in sorted(REGISTRY.items()):
        bottoms, layer, tops = example(cls) or ([], "", [])
        if not bottoms or name in ("Python", "HDF5Output"):
            yield None
            continue
        keys = yaml.safe_load(layer)
        labels = cls.traits.label_bottoms
        arrays = [given(shape, i, i in labels) for i, shape in enumerate(bottoms)]
        top = [f"top{i}" for i in range(len(tops))]
        yield beside(f"layer {name}", keys, arrays, top, device, dtype)


def engines(device: Device, dtype: str) -> Iterator[Finding | None]:
    """A finding for each way to compute a convolution, on each shape; None where it does not take that."""
    for engine in conv.ENGINES:
        for shape, (bottom, keys) in ENGINES.items():
            keys = {"type": "Convolution", "engine": engine, **keys}
            what = f"convolution {shape}, {engine}"
            yield beside(what, keys, [given(bottom, 0, False)], ["top0"], device, dtype)


def given(shape: tuple[int, ...], number: int, labels: bool) -> np.ndarray:
    """Numbers for a bottom: labels 0 and 1, else what has no kink near it and a logarithm."""
    random = np.random.default_rng(number)
    if labels:
        return random.integers(0, 2, shape).astype(np.float64)
    return random.uniform(0.1, 1.5, shape)


def beside(
    what: str,
    keys: dict[str, Any],
    arrays: list[np.ndarray],
    top: list[str],
    device: Device,
    dtype: str,
) -> Finding | None:
    """A layer on a device beside the CPU; None where the CPU refuses it for what is given."""
    try:
        wanted = passes(keys, arrays, top, "cpu", "float64", {})
    except MinicaffeError:
        return None
    weights = {name: array for name, array in wanted.items() if name.startswith("weight ")}
    try:
        found = passes(keys, arrays, top, device, dtype, weights)
    except Exception as error:  # whatever CuPy, NVRTC or CUDA say is a finding
        if is_lost(device):  # and all others would fail for that
            raise DeviceError(f"{what}: {one_line(error)}") from error
        return Finding(what, float("inf"), one_line(error))
    worst, where = 0.0, ""
    if missing := wanted.keys() - found.keys():
        return Finding(what, float("inf"), f"{min(missing)} is missing")
    for name, array in wanted.items():
        apart = distance(found[name], array)
        if apart > worst:
            worst, where = apart, name
    wrong = "" if worst <= TOLERANCES[dtype] else f"{where} is wrong"
    return Finding(what, worst, wrong)


def is_lost(device: Device) -> bool:
    """Whether a device does nothing any more: after some errors of CUDA's every call fails."""
    try:
        device.synchronize()
    except Exception:  # of whatever class of CuPy's
        return True
    return False


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest error, relative to the largest entry wanted; infinite where one alone is no finite number.

    >>> distance(np.array([1.0, np.nan]), np.array([1.0, 2.0]))
    inf
    """
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    apart = np.abs(found[finite] - wanted[finite]).max(initial=0.0)
    return float(apart / max(np.abs(wanted[finite]).max(initial=0.0), 1e-3))


def passes(
    keys: dict[str, Any],
    arrays: list[np.ndarray],
    top: list[str],
    device: Device | str,
    dtype: str,
    weights: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """A forward and a backward pass of a layer: its weights, tops, and all gradients, by name, in float64."""
    bottom = [f"bottom{i}" for i in range(len(arrays))]
    shapes = [{"dim": list(array.shape)} for array in arrays]
    inputs = {"name": "in", "type": "Input", "top": bottom, "shape": shapes}
    layer = {"name": "it", "bottom": bottom, "top": top, **keys}
    spec = parse(yaml.safe_dump({"layers": [inputs, layer], "force_backward": True}))
    net = Net(spec, "TRAIN", device=device, dtype=dtype)
    params = net.layers["it"].params
    for i, param in enumerate(params):
        if f"weight {i}" in weights:
            net.device.copy_from_host(param.data, weights[f"weight {i}"].astype(param.dtype))
    found = {f"weight {i}": net.device.to_host(one.data).copy() for i, one in enumerate(params)}
    with net.device.current(), np.errstate(all="ignore"):
        named: dict[str, Any] = dict(zip(bottom, arrays, strict=True))
        net.forward(**named)
        found |= {name: net.blobs[name].data for name in top}
        with contextlib.suppress(MinicaffeError):  # it has no gradient, on neither device
            diffs: dict[str, Any] = {name: given(net.blobs[name].shape, 9, False) for name in top}
            net.backward(**diffs)
            found |= {f"gradient of {name}": net.blobs[name].diff for name in bottom}
            found |= {f"gradient of weight {i}": param.diff for i, param in enumerate(params)}
        here = {
            k: a if isinstance(a, np.ndarray) else net.device.to_host(a) for k, a in found.items()
        }
        return {name: np.array(array, np.float64) for name, array in here.items()}
