"""Arrays that layers read from files: .npy, .binaryproto, and what is neither."""

import json

import caffe_cases
import numpy as np
import pytest
from kit import refusal

from minicaffe.storage.wire import read_array

MATRIX = caffe_cases.FIXTURES / "infogain_H.binaryproto"


def test_one_that_caffe_wrote():
    case = caffe_cases.load("InfogainLoss_H_source_file")
    wanted = json.loads(str(case["notes"]).partition(": ")[2])
    got = read_array(MATRIX)
    assert got.shape == (1, 1, 5, 5) and got.flags.aligned
    np.testing.assert_array_equal(got[0, 0], np.float32(wanted))


def test_a_file_is_known_by_its_beginning_where_its_name_tells_nothing(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3.0))
    (tmp_path / "a.npy").rename(tmp_path / "mean")
    np.testing.assert_array_equal(read_array(tmp_path / "mean"), np.arange(3))
    (tmp_path / "matrix").write_bytes(MATRIX.read_bytes())
    np.testing.assert_array_equal(read_array(tmp_path / "matrix"), read_array(MATRIX))


@pytest.mark.parametrize(
    ("name", "said"),
    [("a.npy", "npy"), ("a.onnx", "ONNX"), ("a.binaryproto", "binaryproto"), ("a", "binaryproto")],
)
def test_what_is_none_is_refused_in_one_line(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"x" * 9)
    told = refusal(read_array, tmp_path / name)
    assert said in told and "\n" not in told and name in told


@pytest.mark.parametrize("name", ["mean", "a.npy", "a.binaryproto", "."])
def test_what_is_no_file_is_refused_in_one_line(tmp_path, name):
    told = refusal(read_array, tmp_path / name)
    assert "\n" not in told and str(tmp_path / name) in told
