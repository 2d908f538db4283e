"""The declaration of a solver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from minicaffe.core.config.state import ANY, State
from minicaffe.core.config.tree import Mark, Node
from minicaffe.core.config.types import Among, AtLeast, Below, Printable
from minicaffe.errors import did_you_mean

NOWHERE = Mark("<python>")


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A test output by which tests are better or worse; of an array the mean of its entries counts.

    >>> print(Watched(output="accuracy"), Watched(output="score", mode="max", min_delta=0.01), sep=", ")
    accuracy, score (max, min_delta 0.01)
    """

    word: ClassVar[str] = "output"
    output: Annotated[
        str, "its name; of several test nets led by their number, 1/accuracy", Printable()
    ]
    mode: Annotated[
        Literal["max", "min"] | None,
        "whether higher or lower is better; default: max of an accuracy, min of a loss",
    ] = None
    min_delta: Annotated[float, "a test is better only if it is by more than this", AtLeast(0)] = (
        0.0
    )

    def __str__(self) -> str:
        more: list[str] = [self.mode] if self.mode else []
        more += [f"min_delta {self.min_delta:g}"] if self.min_delta else []
        return f"{self.output} ({', '.join(more)})" if more else self.output


BUILT_IN = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW")
TYPES = [*BUILT_IN]  # and those that are registered


def types() -> list[str]:
    """The names of update rules that are known now."""
    return TYPES


def unknown(name: str, words: Iterable[str]) -> str:
    """What to do about a rule that is none of the words."""
    return did_you_mean(name, words) or "; --import FILE brings rules of one's own"


@dataclass(frozen=True, kw_only=True)
class SolverSpec:
    """How a net is trained (Caffe's SolverParameter)."""

    type: Annotated[str, "the update rule", Among(types, unknown)] = "SGD"
    base_lr: Annotated[float, "the learning rate at the start", AtLeast(0)]
    lr_policy: Annotated[
        Literal["fixed", "step", "multistep", "exp", "inv", "poly", "sigmoid", "cosine", "plateau"],
        "how the learning rate falls",
    ] = "fixed"
    gamma: Annotated[float | None, "step, multistep, exp, inv, sigmoid, plateau: the factor"] = None
    power: Annotated[float | None, "inv, poly: the exponent", AtLeast(0)] = None
    stepsize: Annotated[int | None, "step, sigmoid: iterations", AtLeast(1)] = None
    stepvalue: Annotated[
        tuple[int, ...], "multistep: iterations at which the rate falls", AtLeast(0)
    ] = ()
    min_lr: Annotated[float, "cosine, plateau, poly: the least rate", AtLeast(0)] = 0.0
    patience: Annotated[
        int | None, "plateau: tests in a row without a better one before the rate falls", AtLeast(1)
    ] = None
    plateau: Annotated[
        Watched | None, "plateau: the test output that it goes by; default: that of best"
    ] = None
    warmup_iter: Annotated[
        int,
        "iterations in which the rate rises in a line to base_lr, whatever lr_policy",
        AtLeast(0),
    ] = 0
    warmup_start_lr: Annotated[float, "the rate that warmup_iter begins with", AtLeast(0)] = 0.0
    max_iter: Annotated[
        int | None, "iterations in all; without it only Solver.step trains", AtLeast(0)
    ] = None
    iter_size: Annotated[int, "batches whose gradients make one update", AtLeast(1)] = 1
    momentum: Annotated[
        float,
        "share of the last update kept; AdaDelta, Adam, AdamW: of the running mean",
        AtLeast(0),
        Below(1),
    ] = 0.0
    momentum2: Annotated[
        float, "Adam, AdamW: share of the running mean of squares kept", AtLeast(0), Below(1)
    ] = 0.999
    rms_decay: Annotated[
        float, "RMSProp: share of the running mean of squares kept", AtLeast(0), Below(1)
    ] = 0.99
    delta: Annotated[
        float, "AdaGrad, RMSProp, AdaDelta, Adam, AdamW: keeps a division from 0", AtLeast(0)
    ] = 1e-8
    weight_decay: Annotated[float, "strength of the regularisation", AtLeast(0)] = 0.0
    regularization_type: Annotated[Literal["L2", "L1"], "what weight_decay penalises"] = "L2"
    clip_gradients: Annotated[float, "largest norm of the whole gradient; -1 for no limit"] = -1.0
    test_iter: Annotated[
        tuple[int, ...] | None,
        "batches in a test, one number a test net; default: the whole test set once; 0: no test",
        AtLeast(0),
    ] = None
    test_interval: Annotated[
        int | None, "iterations between tests; 0 for one test, at the end", AtLeast(0)
    ] = None
    test_initialization: Annotated[bool, "test before the first iteration"] = True
    test_compute_loss: Annotated[bool, "show the loss of a test beside its outputs"] = False
    best: Annotated[
        Watched | None, "the test output whose best test is kept as PREFIX_best.npz"
    ] = None
    early_stopping: Annotated[
        int | None, "tests in a row without a new best that end training", AtLeast(1)
    ] = None
    ema_decay: Annotated[
        float,
        "share of the weights' running mean kept in an iteration; tests and snapshots take the mean",
        AtLeast(0),
        Below(1),
    ] = 0.0
    train_state: Annotated[State, "what the training net is built for"] = ANY
    test_state: Annotated[tuple[State, ...], "what each test net is built for"] = ()
    display: Annotated[int, "iterations between log lines; 0 for none", AtLeast(0)] = 0
    average_loss: Annotated[
        int, "iterations over which the shown loss is averaged", AtLeast(1), Below(1_000_001)
    ] = 1
    snapshot: Annotated[int, "iterations between snapshots; 0 for none", AtLeast(0)] = 0
    snapshot_prefix: Annotated[
        str | None, "snapshots are PREFIX_iter_N; default: the model file's name"
    ] = None
    snapshot_format: Annotated[
        Literal["NPZ", "BINARYPROTO", "HDF5"],
        "one .npz, or Caffe's .caffemodel and .solverstate, or both of these as .h5",
    ] = "NPZ"
    snapshot_keep: Annotated[
        int, "snapshots that stay, the last so many; 0 for all", AtLeast(0)
    ] = 0
    snapshot_after_train: Annotated[bool, "snapshot at the end of training"] = True
    loss_scale: Annotated[
        float | None,
        "dtype float16, bfloat16: gradients are of so many times the loss; default 1024 in float16, 1",
        AtLeast(1),
    ] = None
    debug_info: Annotated[bool, "show the mean size of every blob, parameter and gradient"] = False
    device: Annotated[str | None, "cpu, cuda or cuda:N; default: CUDA if it works"] = None
    weights: Annotated[tuple[str, ...], "weight files that training begins with"] = ()
    random_seed: Annotated[int, "seed of fillers, shuffling and dropout", AtLeast(0)] = 1
    mark: Mark = field(default=NOWHERE, metadata={"hidden": True})
    nodes: Mapping[str, Node] = field(
        default_factory=dict, repr=False, compare=False, metadata={"hidden": True}
    )

    def tests(self, own: int) -> tuple[int | None, ...]:
        """The batches of each test net, of which a model has `own` itself; None: the whole set once."""
        if self.test_iter is not None:
            return self.test_iter
        if self.test_interval is None:
            return ()
        return (None,) * max(1, own, len(self.test_state))
