"""debug_info line by line, beside Caffe's net.cpp written out by hand for one small net."""

import numpy as np

from minicaffe import Net, parse

NET = """
debug_info: true
layers:
  - {name: data, type: Input, top: [x, t], shape: [{dim: [2, 3]}, {dim: [2, 2]}]}
  - {name: one, type: InnerProduct, bottom: x, num_output: 2, bias_term: false, param: {name: w}}
  - {name: relu, type: ReLU, top: one}
  - {name: two, type: InnerProduct, bottom: x, num_output: 2, param: [{name: w}, {lr_mult: 0}]}
  - {name: sum, type: Eltwise, bottom: [one, two]}
  - {name: loss, type: EuclideanLoss, bottom: [sum, t]}
"""


def size(array):
    return f"{np.abs(array).mean():.6g}"


def test_the_lines_are_caffes():
    net = Net(parse(NET), device="cpu", dtype="float64")
    lines = []
    net.debug = lines.append
    random = np.random.default_rng(1)
    x, t, w, b = (random.normal(size=shape) for shape in ((2, 3), (2, 2), (2, 3), (2,)))
    net.params["one"][0].data, net.params["two"][1].data = w, b
    net.clear_param_diffs()
    net.blobs["x"].data, net.blobs["t"].data = x, t
    net.forward()
    one, two = x @ w.T, x @ w.T + b
    rest = np.maximum(one, 0) + two
    loss = ((rest - t) ** 2).sum() / 4
    assert lines == [
        f"    [Forward] Input x data: {size(x)}",
        f"    [Forward] Input t data: {size(t)}",
        f"    [Forward] Layer data, top blob x data: {size(x)}",
        f"    [Forward] Layer data, top blob t data: {size(t)}",
        f"    [Forward] Layer one, top blob one data: {size(one)}",
        f"    [Forward] Layer one, param blob w data: {size(w)}",
        f"    [Forward] Layer relu, top blob one data: {size(np.maximum(one, 0))}",
        f"    [Forward] Layer two, top blob two data: {size(two)}",
        f"    [Forward] Layer two, param blob w data: {size(w)}",
        f"    [Forward] Layer two, param blob 1 data: {size(b)}",
        f"    [Forward] Layer sum, top blob sum data: {size(rest)}",
        f"    [Forward] Layer loss, top blob loss data: {size(loss)}",
    ]
    lines.clear()
    net.backward()
    slope = (rest - t) / 2
    through = slope * (one > 0)
    mine, both = slope.T @ x, slope.T @ x + through.T @ x
    l1 = np.abs(w).sum() + np.abs(b).sum(), np.abs(both).sum()
    l2 = np.sqrt((w**2).sum() + (b**2).sum()), np.sqrt((both**2).sum())
    assert lines == [
        f"    [Backward] Layer loss, bottom blob sum diff: {size(slope)}",
        f"    [Backward] Layer sum, bottom blob one diff: {size(slope)}",
        f"    [Backward] Layer sum, bottom blob two diff: {size(slope)}",
        f"    [Backward] Layer two, param blob 0 diff: {size(mine)}",
        f"    [Backward] Layer relu, bottom blob one diff: {size(through)}",
        f"    [Backward] Layer one, param blob 0 diff: {size(both)}",
        "    [Backward] All net params (data, diff): "
        f"L1 norm = ({l1[0]:.6g}, {l1[1]:.6g}); L2 norm = ({l2[0]:.6g}, {l2[1]:.6g})",
    ]
