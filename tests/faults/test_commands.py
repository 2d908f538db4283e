"""Commands that write files, on a disk on which one call after the other fails.

Whatever fails: each file under a final name is the old one or the new one, whole; one line tells of it, with
exit code 2, or all was written; nothing temporary is left, unless it could not be removed; and the same command
on a sound disk writes the same bytes. The default suite tries some calls of each command; `--long` all.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from faults.disk import Fault, command, faults_of, full, noted

from minicaffe import Net
from minicaffe.tools.data import png

NET = """
name: tiny
layers:
  - {name: data, type: Input, shape: {dim: [1, 3, 8, 8]}}
  - {name: conv, type: Convolution, num_output: 4, kernel_size: 3}
  - {name: relu, type: ReLU, top: conv}
  - {name: ip, type: InnerProduct, num_output: 3}
  - {name: prob, type: Softmax}
"""
# A command, and what it writes; its files lie in the current folder
COMMANDS = {
    "convert net.yaml net.prototxt --force": ["net.prototxt"],
    "convert net.npz net.caffemodel --force": ["net.caffemodel"],
    "convert net.npz net.caffemodel.h5 --force": ["net.caffemodel.h5"],
    "convert net.npz net.safetensors --force": ["net.safetensors"],
    "convert net.yaml folded.prototxt --fold --weights net.npz --force": ["folded.prototxt", "folded.caffemodel"],
    "export net.yaml --weights net.npz --onnx out.onnx --force": ["out.onnx", "out.json"],
    "export net.yaml --weights net.npz --torch out.safetensors --force": ["out.safetensors"],
    "draw net.yaml -o net.svg": ["net.svg"],
    "mean pictures -o mean.npy": ["mean.npy"],
    "convert-images pictures set.npz": ["set.npz"],
    "convert-images pictures set_lmdb": [],
    "calibrate net.yaml --weights net.npz --data pictures --tensorrt net.cache --force": ["net.cache"],
    "import net.onnx --out imported.prototxt --force": ["imported.prototxt", "imported.caffemodel"],
}  # fmt: skip
TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
OLD = b"what was there before"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with all that the commands read."""
    pytest.importorskip("onnx")
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "net.yaml").write_text(NET)
    Net(folder / "net.yaml", "TEST", device="cpu").save(folder / "net.npz")
    chance = np.random.default_rng(0)
    for kind in ("cats", "dogs"):
        (folder / "pictures" / kind).mkdir(parents=True)
        for i in range(3):
            data = png.encode(chance.integers(0, 256, (8, 8, 3), np.uint8))
            (folder / "pictures" / kind / f"{i}.png").write_bytes(data)
    code, told, _ = command(
        folder, ["export", "net.yaml", "--weights", "net.npz", "--onnx", "net.onnx"]
    )
    assert code == 0, told
    return folder


def files(folder: Path) -> dict[str, object]:
    """What a folder holds."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): content(path.read_bytes()) for path in paths}


def content(data: bytes) -> object:
    """A file's bytes; of .safetensors its header as JSON, whose keys that library writes in any order."""
    if data[8:9] != b"{":
        return data
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


@pytest.mark.parametrize("line", COMMANDS)
def test_each_call_fails_in_turn(tmp_path, inputs, request, line):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    shutil.copytree(inputs, straight)
    code, told, disk = command(straight, line.split())
    assert code == 0, told
    wanted, written = files(straight), COMMANDS[line]
    assert disk.calls and set(written) <= set(wanted)
    wrong: list[str] = []
    for k, error in faults_of(disk.calls, None if request.config.getoption("--long") else 4):
        shutil.copytree(inputs, broken)
        for name in written:
            (broken / name).write_bytes(OLD)
        with noted(wrong, disk, k, error):
            code, *_ = command(broken, line.split(), {k: Fault(error)})
            after = files(broken)
            for name in written:
                assert after[name] in ((wanted[name],) if code == 0 else (wanted[name], OLD)), name
            left = [name for name in after if TEMPORARY.fullmatch(Path(name).name)]
            assert not left or disk.calls[k - 1].kind in ("unlink", "rmdir"), left
            if written or code == 2:  # else a folder that must not be there
                assert command(broken, line.split())[0] == 0
                assert all(files(broken)[name] == wanted[name] for name in written)
        shutil.rmtree(broken)
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of Linux")
@pytest.mark.parametrize("most", [0, 100, 5_000, 9_000])
def test_a_full_disk_beneath_python(tmp_path, inputs, most):
    """LMDB writes for itself: there is a whole database, or none."""
    pytest.importorskip("lmdb")
    folder = tmp_path / "here"
    shutil.copytree(inputs, folder)
    words = ["convert-images", "pictures", "set_lmdb"]
    with full(most):
        code, told, _ = command(folder, words)
    assert code == 2 and "set_lmdb: cannot be written" in told
    assert files(folder) == files(inputs)
    assert command(folder, words)[0] == 0
