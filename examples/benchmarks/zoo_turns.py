"""A net of the zoo in a process of its own, taking turns with others: minicaffe, of any checkout, or PyTorch.

The settings: `name`, `way` (infer or train), `who` (minicaffe, or PyTorch as "torch MODE"), `form`, `threads`,
and how many `passes` or steps one answer takes.
"""

from collections.abc import Callable

import forms
import numpy as np
from served import serve


def begin(settings: dict) -> Callable[[], float]:
    """So many passes or steps in this process; gives a number that tells what they found."""
    name, way, who = (settings[key] for key in ("name", "way", "who"))
    forms.prepare(settings | {"contender": "" if who.startswith("torch") else who})
    call = {"infer": inference, "train": training}[way](name, who)

    def turn() -> float:
        for _ in range(settings["passes"] - 1):
            call()
        return call()

    return turn


def inference(name: str, who: str) -> Callable[[], float]:
    """A forward pass of one sample; the sum of the outputs' absolute values."""
    from zoo_nets import inputs_of
    from zoo_ours import ours

    net = ours(name, "infer")
    given = inputs_of(net)
    if who == "minicaffe":

        def call():
            return list(net.forward(**given).values())
    else:
        from zoo_peers import torch_inference

        call = torch_inference(net, given, modes=[who.partition(" ")[2]])[who]
        del net
    return lambda: float(sum(np.abs(array).sum() for array in call()))


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
