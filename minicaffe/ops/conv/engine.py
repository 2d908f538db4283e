"""What an engine is: a way to compute convolutions; and the table of all engines.

@register_engine
class Einsum(Engine):
    \"\"\"Windows as a view of the image, and one einsum.\"\"\"

    name = "einsum"

    def forward(self, x, weight, bias, g, out, work): ...
    def input_gradient(self, dy, weight, g, out, work): ...
    def weight_gradient(self, x, dy, g, out, work): ...
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from minicaffe.errors import SpecError
from minicaffe.ops.geometry import ConvGeometry

AUTO = "auto"  # not an engine: the fastest measured
ENGINES: dict[str, Engine] = {}  # by name, in the order in which they are shown
E = TypeVar("E", bound="type[Engine]")


class Engine(Protocol):
    """Lowers a convolution. x (n, c, *image), weight (f, c / group, *kernel), bias (f,), y (n, f, *out).

    A subclass sets `name` and defines the three passes; `g` holds all sizes, `out` is where a result goes,
    `work` is a flat array of at least `workspace` elements for each thread. What else the autotuner must know
    has defaults that suit an engine written with NumPy or CuPy. The passes may be called from any thread.
    """

    name: str
    rule_rank: int | None = None  # its place in the fixed rule, lowest first; None: never by rule
    tie_rank: int | None = (
        None  # its place among equally fast ones; None: behind those that have one
    )
    traced: bool = (
        False  # reports all it does to the trace, so that a replay repeats it; else it is called
    )
    unrolls_samples: bool = False  # needs the columns of at least a whole sample
    launches_by_sample: bool = False  # on CUDA it launches kernels for each sample anew
    gradients_together: bool = False  # `gradients` takes less than one and then the other
    one_product: bool = False  # on CUDA it is a candidate where all is one matrix product

    def refuses(self, g: ConvGeometry) -> str | None:
        """Returns why a shape cannot be taken; None if it can."""
        return None

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements of work that a thread needs; where less will do, no more than `limit`."""
        return 0

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the same for `forward` alone."""
        return self.workspace(g, limit)

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements, of so many bytes, that it needs on CUDA."""
        return self.workspace(g, limit)

    def rounds_sums(self, g: ConvGeometry) -> bool:
        """Whether samples' weight gradients are summed in the arrays' own type: too coarse for 16 bits."""
        return False

    def is_compiled(self, dtype: Any) -> bool:
        """Whether on the CPU it runs as compiled loops alone, for arrays of a type, and can be replayed."""
        return False

    def needs_compiled(self, g: ConvGeometry) -> bool:
        """Whether without compiled loops it would compute as `implicit` does."""
        return False

    def forward(
        self, x: Any, weight: Any, bias: Any | None, g: ConvGeometry, out: Any, work: Any
    ) -> Any:
        """Writes y = weight * x + bias into `out`, and returns it."""
        raise NotImplementedError(f"engine {self.name}: forward")

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx into `out`, and returns it."""
        raise NotImplementedError(f"engine {self.name}: input_gradient")

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight to `out`, and returns it."""
        raise NotImplementedError(f"engine {self.name}: weight_gradient")

    def gradients(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any, work: Any
    ) -> None:
        """Adds dweight to `dw` and writes dx; asked for where the engine says `gradients_together`."""
        self.weight_gradient(x, dy, g, dw, work)
        self.input_gradient(dy, weight, g, dx, work)

    def weight_and_bias_gradients(
        self, x: Any, dy: Any, g: ConvGeometry, dw: Any, db: Any, work: Any
    ) -> bool:
        """Adds dweight and dbias on CUDA, where one kernel does both; returns whether it did."""
        return False


def names() -> tuple[str, ...]:
    """What an engine can be asked for by: `auto`, and the names there are."""
    return AUTO, *ENGINES


def register_engine(cls: E) -> E:
    """Make an engine known by its name: for `engine:` in a model, `--conv-engine`, and the autotuner.

    Raises SpecError if the class is no Engine, has no name, or lacks a pass, or if another has its name.
    """
    if Engine not in getattr(cls, "__mro__", ()):
        raise SpecError(
            f"register_engine: {getattr(cls, '__name__', cls)} is no subclass of Engine"
        )
    name = getattr(cls, "name", None)
    if not (isinstance(name, str) and name.isidentifier()) or name == AUTO:
        raise SpecError(f"engine {cls.__name__}: expected a name that is a word, got {name!r}")
    for one in ("forward", "input_gradient", "weight_gradient"):
        if getattr(cls, one) is getattr(Engine, one):
            raise SpecError(f"engine {cls.__name__}: does not define {one}")
    known = ENGINES.get(name)
    if known is not None and type(known).__module__ != cls.__module__:
        raise SpecError(f"engine {name!r}: {type(known).__module__} has an engine of that name")
    ENGINES[name] = cls()
    return cls
