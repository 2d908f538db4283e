"""`train --find-lr`: the learning-rate range test, with a picture and a suggestion.

Source: L. Smith, Cyclical Learning Rates for Training Neural Networks, 2017, section 3.3.
"""

import argparse
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from minicaffe.backends.device import Device
from minicaffe.cli.options import load_weights
from minicaffe.core.communicator import Communicator
from minicaffe.core.config.declare import NetSpec
from minicaffe.core.solver import Solver
from minicaffe.errors import MinicaffeError, SpecError, TrainingError, say
from minicaffe.storage import checkpoint
from minicaffe.tools.visualize.chart import line_chart

RATES = (1e-6, 1.0)  # from the first to the last
STEPS = 100
SMOOTH = 0.9  # the share of the running mean that an iteration keeps
WORSE = 4.0  # times the least loss: where the test ends


def run(args: argparse.Namespace, spec: NetSpec, device: Device, communicator: Communicator) -> int:
    """Test the rates."""
    if communicator.size > 1:
        raise SpecError("--find-lr: is for one process, not for several ranks")
    if spec.solver is None:
        raise SpecError(f"{args.model}: has no solver to find a rate for")
    rates, losses = losses_of(args, spec, device)
    smooth = smoothed(losses)
    best = suggestion(rates, smooth)
    title = f"{spec.name or args.model}: loss at rising learning rates"
    picture = line_chart(rates, {"loss": losses, "smoothed": smooth}, title, "learning rate", best)
    checkpoint.replace(args.find_lr, picture.encode())
    print(f"learning rates: {rates[0]:.2g} to {rates[-1]:.2g}; least loss {smooth.min():.4g}")
    if best is None:
        print("no suggestion: the loss did not fall at any of these rates")
    else:
        print(f"suggestion: base_lr {best:.2g}: --set solver.base_lr={best:.2g}")
    say(f"picture: {args.find_lr}")
    return 0


def losses_of(
    args: argparse.Namespace, spec: NetSpec, device: Device
) -> tuple[np.ndarray, np.ndarray]:
    """The rates that were tried, and the loss at each; it ends early once the loss is large or no number."""
    assert spec.solver is not None
    first, last = RATES
    rule: dict[str, Any] = {"base_lr": first, "lr_policy": "exp", "max_iter": STEPS}
    rule |= {"gamma": (last / first) ** (1 / (STEPS - 1)), "warmup_iter": 0, "snapshot": 0}
    rule |= {"test_interval": None, "test_iter": None, "best": None, "average_loss": 1}
    rule |= {"early_stopping": None, "display": 0, "plateau": None, "patience": None}
    rule |= {"power": None, "stepsize": None, "stepvalue": (), "min_lr": 0.0}
    chosen = dataclasses.replace(spec, solver=dataclasses.replace(spec.solver, **rule))
    settings: dict[str, Any] = {} if args.seed is None else {"random_seed": args.seed}
    settings |= {"numerics": args.numerics(), "snapshot_after_train": False}
    solver = Solver(chosen, device=device, **settings)
    if files := args.weights or ",".join(spec.solver.weights):
        load_weights(solver.net, files, strict=False)
    losses: list[float] = []
    for _ in tqdm(range(STEPS), disable=None, leave=False, desc="rates"):
        try:
            solver.step(1)
        except TrainingError:  # no finite number: the end of the range
            break
        losses.append(float(solver.loss()))
        if losses[-1] > WORSE * min(smoothed(losses)) and len(losses) > STEPS // 10:
            break
    if not losses:
        raise MinicaffeError("--find-lr: the first loss is no finite number")
    rates = first * (last / first) ** (np.arange(len(losses)) / (STEPS - 1))
    return rates, np.array(losses)


def smoothed(losses: Sequence[float] | np.ndarray) -> np.ndarray:
    """The running mean of losses, without the bias of its beginning."""
    mean, means = 0.0, []
    for i, loss in enumerate(losses, 1):
        mean = SMOOTH * mean + (1 - SMOOTH) * loss
        means.append(mean / (1 - SMOOTH**i))
    return np.array(means)


def suggestion(rates: np.ndarray, smooth: np.ndarray) -> float | None:
    """A tenth of the rate of the least smoothed loss, to two digits; None if the loss did not fall.

    >>> suggestion(np.array([1e-4, 1e-3, 1e-2, 1e-1]), np.array([2.0, 1.5, 1.0, 3.0]))
    0.001
    """
    place = int(smooth.argmin())
    if place == 0 or smooth[place] > 0.99 * smooth[0]:
        return None
    rate = float(rates[place]) / 10
    digits = 1 - math.floor(math.log10(rate))
    return round(rate, digits)
