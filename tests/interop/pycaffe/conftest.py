"""Caffe's global switches: each test begins with them as they are at first."""

import pytest

import minicaffe.interop.pycaffe as caffe
from minicaffe.interop.pycaffe import mode


@pytest.fixture(autouse=True)
def switches(monkeypatch):
    for name in ("gpu", "number", "seed"):
        monkeypatch.setattr(mode._Mode, name, getattr(mode._Mode, name))
    monkeypatch.setattr(mode._Mode, "level", None)
    monkeypatch.delenv("GLOG_minloglevel", raising=False)


@pytest.fixture
def placed(device):
    """Nets are built on each device in turn, by pycaffe's switch."""
    if device.is_cuda:
        caffe.set_mode_gpu()
    return device


@pytest.fixture
def text_file(tmp_path):
    """A function that writes a text to a file without an ending, as scripts do, and gives its path."""

    def write(text: str, name: str = "net") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write
