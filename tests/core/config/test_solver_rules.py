"""What the keys of schedules and stops ask of each other, each told with its place."""

import pytest
from kit import refusal

from minicaffe import parse

NET = """
layers:
  - {name: x, type: Input, shape: {dim: [2, 3]}}
solver:
  base_lr: 0.1
  max_iter: 10
"""
TESTED = "test_iter: 1, test_interval: 2"
PLATEAU = f"lr_policy: plateau, gamma: 0.5, patience: 2, {TESTED}"


def solver(keys):
    return parse(NET + "".join(f"  {key}\n" for key in keys.split(", ")), "m.yaml").solver


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("min_lr: 0.01", "7:11: solver: min_lr goes with lr_policy cosine, plateau or poly, not with 'fixed'"),
        ("lr_policy: cosine, min_lr: 0.2", "8:11: solver: min_lr: expected at most base_lr, 0.1, got 0.2"),
        ("lr_policy: cosine, gamma: 0.2", "8:10: solver: gamma goes with lr_policy step, multistep, exp, inv, sigmoid or plateau, not with 'cosine'"),
        ("warmup_start_lr: 0.2", "7:20: solver: warmup_start_lr needs the key 'warmup_iter', above 0"),
        ("warmup_iter: -1", "7:16: solver: warmup_iter: expected at least 0, got -1"),
        ("patience: 3", "7:13: solver: patience goes with lr_policy plateau, not with 'fixed'"),
        ("lr_policy: plateau, patience: 2, plateau: loss", "7:14: solver: lr_policy 'plateau' needs the key 'gamma'"),
        ("lr_policy: plateau, gamma: 0.5", "7:14: solver: lr_policy 'plateau' needs the key 'patience'"),
        (PLATEAU, "7:14: solver: lr_policy 'plateau' needs the key 'plateau' or 'best', a test output"),
        (PLATEAU.replace("gamma: 0.5", "gamma: 1"), "8:10: solver: gamma: expected below 1 for lr_policy 'plateau', got 1.0"),
        ("lr_policy: plateau, gamma: 0.5, patience: 2, plateau: loss", "7:14: solver: lr_policy 'plateau' needs the key 'test_interval', above 0"),
        (f"{PLATEAU}, plateau: loss, snapshot_format: HDF5", "7:14: solver: lr_policy 'plateau' needs snapshot_format NPZ: HDF5 has no place for what it remembers"),
        (f"{TESTED}, early_stopping: 3, snapshot_format: HDF5", "9:19: solver: early_stopping needs snapshot_format NPZ: HDF5 has no place for what it remembers"),
        ("best: accuracy", "7:9: solver: best needs the key 'test_interval'"),
        ("test_iter: 1, test_interval: 0, best: loss, early_stopping: 1", "10:19: solver: early_stopping needs the key 'test_interval', above 0"),
        (f"{TESTED}, best: loss, snapshot_format: BINARYPROTO", "9:9: solver: best needs snapshot_format NPZ: BINARYPROTO has no place for what it remembers"),
        ("ema_decay: 0.9, snapshot_format: BINARYPROTO", "7:14: solver: ema_decay needs snapshot_format NPZ: BINARYPROTO has no place for what it remembers"),
        ("ema_decay: 1", "7:14: solver: ema_decay: expected below 1, got 1.0"),
        (f"{TESTED}, best: 3", "9:9: solver: best: expected a word or a mapping, got 3"),
        (f"{TESTED}, best: {{ouput: loss}}", "9:10: solver: best: unknown key 'ouput'; did you mean 'output'?"),
        (f"{TESTED}, best: {{mode: max}}", "9:9: solver: best: missing key 'output' (its name; of several test nets led by their number, 1/accuracy)"),
        (f"{TESTED}, early_stopping: 0", "9:19: solver: early_stopping: expected at least 1, got 0"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(keys, told):
    assert refusal(solver, keys) == f"m.yaml:{told}"


def test_the_momentum_of_those_that_need_one():
    kinds = "SGD", "Adam", "AdamW", "AdaDelta"
    assert [solver(f"type: {kind}").momentum for kind in kinds] == [0, 0.9, 0.9, 0.95]
    assert solver("type: Adam, momentum: 0").momentum == 0
