"""Training watched from Python: the figure in a notebook, the bar on a terminal; the log as arrays and tables."""

import io
import os
import re
import signal
import sys
import types
from contextlib import redirect_stderr
from importlib.util import find_spec
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from kit import logged

from minicaffe import Net, parse
from minicaffe.core.solver import Report, Solver
from minicaffe.errors import (
    CheckpointError,
    DivergedError,
    MinicaffeError,
    SpecError,
    UnknownNameError,
)
from minicaffe.tools.training import folder as run_folder
from minicaffe.tools.training.log_table import Log
from minicaffe.tools.visualize import live

MODEL = """
name: a<b
layers:
  - {name: x, type: DummyData, top: [x, y], shape: [{dim: [4, 3]}, {dim: [4]}],
     data_filler: [{type: gaussian, std: 1}, {type: constant, value: 1}]}
  - {name: ip, type: InnerProduct, bottom: x, num_output: 2, weight_filler: {type: xavier}}
  - {name: drop, type: Dropout}
  - {name: 'right<', type: Accuracy, bottom: [drop, y], top: ['right<', each], include: {phase: TEST}}
  - {name: loss, type: SoftmaxWithLoss, bottom: [drop, y]}
solver: {base_lr: 0.1, max_iter: 24, display: 2, test_iter: 1, test_interval: 6, snapshot_after_train: false}
"""
SVG = "{http://www.w3.org/2000/svg}"


def solver(**settings) -> Solver:
    return Solver(parse(MODEL), device="cpu", deterministic=True, **settings)


class Cell:
    """What a notebook's cell was sent: each of the drawings in its one display."""

    def __init__(self):
        self.drawings: list[str] = []
        self.calls = 0

    def display(self, figure, display_id):
        assert display_id is True
        self.calls += 1
        self.update(figure)
        return self

    def update(self, figure):
        self.drawings.append(figure._repr_html_())
        self.text = repr(figure)

    @property
    def last(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.drawings[-1])

    @property
    def charts(self) -> list[ElementTree.Element]:
        return self.last.findall(f"div/{SVG}svg")


@pytest.fixture
def cell(monkeypatch):
    """A notebook's kernel, and a clock of which each look takes a hundredth of a second."""
    shell = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})()  # as Colab's, a subclass
    cell, now = Cell(), [0.0]
    ipython, shows = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, shows.display = lambda: shell, cell.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)

    def look():
        now[0] += 0.01
        return now[0]

    monkeypatch.setattr(live, "time", SimpleNamespace(perf_counter=look))
    cell.now = now
    return cell


def state(one: Solver):
    """All that training computed."""
    log = {name: column.tolist() for name, column in one.log.items()}
    return {name: array.tobytes() for name, array in one.net.weights().items()}, log


def test_it_computes_what_solve_does(cell, tmp_path):
    by_solve, by_fit = solver(run=tmp_path / "solve"), solver(run=tmp_path / "fit")
    scores, again = by_solve.solve(), by_fit.fit()
    np.testing.assert_equal(again, scores)
    assert state(by_fit) == state(by_solve) and cell.calls == 1
    assert logged(tmp_path / "solve") == logged(tmp_path / "fit")
    assert run_folder.read(tmp_path / "fit").state == "finished"


def test_the_figure_is_drawn_in_place_and_tells_how_far_it_is(cell, capsys):
    solver().fit()
    first, last = ElementTree.fromstring(cell.drawings[0]), cell.last
    assert first.find("progress").get("value") == "0" and first.find("div/*") is None
    assert last.find("progress").attrib.items() >= {"value": "24", "max": "24"}.items()
    told = last.find("p").text
    assert re.match(r"iteration 24 of 24; loss 0\.\d+, lr 0.1; test right< \d", told)
    assert "done after 0:0" in told and "each" not in told
    assert cell.text == f"a<b: {told}"
    assert [
        [len(line.get("points").split()) for line in chart.iter(f"{SVG}polyline")]
        for chart in cell.charts
    ] == [[12, 5], [5]]
    assert "prefers-color-scheme" not in cell.drawings[-1] and "currentColor" in cell.drawings[-1]
    assert "<script" not in cell.drawings[-1]
    assert capsys.readouterr().err == ""


def drawn_at(cell, monkeypatch, count, seconds):
    """When a figure is drawn in so many iterations, each drawing of which takes so long."""
    update, times = Cell.update, []

    def noted(self, figure):
        times.append(cell.now[0])
        cell.now[0] += seconds
        update(self, figure)

    monkeypatch.setattr(Cell, "update", noted)
    solver(max_iter=count).fit()
    return times


def test_it_is_drawn_twice_a_second_at_most_and_seldom_on_a_slow_page(cell, monkeypatch):
    """Two of a hundred seconds may go into drawing."""
    apart = np.diff(drawn_at(cell, monkeypatch, 200, 0)[:-1])  # the last is that of the end
    assert len(apart) > 3 and apart.min() >= live.APART
    assert len(drawn_at(cell, monkeypatch, 600, 1)) == 3  # the first, one, the last


def test_it_shows_that_it_tests_and_what_happens(cell, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "APART", 0)
    monkeypatch.setattr(live, "SHARE", 1e9)
    solver(snapshot=6, snapshot_prefix=str(tmp_path / "a&b"), max_iter=60).fit()
    assert any("; testing</p>" in drawing for drawing in cell.drawings)
    assert any(" images/s, 0:0" in drawing for drawing in cell.drawings)
    lines = cell.last.find("pre").text.splitlines()
    assert len(lines) == live.LINES and lines[-1] == f"snapshot: {tmp_path / 'a&b'}_iter_60.npz"


def test_a_warning_stays_above_the_curves(cell, monkeypatch):
    monkeypatch.setattr(Net, "warnings", ["NOT MNIST. <Others>."])
    solver().fit()
    assert [text.text for text in cell.last.findall("p/b")] == ["NOT MNIST. <Others>."]


def test_what_failed_stays_above_the_curves(cell, tmp_path):
    class Gone(Report):
        def displayed(self, iteration, loss, rate):
            if iteration == 2:
                (tmp_path / "s").rmdir()
                (tmp_path / "s").write_text("a file where the folder was")

    (tmp_path / "s").mkdir()
    one = solver(report=Gone(), snapshot_prefix=str(tmp_path / "s" / "s"), snapshot=6)
    with redirect_stderr(io.StringIO()), pytest.raises(CheckpointError):
        one.fit()
    texts = [text.text for text in cell.last.findall("p/b")]
    assert texts[0].startswith("no snapshot of iteration 6: ") and len(texts) <= live.LINES


def test_without_an_end_there_is_no_figure(cell):
    with pytest.raises(SpecError, match="max_iter"):
        Solver(parse(MODEL.replace("max_iter: 24, ", "")), device="cpu").fit()
    assert cell.calls == 0


UNTESTED = re.sub(r"  - \{name: 'right.*\n", "", MODEL).replace(
    "test_iter: 1, test_interval: 6,", ""
)
SLASH = MODEL.replace("name: loss", "name: a/loss")


@pytest.mark.parametrize(
    ("model", "charts"),
    [
        (MODEL, [["loss", "test loss"], ["test right<"]]),
        (UNTESTED, [["loss"]]),
        # A name may have a slash, as GoogLeNet's; of several test nets a number and a slash come first
        (SLASH, [["loss", "test a/loss"], ["test right<"]]),
        (SLASH.replace("test_iter: 1,", "test_iter: [1, 1],"),
         [["loss", "test 0/a/loss", "test 1/a/loss"], ["test 0/right<", "test 1/right<"]]),
    ],
    ids=["tested", "untested", "slash", "two tests"],
)  # fmt: skip
def test_curves_are_known_by_the_names_of_the_net(model, charts, cell):
    Solver(parse(model), device="cpu").fit()
    assert [[name.text for name in chart.iter(f"{SVG}tspan")] for chart in cell.charts] == charts


def test_an_interrupt_stops_it_and_the_figure_stays(cell, tmp_path):
    class Interrupt(Report):
        def displayed(self, iteration, loss, rate):
            if iteration == 4:
                os.kill(os.getpid(), signal.SIGINT)

    one, whole = solver(report=Interrupt(), snapshot_prefix=str(tmp_path / "s")), solver()
    with redirect_stderr(io.StringIO()):
        assert one.fit() == {} and one.stopped and one.iteration == 5
        assert cell.last.find("progress").get("value") == "5"
        assert "stopped after" in cell.last.find("p").text
        one.fit()
    whole.solve()
    assert state(one)[0] == state(whole)[0] and cell.calls == 2
    assert (tmp_path / "s_iter_5.npz").exists()


def test_an_error_leaves_the_figure_and_the_reports_as_they_were(cell, tmp_path):
    one = solver(base_lr=1e38, snapshot_prefix=str(tmp_path / "s"))
    report, tell = one.report, one.net.context.tell
    with pytest.raises(DivergedError):
        one.fit()
    assert "stopped after" in cell.last.find("p").text
    assert one.report is report and one.net.context.tell == tell


def test_a_report_of_ones_own_hears_as_before(cell):
    class Mine(Report):
        heard = 0

        def displayed(self, iteration, loss, rate):
            self.heard += 1

    mine = Mine()
    solver(report=mine).fit()
    assert mine.heard == 12 and cell.calls == 1


def test_a_long_curve_keeps_its_highs(cell):
    one = solver(max_iter=2500, display=1)
    one.fit()
    loss, test = (line.get("points").split() for line in cell.charts[0].iter(f"{SVG}polyline"))
    assert len(one.log["loss"]) == 2500 and 500 <= len(loss) <= 1000 and len(test) <= 1000
    heights = [float(point.partition(",")[2]) for point in (*loss, *test)]
    assert (min(heights), max(heights)) == (40, 230)  # of the axis: the ends of all numbers
    assert len(cell.drawings[-1]) < 50_000


@pytest.mark.parametrize("shell", [None, type("TerminalInteractiveShell", (), {})()])
def test_elsewhere_it_is_lines_and_on_a_terminal_a_bar(shell, monkeypatch, capsys):
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    solver().fit()
    assert "iteration 2: loss = " in capsys.readouterr().err
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    with redirect_stderr(terminal):
        solver().fit()
    assert "100%|" in terminal.getvalue() and "24/24" in terminal.getvalue()
    assert "iteration 2: loss" not in terminal.getvalue()


def test_ranks_but_the_first_show_nothing(cell):
    rank = SimpleNamespace(communicator=SimpleNamespace(rank=1), solve=lambda: {"loss": 1.0})
    assert live.fit(rank) == {"loss": 1.0} and cell.calls == 0


TESTED = [
    (0, {"accuracy": 0.25, "each": np.array([0.5, 0.0])}),
    (10, {"accuracy": 0.75, "each": np.array([0.5, 1.0])}),
]
LOG = Log([(0, 2.5, 0.1), (4, 1.5, 0.1), (8, 1.25, 0.01)], TESTED)


def test_the_table_has_a_row_for_each_iteration():
    iterations, columns = LOG.aligned()
    assert iterations.tolist() == [0, 4, 8, 10]
    assert [*columns] == ["loss", "lr", "test_accuracy", "test_each[0]", "test_each[1]"]
    np.testing.assert_equal(columns["loss"], [2.5, 1.5, 1.25, np.nan])
    np.testing.assert_equal(columns["test_each[1]"], [0, np.nan, np.nan, 1])
    assert repr(LOG).splitlines() == [
        "iteration  loss    lr  test_accuracy  test_each[0]  test_each[1]",
        "        0   2.5   0.1           0.25           0.5             0",
        "        4   1.5   0.1",
        "        8  1.25  0.01",
        "       10                       0.75           0.5             1",
    ]
    root = ElementTree.fromstring(LOG._repr_html_())
    assert [cell.text for cell in root.iter("th")] == ["iteration", *columns]
    assert [cell.text for cell in root.findall("tbody/tr")[3]] == [
        "10", None, None, "0.75", "0.5", "1"
    ]  # fmt: skip


def test_tables_that_are_long_or_empty_or_have_an_iteration_twice():
    """A long one shows its ends; an iteration that is done twice has its later numbers."""
    rows = repr(Log([(i, 1.0, 0.1) for i in range(1000)], [])).splitlines()
    assert len(rows) == 22 and rows[10].split()[0] == "9" and rows[12].split()[0] == "990"
    assert rows[11].strip() == "..."
    log = Log([(0, 3.0, 0.1), (2, 2.0, 0.1), (0, 1.0, 0.1)], [])
    assert log["loss"].tolist() == [3, 2, 1] and log.aligned()[1]["loss"].tolist() == [1, 2]
    assert repr(Log([], [])) == "iteration  loss  lr"


def test_an_unknown_column_is_told():
    told = "no column in the log 'test_acuracy'; did you mean 'test_accuracy'"
    with pytest.raises(UnknownNameError, match=told):
        LOG["test_acuracy"]


def test_a_frame_is_the_table():
    if find_spec("pandas") is None:
        pytest.skip("needs pandas")
    frame = LOG.frame()
    iterations, columns = LOG.aligned()
    assert frame.index.name == "iteration" and frame.index.tolist() == iterations.tolist()
    for name, column in columns.items():
        np.testing.assert_equal(frame[name].to_numpy(), column)


def test_a_frame_without_pandas_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MinicaffeError, match="needs the package pandas: .*pip install"):
        LOG.frame()
