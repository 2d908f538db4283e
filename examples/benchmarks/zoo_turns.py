"""A net of the zoo in a process of its own, taking turns with others: minicaffe, of any checkout, or a peer.

The settings: `name`, `way` (infer or train), `who` (minicaffe, PyTorch as "torch MODE", or another runtime by
its name), `form`, `threads`, how many `passes` or steps one answer takes, the file of the `weights` to infer
with, and the `folder` of what other runtimes read.
"""

from collections.abc import Callable
from pathlib import Path

import forms
import numpy as np
from served import serve
from zoo_runtimes import RUNTIMES


def begin(settings: dict) -> Callable[[], float]:
    """So many passes or steps in this process; gives a number that tells what they found."""
    name, who, infer = settings["name"], settings["who"], settings["way"] == "infer"
    if who in RUNTIMES:
        call = RUNTIMES[who](Path(settings["folder"]), settings["threads"])
    else:
        forms.prepare(settings | {"contender": who})
        call = inference(name, who, settings.get("weights")) if infer else training(name, who)

    def turn() -> float:
        for _ in range(settings["passes"] - 1):
            call()
        return size(call()) if infer else call()

    return turn


def inference(name: str, who: str, weights: str | None = None) -> Callable[[], list[np.ndarray]]:
    """A forward pass of one sample; its outputs."""
    from zoo_nets import inputs_of
    from zoo_ours import ours

    net = ours(name, "infer", weights)
    given = inputs_of(net)
    if who == "minicaffe":
        return lambda: list(net.forward(**given).values())
    from zoo_peers import torch_inference

    return torch_inference(net, given, modes=[who.partition(" ")[2]])[who]


def size(arrays: list[np.ndarray]) -> float:
    """The sum of absolute values."""
    return float(sum(np.abs(array).sum() for array in arrays))


def training(name: str, who: str) -> Callable[[], float]:
    """A step of training; its loss."""
    from zoo_nets import inputs_of
    from zoo_ours import ours_step, trained

    net, solver = trained(name)
    given = inputs_of(net)
    if who == "minicaffe":
        net.forward(**given)
        return ours_step(solver)
    from zoo_peers import torch_steps

    return torch_steps(net, given, modes=[who.partition(" ")[2]])[who]


if __name__ == "__main__":
    serve(begin)
