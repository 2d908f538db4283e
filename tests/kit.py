"""What tests of several folders need: arrays of archives, refusals, layers of Caffe's text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minicaffe import MinicaffeError, Net, parse

CPU = ("--device", "cpu")


def arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def same_arrays(first: str | Path, second: str | Path) -> None:
    """Two snapshots are of the same bits, whatever their commands were (@model)."""
    one, other = arrays(first), arrays(second)
    assert set(one) == set(other)
    for name in set(one) - {"@model"}:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def onnx_runs(path: str | Path, **given) -> dict[str, np.ndarray]:
    """What onnxruntime computes from a file, by the outputs' names."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    inputs = {name: np.asarray(array, np.float32) for name, array in given.items()}
    return dict(zip(names, session.run(names, inputs), strict=True))


def refusal(work, *args, error=MinicaffeError, **more) -> str:
    """The message of the error that work(*args, **more) raises."""
    with pytest.raises(error) as caught:
        work(*args, **more)
    return str(caught.value)


def layer_text(kind: str, rest: str = "", name: str = "l", bottom: str = "x", top: str = "") -> str:
    """A layer in Caffe's text, which writes the blob of its own name."""
    bottoms = "".join(f' bottom: "{one}"' for one in bottom.split())
    return f'layer {{ name: "{name}" type: "{kind}"{bottoms} top: "{top or name}" {rest} }}\n'


def single(kind, keys, bottoms, device="cpu", phase="TRAIN", dtype="float64", tops="[it]") -> Net:
    """A net of a layer `it` of inputs b0, b1, ..., after its forward pass."""
    names = [f"b{i}" for i in range(len(bottoms))]
    dims = ", ".join(f"{{dim: {list(np.shape(bottom))}}}" for bottom in bottoms)
    text = (
        f"force_backward: true\nlayers:\n"
        f"  - {{name: data, type: Input, top: [{', '.join(names)}], shape: [{dims}]}}\n"
        f"  - {{name: it, type: {kind}, bottom: [{', '.join(names)}], top: {tops}, {keys}}}\n"
    )
    made = Net(parse(text), phase, device=device, dtype=dtype)
    made.forward(**dict(zip(names, bottoms, strict=True)))
    return made


def host(made: Net, array) -> np.ndarray:
    """An array of the net's device, in float64."""
    return np.array(made.device.to_host(array), np.float64)


def near(got, wanted, dtype="float64") -> None:
    """Both are of one shape, and alike to what is rounded in `dtype`."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape
    rtol = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}[dtype]
    np.testing.assert_allclose(got, wanted, atol=rtol * (np.abs(wanted).max(initial=0) + 1e-30))


def check(made: Net, **wanted) -> None:
    """The net's tops hold these numbers, and its inputs b0, b1, ... these gradients."""
    for name, numbers in wanted.items():
        blob = made.blobs[name]
        near(host(made, blob.diff if name[1:].isdigit() else blob.data), numbers)
