"""The displayed losses and test results of a solver: arrays to plot, and a table of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from minicaffe.core.net.summary import table
from minicaffe.errors import ByName, MinicaffeError, needed, pip_install

if TYPE_CHECKING:
    import pandas

ROWS = 20  # that are shown of a longer table: half of them from each end


class Log(ByName[np.ndarray]):
    """Arrays by name: `iteration`, `loss`, `lr`; of tests `test_iteration`, and `test_` and output.

    A notebook shows it as a table, with a row for each iteration.

    >>> log = Log([(0, 2.5, 0.1), (10, 1.5, 0.01)], [(10, {"accuracy": 0.5})])
    >>> log["loss"], log["test_accuracy"]
    (array([2.5, 1.5]), array([0.5]))
    >>> log
    iteration  loss    lr  test_accuracy
            0   2.5   0.1
           10   1.5  0.01            0.5
    """

    def __init__(
        self,
        shown: Sequence[tuple[int, float, float]],
        tests: Sequence[tuple[int, Mapping[str, Any]]],
    ):
        """Of each display iteration, loss and rate, of each test iteration and scores."""
        super().__init__("column in the log")
        numbers = np.array(shown, np.float64).reshape(-1, 3).T
        self.update(zip(("iteration", "loss", "lr"), numbers, strict=True))
        self["iteration"] = self["iteration"].astype(int)
        self["test_iteration"] = np.array([iteration for iteration, _ in tests], int)
        for name in tests[0][1] if tests else ():
            self[f"test_{name}"] = np.array([scores[name] for _, scores in tests])

    def aligned(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """All iterations in their order, and every column at these: NaN where nothing was measured.

        The entries of an array have a column each; of an iteration done twice the later numbers stay.
        """
        iterations = np.union1d(self["iteration"], self["test_iteration"])
        columns = {}
        for name, values in self.items():
            at = self["test_iteration" if name.startswith("test_") else "iteration"]
            if values is at:
                continue
            where = np.searchsorted(iterations, at)
            entries = values.reshape(len(values), -1).T if values.ndim > 1 else [values]
            for i, entry in enumerate(entries):
                column = np.full(len(iterations), np.nan)
                column[where] = entry
                columns[name if values.ndim == 1 else f"{name}[{i}]"] = column
        return iterations, columns

    def frame(self) -> pandas.DataFrame:
        """The table as pandas' DataFrame, iterations as its index. Raises MinicaffeError without pandas."""
        need = f"the log as a DataFrame needs the package pandas: {pip_install('notebook')}"
        with needed(MinicaffeError(need)):
            import pandas
        iterations, columns = self.aligned()
        return pandas.DataFrame(columns, index=pandas.Index(iterations, name="iteration"))

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """The head, then the rows as they are shown."""
        iterations, columns = self.aligned()
        yield "iteration", *columns
        shown = range(len(iterations))
        for i in shown if len(shown) <= ROWS else [*shown[: ROWS // 2], -1, *shown[-ROWS // 2 :]]:
            if i < 0:
                yield ("...", *[""] * len(columns))
                continue
            cells = ("" if np.isnan(v[i]) else f"{v[i]:.6g}" for v in columns.values())
            yield str(iterations[i]), *cells

    def __repr__(self) -> str:
        head, *rows = self._rows()
        return table(rows, head, left=())

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        return html_table(head, rows)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns rows of cells below a head as a table in HTML."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f"<table><thead><tr>{names}</tr></thead><tbody>\n{body}</tbody></table>"
