"""The lines of `debug_info` in a pass: the mean absolute value of every blob, parameter and gradient.

The lines are those of Caffe's Net (InputDebugInfo, ForwardDebugInfo, BackwardDebugInfo, and the last one of
Backward), except those of the Split layers that it inserts. Caffe never calls its UpdateDebugInfo.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minicaffe.backends.device import Device
from minicaffe.core.layers import Param
from minicaffe.core.net.step import Step
from minicaffe.errors import note

Say = Callable[[str], None]


def tell_inputs(say: Say, steps: Sequence[Step], device: Device) -> None:
    """Lines on the content of Input layers, before a forward pass."""
    for value in [value for step in steps if step.spec.type == "Input" for value in step.tops]:
        say(f"    [Forward] Input {value.name} data: {_mean(value.blob.data, device)}")


def tell_forward(say: Say, step: Step, device: Device) -> None:
    """Lines on a layer that has just run forward, as Caffe's debug_info prints them."""
    for value in step.tops:
        say(_line("Forward", step, f"top blob {value.name} data", value.blob.data, device))
    names = [param_spec.name for param_spec in step.spec.param]
    for i, param in enumerate(step.layer.params):
        name = (names[i] if i < len(names) else None) or i
        say(_line("Forward", step, f"param blob {name} data", param.data, device))


def tell_backward(say: Say, step: Step, device: Device) -> None:
    """Lines on a layer that has just run backward."""
    for value, wanted in zip(step.bottoms, step.layer.needs_gradient, strict=True):
        if wanted:
            say(_line("Backward", step, f"bottom blob {value.name} diff", value.blob.diff, device))
    for i, param in enumerate(step.layer.params):
        if param.learns:
            say(_line("Backward", step, f"param blob {i} diff", param.diff, device))


def tell_params(say: Say, params: Sequence[Param], device: Device) -> None:
    """One line on all parameters after a backward pass: the L1 and L2 norms of data and diff."""
    norms = []
    for order in (1, 2):
        for which in ("data", "diff"):
            arrays = [_host(device, getattr(param, which)) for param in params]
            norms.append(sum(float((np.abs(array) ** order).sum()) for array in arrays))
    l1, l2 = norms[:2], [norm**0.5 for norm in norms[2:]]
    say(
        f"    [Backward] All net params (data, diff): L1 norm = ({l1[0]:.6g}, {l1[1]:.6g}); "
        f"L2 norm = ({l2[0]:.6g}, {l2[1]:.6g})"
    )


def _line(way: str, step: Step, what: str, array: Any, device: Device) -> str:
    return f"    [{way}] Layer {step.spec.name}, {what}: {_mean(array, device)}"


def _mean(array: Any, device: Device) -> str:
    size = np.abs(_host(device, array))
    return f"{float(size.mean()) if size.size else 0.0:.6g}"


def _host(device: Device, array: Any) -> np.ndarray:
    return device.to_host(array).astype(np.float64)


def tell_of_zeros(net: Any) -> None:
    """Put a line on stderr, once, if the inputs of a net without losses have no gradient, as in Caffe."""
    net.told_of_zeros = True
    if net.graph.forced:
        return
    tops = [value for step in net.steps if not step.bottoms for value in step.tops]
    names = [value.name for value in tops if value.readers and not value.gets_gradient]
    if names:
        note(
            f"minicaffe: the gradient of {', '.join(names)} is not computed and stays 0, as in Caffe; with"
            " force_backward: true in the model it is computed"
        )
