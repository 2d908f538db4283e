"""A net of the zoo in a process of its own, taking turns with others: minicaffe, of any checkout, or PyTorch.

The settings: `name`, `way` (infer or train), `who` (minicaffe, or PyTorch as "torch MODE"), `form`, `threads`,
how many `passes` or steps one answer takes, and the file of the `weights` to infer with.
"""

from collections.abc import Callable

import forms
import numpy as np
from served import serve


def begin(settings: dict) -> Callable[[], float]:
    """So many passes or steps in this process; gives a number that tells what they found."""
    name, who = settings["name"], settings["who"]
    forms.prepare(settings | {"contender": "" if who.startswith("torch") else who})
    infer = settings["way"] == "infer"
    call = inference(name, who, settings.get("weights")) if infer else training(name, who)

    def turn() -> float:
        for _ in range(settings["passes"] - 1):
            call()
        return call()

    return turn


def inference(name: str, who: str, weights: str | None = None) -> Callable[[], float]:
    """A forward pass of one sample; the sum of the outputs' absolute values."""
    from zoo_nets import inputs_of
    from zoo_ours import ours

    net = ours(name, "infer", weights)
    given = inputs_of(net)
    if who == "minicaffe":

        def call():
            return list(net.forward(**given).values())
    else:
        from zoo_peers import torch_inference

        call = torch_inference(net, given, modes=[who.partition(" ")[2]])[who]
        del net
    return lambda: size(call())


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
