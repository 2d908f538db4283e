"""Update rules of one's own: a formula, registered under its class's name."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from minicaffe.core.config.declare import BUILT_IN, TYPES, SolverSpec
from minicaffe.core.ops.update import add_rule
from minicaffe.core.solver.update_rules import KINDS, Kind
from minicaffe.errors import SpecError


class Rule(Protocol):
    """The base of a user's update rule: the formula of a step, and its numbers.

    `step(w, g, *history, *numbers)` is a formula for one entry: of the weight, the gradient with its decay,
    `memory` values of history, and what `numbers` returns. It returns what is subtracted from w, and the
    new history. It may call exp, log, sqrt, abs, sign, where, maximum, minimum and similar functions
    (see formulas.py), without branches: it is compiled for NumPy, for the CPU's loops and for CUDA.
    """

    memory: int = 1  # arrays of the parameter's shape: 1 or 2
    decoupled: bool = False  # weight decay is passed to `numbers`, and is not in g
    trust: bool = False  # a step gets the length |w| times the rate, the first of the numbers

    @staticmethod
    def step(*values: Any) -> Any:
        """Returns the step of an entry, and its new history."""
        raise NotImplementedError

    @staticmethod
    def numbers(spec: SolverSpec, rate: float, iteration: int, decay: float) -> Sequence[float]:
        """Returns the numbers of `step` in an iteration, counted from 0; by default only the learning rate."""
        return (rate,)


R = TypeVar("R", bound="type[Rule]")


def register_rule(cls: R) -> R:
    """Register an update rule under its class's name, for `type:` of a solver.

    Raises SpecError if the class is no Rule, has a built-in rule's name, or if its formula cannot be compiled.
    """
    if Rule not in getattr(cls, "__mro__", ()):
        raise SpecError(f"register_rule: {getattr(cls, '__name__', cls)} is no subclass of Rule")
    name = cls.__name__
    if not name.isascii():
        raise SpecError(f"rule {name}: expected a name in ASCII, as C++ takes it")
    if name in BUILT_IN:
        raise SpecError(f"rule {name}: is a built-in rule's name")
    if cls.memory not in (1, 2):
        raise SpecError(f"rule {name}: memory: expected 1 or 2, got {cls.memory!r}")
    try:
        rule = add_rule(name, cls.step, cls.memory)
    except TypeError as error:
        raise SpecError(f"rule {name}: {error}") from None
    KINDS[name] = Kind(rule, cls.numbers, cls.decoupled, True, cls.trust)
    if name not in TYPES:
        TYPES.append(name)
    return cls
