"""What differs between the net of a file and the one it is loaded into."""

import numpy as np
import pytest
from kit import refusal, same_numbers

from minicaffe import CheckpointError, Net, parse
from minicaffe.core.net.weights import MOST, differences

BASE = """
name: net
layers:
  - {name: x, type: Input, shape: {dim: [2, 3, 8, 8]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3, include: TRAIN}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3, include: TEST}
  - {name: pool, type: Pooling, kernel_size: 2}
  - {name: ip, type: InnerProduct, num_output: 5}
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("dim: [2", "dim: [9", {"x": ["shape {dim: [2, 3, 8, 8]} there, {dim: [9, 3, 8, 8]} here"]}),
        ("kernel_size: 3, include: TEST", "kernel_size: 5, include: TEST",
         {"conv": ["kernel_size 3 there, 5 here"]}),
        ("kernel_size: 2", "kernel_size: 2, stride: 2", {"pool": ["stride not given there, 2 here"]}),
        ("type: Pooling, kernel_size: 2", "type: ReLU", {"pool": ["type Pooling there, ReLU here"]}),
        ("  - {name: pool, type: Pooling, kernel_size: 2}\n", "",
         {"ip": ["bottom pool there, conv here"], "pool": ["no such layer here"]}),
        ("name: ip,", "name: ip, bottom: pool,", {}),
        ("num_output: 5", "num_output: 5, param: {lr_mult: 0}",
         {"ip": ["param not given there, {lr_mult: 0} here"]}),
        ("name: net", "name: other", {}),
    ],
)  # fmt: skip
def test_what_the_text_says_otherwise(old, new, told):
    assert old in BASE
    assert differences(parse(BASE), parse(BASE.replace(old, new, 1))) == told


def test_a_file_of_another_net_is_refused_with_shapes_text_and_near_names(tmp_path):
    path = tmp_path / "a.npz"
    Net(parse(BASE), device="cpu").save(path)
    text = BASE.replace("num_output: 4", "num_output: 6").replace("name: ip", "name: ip1")
    net = Net(parse(text), "TEST", device="cpu")
    before = net.weights()
    assert refusal(net.load, path, error=CheckpointError) == (
        f"{path}: does not fit net 'net': conv__0 (file (4, 3, 3, 3), net (6, 3, 3, 3)), "
        "conv__1 (file (4,), net (6,)) (layer 'conv': num_output 4 there, 6 here); "
        "ip1__0, ip1__1 missing (the file has 'ip') "
        "(layer 'ip1': no such layer there); ip__0, ip__1 unused (layer 'ip': no such layer here)"
    )
    same_numbers(net.weights(), before)


def test_what_cannot_be_read_of_the_text_is_left_out():
    net = Net(parse(BASE), device="cpu")
    given = {**net.weights(), "@model": np.frombuffer(b"layers: [", np.uint8)}
    assert str(net.load(given)) == "4 loaded"
    del given["ip__1"]
    with pytest.raises(CheckpointError, match="^weights: does not fit net 'net': ip__1 missing$"):
        net.load(given)


def test_the_first_few_are_told():
    layers = [{"name": f"ip{i}", "type": "InnerProduct", "num_output": 2} for i in range(30)]
    x = {"name": "x", "type": "Input", "shape": {"dim": [1, 2]}}
    net = Net({"name": "deep", "layers": [x, *layers]}, device="cpu")
    told = refusal(net.load, {"ip0__0": np.ones((2, 2))}, error=CheckpointError)
    parts = told.partition("'deep': ")[2].split("; ")
    assert parts[1] == "ip1__0, ip1__1 missing" and parts[-1] == f"and {30 - MOST} more"
    assert len(parts) == MOST + 1
