"""The nets of the zoo in PyTorch, as contenders."""

from collections.abc import Callable, Mapping

import numpy as np
from zoo_names import DECAY, MOMENTUM, RATE

MODES = ("eager", "channels_last", "compile")


def torch_inference(net, given: Mapping[str, np.ndarray], modes=MODES) -> dict[str, Callable]:
    """A forward pass in PyTorch, in each mode."""
    import torch
    from zoo_torch import Module

    def call_of(module, inputs):
        def call():
            with torch.inference_mode():
                return [array.numpy() for array in module(*inputs)]

        return call

    return {f"torch {mode}": call_of(*in_mode(Module(net), given, mode)) for mode in modes}


def torch_steps(net, given: Mapping[str, np.ndarray], tell: bool = True, modes=MODES) -> dict:
    """A training step in PyTorch, in each mode, with its fused SGD."""
    import torch
    from zoo_torch import Module

    def step_of(module, inputs, groups):
        sgd = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, fused=True)

        def step():
            sgd.zero_grad()
            loss = module(*inputs)
            loss.backward()
            sgd.step()
            return loss.item() if tell else None

        return step

    calls = {}
    for mode in modes:
        plain = Module(net)
        module, inputs = in_mode(plain, given, mode)
        calls[f"torch {mode}"] = step_of(module, inputs, plain.groups(RATE, DECAY))
    return calls


def recorded(
    step: Callable[[], object], between: Callable[[], object] = lambda: None
) -> Callable[[], None]:
    """A step of PyTorch as a CUDA graph; `between` its first runs and the capture."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    side.synchronize()
    between()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def in_mode(module, given: Mapping[str, np.ndarray], mode: str, device: str = "cpu"):
    """A module and what it takes in a mode of PyTorch."""
    import torch

    inputs = [torch.from_numpy(given[name]).to(device) for name in module.inputs]
    if mode == "channels_last":
        last = torch.channels_last
        inputs = [x.to(memory_format=last) if x.ndim == 4 else x for x in inputs]
        return module.to(memory_format=last), inputs
    return (torch.compile(module) if mode == "compile" else module), inputs
