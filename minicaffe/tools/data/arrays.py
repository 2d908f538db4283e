"""NumPy arrays in the place of a data set: for `adapt`, and for the nets of a Solver."""

from typing import Any

import numpy as np

from minicaffe.core.layers.context import Order
from minicaffe.core.layers.inputs import Input
from minicaffe.core.net import Net
from minicaffe.core.solver import Solver
from minicaffe.errors import DataError, SpecError
from minicaffe.tools.data.layers.data import Data
from minicaffe.tools.data.reader.array_set import ArraySet
from minicaffe.tools.data.reader.base import SHARE, Reader, sides


class ArrayInput(Input):
    """An Input that reads rows of an array, batch after batch as Data does: in TRAIN by (seed, epoch)."""

    def read(self, reader: Reader, rows: np.ndarray) -> None:
        """Read `rows` from the next pass on. Raises DataError for others than the top's."""
        shape = self.shape[0].dim
        if rows[0].size != np.prod(shape[1:], dtype=int):
            wanted = ", ".join(map(str, ("n", *shape[1:])))
            raise DataError(f"{self.top[0]}: expected an array of ({wanted}), got {rows.shape}")
        self.dataset = self.reader = reader
        self.rows = rows
        self.allocate()

    def allocate(self) -> None:
        """Begin with the first row."""
        mix = np.random.Generator.shuffle if self.phase == "TRAIN" else None
        self.order, self.batch_size = Order("arrays", len(self.rows), mix), self.shape[0].dim[0]

    def prepare(self) -> None:
        """Write the batch of this pass."""
        (top,) = self.out
        index, epochs = np.zeros((2, len(top)), np.int64)
        self.order.take(self.context.seed, self.context.passes, index, epochs, self.context.share)
        self.context.device.copy_from_host(top, self.rows[index].reshape(top.shape))

    def forward(self) -> Any:
        """Its own: with Input's a net would replay passes that prepared nothing."""
        return self.out


def feed(solver: Solver, x: Any, y: Any, validation: tuple[Any, Any] | None = None) -> None:
    """Have a solver's nets read arrays from the next iteration on, in the place of their data.

    Without `validation`, (x, y), the tests read a fifth of each class, which is held out of training.
    Raises DataError for arrays that the nets cannot take.
    """
    if (most := solver.spec.max_iter) is not None and solver.iteration >= most:
        raise SpecError(
            f"max_iter {most} is reached: nothing is left to train; make another Solver"
        )
    whole = ArraySet(x, y, validation)
    if whole.tests is not None and not solver.test_nets:
        raise DataError("validation: the solver tests nothing; give it a test_interval")
    parts = sides(whole, SHARE) if solver.test_nets and whole.tests is None else None
    learnt, tested = parts or (whole, whole.tests or whole)
    for net in solver.test_nets:
        _read(net, tested)
    _read(solver.net, learnt)
    tests = f", {len(tested)} to test with" * bool(solver.test_nets)
    solver.report.event(f"data: {whole.name}: {len(learnt)} to train with{tests}")


def _read(net: Net, reader: Reader) -> None:
    """Have a net's Data layer read these entries or, without one, its Inputs: pictures and labels."""
    layers = [step.layer for step in net.steps]
    if data := [layer for layer in layers if isinstance(layer, Data)]:
        data[0].read_instead(reader)
        return
    inputs = [layer for layer in layers if isinstance(layer, Input) and len(layer.top) == 1]
    if len(inputs) != 2:
        raise DataError(
            f"net {net.name!r}: expected a Data layer, or an Input of x and one of y,"
            f" to read arrays; found {len(inputs)} Inputs"
        )
    for layer, rows in zip(inputs, reader.arrays() or (), strict=True):
        layer.__class__ = ArrayInput
        layer.read(reader, rows)  # type: ignore[attr-defined]
