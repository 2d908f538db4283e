"""An Input on the command line, which nothing fills there."""

import re

import pytest

FILLED_BY = "in Python, net.blobs['data'].data is filled before each step"
NET = """
layers:
  - {name: data, type: Input, shape: {dim: [2, 3]}, include: {phase: TRAIN, not_stage: read}}
  - {name: data, type: DummyData, shape: {dim: [2, 3]}, include: {phase: TRAIN, stage: read}}
  - {name: data, type: DummyData, shape: {dim: [2, 3]}, include: TEST}
  - {name: ip, type: InnerProduct, bottom: data, num_output: 2}
  - {name: loss, type: Reduction, bottom: ip, loss_weight: 1}
solver: {base_lr: 0.1, max_iter: 2, snapshot_after_train: false, snapshot_prefix: net}
"""


@pytest.mark.parametrize(
    ("words", "model", "hint"),
    [
        ("train models/alexnet.yaml", "models/alexnet.yaml", True),
        ("test models/resnet50.yaml --weights w.npz", "models/resnet50.yaml", True),
        ("train models/alexnet.yaml --stage lbdm", "models/alexnet.yaml", True),
        ("train models/lstm.yaml", "models/lstm.yaml", False),
    ],
)  # fmt: skip
def test_an_input_is_refused_and_the_stage_named_that_does_without(cli, folder, words, model, hint):
    ran = cli(*words.split())
    stage = "with --stage lmdb the net reads a data set instead; " if hint else ""
    wanted = f"layer 'data' (Input): nothing on the command line fills an Input; {stage}{FILLED_BY}"
    assert ran.code == 2
    assert re.fullmatch(rf"minicaffe: {model}:\d+:5: {re.escape(wanted)}\n", ran.err), ran.err


def test_the_stage_that_is_named_trains_and_a_phase_without_inputs_is_tested(cli, folder):
    (folder / "net.yaml").write_text(NET)
    ran = cli("train", "net.yaml")
    assert ran.code == 2 and "with --stage read the net reads a data set instead" in ran.err
    train = ["--stage", "read", "--device", "cpu", "--set", "solver.snapshot_after_train=true"]
    assert cli("train", "net.yaml", *train).code == 0
    assert cli("test", "net.yaml", "--weights", "net_iter_2.npz", "--device", "cpu").code == 0


def test_a_net_of_pictures_may_be_trained_on_ones_own(mistake, folder):
    (folder / "net.yaml").write_text(
        "layers:\n  - {name: x, type: Input, shape: {dim: [1, 3, 8, 8]}}\n"
        "  - {name: loss, type: Reduction, loss_weight: 1}\nsolver: {base_lr: 0.1, max_iter: 2}\n"
    )
    told = mistake("train", "net.yaml")
    assert "; with --data SOURCE the net is trained on your own data; in Python" in told


def test_databases_that_are_not_there_are_told_of(cli, folder):
    ran = cli("train", "models/caffenet.yaml", "--stage", "lmdb", "--device", "cpu")
    assert ran.code == 2
    assert (
        "layer 'data' (Data): backend LMDB: there is no LMDB database; looked in examples/"
        in ran.err
    )
