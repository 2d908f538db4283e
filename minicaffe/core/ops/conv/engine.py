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

from minicaffe.backends.dispatch import is_compiled
from minicaffe.core.ops.geometry import ConvGeometry
from minicaffe.errors import SpecError

AUTO = "auto"  # not an engine: the fastest measured
ENGINES: dict[str, Engine] = {}  # by name, in the order in which they are listed
PASSES = "forward", "input_gradient", "weight_gradient", "gradients"
E = TypeVar("E", bound="type[Engine]")


class Engine(Protocol):
    """Lowers a convolution. x (n, c, *image), weight (f, c / group, *kernel), bias (f,), y (n, f, *out).

    A subclass sets `name` and defines the three passes. `g` holds all sizes, the bias may be None, the result
    is written to `out`, and `work` is a flat array with at least `workspace` elements for each thread. All
    else has defaults that suit an engine in NumPy or CuPy. The passes may be called from any thread.
    """

    name: str
    rule_rank: int | None = None  # its rank in the fixed rule, lowest first; None: not in it
    tie_rank: int | None = None  # its rank among equally fast engines; None: after the others
    traced: bool = False  # records its work in the trace, for replays; otherwise they call it
    unrolls_samples: bool = False  # needs the whole column matrix of a sample
    launches_by_sample: bool = False  # on CUDA it launches kernels sample by sample
    gradients_together: bool = False  # `gradients` is faster than the two passes one by one
    one_product: bool = False  # (built-in ones) on CUDA a candidate for one product of matrices

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class with passes of its own is traced only if it says so itself: they may call NumPy."""
        super().__init_subclass__(**kwargs)
        if "traced" not in vars(cls) and not vars(cls).keys().isdisjoint(PASSES):
            cls.traced = False

    def refuses(self, g: ConvGeometry) -> str | None:
        """Returns why the engine cannot compute a convolution; None if it can."""
        return None

    def workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements of workspace for one thread; if less suffices, at most `limit`."""
        return 0

    def forward_workspace(self, g: ConvGeometry, limit: int) -> int:
        """Returns the elements of workspace for one thread, for `forward` alone."""
        return self.workspace(g, limit)

    def packed(self, g: ConvGeometry) -> int:
        """Returns the elements of packed weights: what `pack` writes, and `forward` then takes; 0 for none."""
        return 0

    def pack(self, weight: Any, bias: Any, g: ConvGeometry, out: Any) -> Any:
        """Writes the packed weight and bias to `out`, and returns it; `forward` has no bias then."""
        return out

    def cuda_workspace(self, g: ConvGeometry, limit: int, itemsize: int) -> int:
        """Returns the elements of workspace on CUDA, of `itemsize` bytes each."""
        return self.workspace(g, limit)

    def rounds_sums(self, g: ConvGeometry) -> bool:
        """Whether weight gradients are summed over samples in the arrays' type: too coarse for float16."""
        return False

    def is_compiled(self, dtype: Any) -> bool:
        """Whether on the CPU it consists of compiled loops for this type, so that it can be replayed."""
        return any(is_compiled(vars(kind).get("forward"), dtype) for kind in type(self).__mro__)

    def needs_compiled(self, g: ConvGeometry) -> bool:
        """Whether it falls back to `implicit` without compiled loops."""
        return False

    def forward(self, x: Any, weight: Any, bias: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes y = weight * x + bias to `out` (n, f, *out), and returns it."""
        raise NotImplementedError(f"engine {self.name}: forward")

    def input_gradient(self, dy: Any, weight: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Writes dx, the gradient of x, to `out` (n, c, *image), and returns it."""
        raise NotImplementedError(f"engine {self.name}: input_gradient")

    def weight_gradient(self, x: Any, dy: Any, g: ConvGeometry, out: Any, work: Any) -> Any:
        """Adds dweight, summed over samples, to `out` (f, c / group, *kernel), and returns it."""
        raise NotImplementedError(f"engine {self.name}: weight_gradient")

    def gradients(
        self, x: Any, dy: Any, weight: Any, g: ConvGeometry, dx: Any, dw: Any, work: Any
    ) -> None:
        """Adds dweight to `dw` and writes dx; called if the engine sets `gradients_together`."""
        self.weight_gradient(x, dy, g, dw, work)
        self.input_gradient(dy, weight, g, dx, work)

    def weight_and_bias_gradients(
        self, x: Any, dy: Any, g: ConvGeometry, dw: Any, db: Any, work: Any
    ) -> bool:
        """Adds dweight and dbias if one kernel computes both; returns whether it did."""
        return False


def names() -> tuple[str, ...]:
    """Returns all values of the key `engine`: `auto`, and the names of the engines."""
    return AUTO, *ENGINES


def register_engine(cls: E) -> E:
    """Registers an engine by its name: for `engine:` in a model, `--conv-engine`, and the autotuner.

    Raises SpecError if the class is no Engine, has no name or lacks a pass, or if its name is in use.
    """
    if Engine not in getattr(cls, "__mro__", ()):
        what = getattr(cls, "__name__", cls)
        raise SpecError(f"register_engine: {what} is no subclass of Engine")
    name = getattr(cls, "name", None)
    if not (isinstance(name, str) and name.isidentifier()) or name == AUTO:
        raise SpecError(f"engine {cls.__name__}: expected a name that is a word, got {name!r}")
    for direction in PASSES[:3]:
        if getattr(cls, direction) is getattr(Engine, direction):
            raise SpecError(f"engine {cls.__name__}: does not define {direction}")
    if cls.one_product and not cls.__module__.startswith("minicaffe."):
        raise SpecError(f"engine {name!r}: one_product is for the engines that InnerProduct knows")
    known = ENGINES.get(name)
    if known is not None and type(known).__module__ != cls.__module__:
        raise SpecError(f"engine {name!r}: {type(known).__module__} has an engine of that name")
    ENGINES[name] = cls()
    return cls
