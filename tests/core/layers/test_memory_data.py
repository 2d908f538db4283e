"""MemoryData: batches of arrays that are given, cycled through as by Caffe."""

import copy

import caffe_cases as cases
import kit
import numpy as np
import pytest

from minicaffe import DataError, Net, ShapeError, Solver, parse

TEXT = """
layers:
  - {name: mem, type: MemoryData, top: [data, label], batch_size: 2, channels: 1, height: 2, width: 3}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 4}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
solver: {base_lr: 0.1, momentum: 0.9, max_iter: 9, iter_size: 2, snapshot_after_train: false}
"""
RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.normal(size=(6, 1, 2, 3)), np.array([0, 1, 2, 3, 2, 1])


def labels_of(net, passes, **run):
    """The labels of the passes to come."""
    seen = []
    for _ in range(passes):
        net.forward(**run)
        seen += net.device.to_host(net.blobs["label"].data).ravel().tolist()
    return seen


def test_caffes_cycle(device):
    case = cases.load("MemoryData_cycle")
    net = Net(cases.as_model(cases.from_json(case["net_json"])), device=device)
    net.layers["d"].reset(case["x"], case["y"])
    for k in range(5):
        net.forward()
        for name in ("data", "label"):
            cases.assert_close(device.to_host(net.blobs[name].data), case[name][k], f"{name} {k}")


def test_arrays_are_copied_cast_and_replaced(device):
    net = Net(parse(TEXT), device=device)
    mem, images = net.layers["mem"], IMAGES.copy()
    mem.reset(images, LABELS.reshape(6, 1, 1, 1))
    images[:] = 7
    assert labels_of(net, 4) == [0, 1, 2, 3, 2, 1, 0, 1]
    got = device.to_host(net.blobs["data"].data)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, IMAGES[:2].astype(np.float32))
    mem.reset(IMAGES[2:], LABELS[2:])  # from its first entry, whatever the pass
    assert labels_of(net, 3) == [2, 3, 2, 1, 2, 3]
    net.reshape(data=(4, 1, 2, 3), label=(4, 1, 1, 1))
    assert net.blobs["loss"].shape == () and net.blobs["data"].shape == (4, 1, 2, 3)
    assert labels_of(net, 2) == [2, 3, 2, 1] * 2
    net.context.passes = 0  # as where a test begins
    assert labels_of(net, 1) == [2, 3, 2, 1]


def test_a_pass_in_pieces_has_one_batch_and_given_blobs_none(device):
    net = Net(parse(TEXT), device=device)
    net.forward(data=IMAGES[:2], label=np.array([3, 3]).reshape(2, 1, 1, 1))  # needs no arrays
    net.layers["mem"].reset(IMAGES, LABELS)
    assert labels_of(net, 2, end="ip") == [0, 1, 0, 1]


def test_a_solver_goes_on_where_it_was(device, here):

    def solver():
        made = Solver(parse(TEXT), device=device)
        made.net.layers["mem"].reset(IMAGES, LABELS)
        return made

    whole, first, second = solver(), solver(), solver()
    whole.step(5)
    first.step(2)
    second.restore(first.snapshot())
    second.step(3)
    kit.same_numbers(second.net.weights(), whole.net.weights())


def test_where_nothing_was_given():
    said = r"layer 'mem' \(MemoryData\): no arrays were given: net.layers\['mem'\].reset\(images, labels\)"
    net = Net(parse(TEXT), device="cpu")
    with pytest.raises(DataError, match=said):
        net.forward()
    net.layers["mem"].reset(IMAGES, LABELS)
    net.forward()
    with pytest.raises(DataError, match=said):
        copy.deepcopy(net).forward()


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        ((6, 1, 3, 2), (6,), "mem: images: expected (n, 1, 2, 3), got (6, 1, 3, 2)"),
        ((1, 2, 3), (1,), "mem: images: expected (n, 1, 2, 3), got (1, 2, 3)"),
        ((0, 1, 2, 3), (0,), "got (0, 1, 2, 3)"),
        ((6, 1, 2, 3), (4,), "mem: labels: expected (6,), one an image, got (4,)"),
        ((6, 1, 2, 3), (6, 2), "got (6, 2)"),
        ((5, 1, 2, 3), (5,), "mem: 5 images are no multiple of a batch of 2"),
    ],
)
def test_arrays_that_do_not_fit_leave_those_before(images, labels, message):
    net = Net(parse(TEXT), device="cpu")
    net.layers["mem"].reset(IMAGES, LABELS)
    said = kit.error_line(net.layers["mem"].reset, np.ones(images), np.ones(labels))
    assert said.startswith("ShapeError: ") and message in said
    assert labels_of(net, 1) == [0, 1]


def test_batches_that_do_not_fit():
    net = Net(parse(TEXT), device="cpu")
    net.layers["mem"].reset(IMAGES, LABELS)
    with pytest.raises(ShapeError, match="6 images are no multiple of a batch of 4"):
        net.reshape(data=(4, 1, 2, 3), label=(4, 1, 1, 1))
    with pytest.raises(ShapeError, match=r"data: expected \(2, 1, 2, 3\) but for the first number"):
        net.reshape(data=(2, 1, 3, 3))
    assert labels_of(net, 1) == [0, 1]
