"""The compiled loops: used where they can be, announced when they are compiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minicaffe.ops import loops as module
from minicaffe.ops.loops import loops

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
import logging, sys
import numpy as np
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from minicaffe.ops.geometry import Window
from minicaffe.ops.im2col import col2im, im2col
from minicaffe.ops.loops import loops
assert loops("im2col", np.float32) is not None
x, window = np.ones((3, 1, 3, 3), np.float32), Window((2, 2))
columns = im2col(x, window, np.empty((3, 4, 4), np.float32))
print(col2im(columns, window, x)[2, 0].astype(int).tolist())
"""


def run(folder):
    """What the script says, line by line, with compiled loops kept in a folder."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "MINICAFFE_NUM_THREADS": "2"}
    env.pop("MINICAFFE_NUMBA", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_compiling_is_announced_once_and_not_when_found_on_disk(tmp_path):
    pytest.importorskip("numba")
    told, result = run(tmp_path)
    assert told.startswith("compiling loops for this CPU")
    assert result == "[[1, 2, 1], [2, 4, 2], [1, 2, 1]]"
    assert any(tmp_path.rglob("*.nbc"))
    assert run(tmp_path) == [result]


def test_what_is_on_disk_is_of_no_use_once_a_loop_it_calls_has_changed(tmp_path):
    """implicit's loops call im2col's, in another file, which Numba does not look at."""
    pytest.importorskip("numba")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "minicaffe", tmp_path / "minicaffe", ignore=ignore)
    script = (
        "import numpy as np\n"
        "from minicaffe.ops.conv import STRATEGIES\n"
        "from minicaffe.ops.geometry import ConvGeometry, Window\n"
        "g, op = ConvGeometry(1, 2, (6, 6), 3, Window((3, 3))), STRATEGIES['implicit']\n"
        "x, w, y = (np.ones(s, 'f4') for s in (g.x_shape, g.weight_shape, g.y_shape))\n"
        "print(op.forward(x, w, None, g, y, np.empty(2 * op.workspace(g, 1000), 'f4')).max())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("MINICAFFE_NUMBA", None)

    def largest():
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return float(done.stdout)

    assert largest() == 18
    source = tmp_path / "minicaffe" / "ops" / "loops" / "im2col.py"
    plain = "col[at(there + q)] = x[at(here + q)]"
    source.write_text(source.read_text().replace(plain, f"{plain} * 2"))
    assert largest() == 36


def test_loops_are_for_floats_of_32_and_64_bits(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(module, "available", lambda: True)
    for dtype in (np.float32, np.float64, np.dtype("f")):
        assert loops("im2col", dtype).im2col is not None
    for dtype in (np.float16, np.int32, np.complex64, bool):
        assert loops("im2col", dtype) is None


def test_no_loops_without_numba(monkeypatch):
    for name in ("numba", "numba.core"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("MINICAFFE_NUMBA", raising=False)
    assert not module.available.__wrapped__()
    monkeypatch.setattr(module, "available", module.available.__wrapped__)
    assert loops("im2col", np.float32) is None


def test_no_loops_where_they_are_refused(monkeypatch):
    monkeypatch.setenv("MINICAFFE_NUMBA", "0")
    assert not module.available.__wrapped__()
