"""The compiled loops: used where they can be, announced when they are compiled, kept where they can be."""

import errno
import functools
import hashlib
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from minicaffe import __version__
from minicaffe.backends import cpu as module
from minicaffe.backends.cpu import loops
from minicaffe.storage import caches

ROOT = Path(__file__).parents[3]
SCRIPT = """
import logging, sys
import numpy as np
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from minicaffe.backends.cpu import loops
mean = np.zeros(1)
loops("elementwise", np.float64).average(np.ones(1), np.full(1, 0.5), np.zeros(1, bool), mean, 0, 1)
print(mean)
"""


def run(words, cwd=ROOT, **environment):
    """What a process says, line by line, with compiled loops."""
    env = {**os.environ, "MINICAFFE_NUM_THREADS": "2", **environment}
    env.pop("MINICAFFE_NUMBA", None)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run([sys.executable, *words], env=env, cwd=cwd, **streams)
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


def test_compiling_is_announced_once_and_not_when_found_on_disk(tmp_path):
    pytest.importorskip("numba")
    told, result = run(["-c", SCRIPT], MINICAFFE_CACHE=str(tmp_path))
    assert told == "compiling loops for this CPU (once; the next run finds them on disk) ..."
    assert result == "[0.5]"
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert file.name.startswith("elementwise.average-")
    assert run(["-c", SCRIPT], MINICAFFE_CACHE=str(tmp_path)) == [result]


def test_loops_kept_by_several_processes_are_not_taken_for_each_other(tmp_path):
    """In machine code, what each process compiles first must not be called alike."""
    pytest.importorskip("numba")
    script = (
        "import sys\n"
        "import numpy as np\n"
        "from minicaffe.core.ops import arrays\n"
        "for name, dtype in (word.split() for word in sys.argv[1:]):\n"
        "    x = np.array([-2.0, 3.0], dtype)\n"
        "    print(*getattr(arrays, name)(x, 1 + x, np.empty_like(x)))\n"
    )
    right = {"plus f4": "-3.0 7.0", "multiply f4": "2.0 12.0"}
    for word, y in right.items():
        assert run(["-c", script, word], MINICAFFE_CACHE=str(tmp_path))[-1] == y
    assert run(["-c", script, *right], MINICAFFE_CACHE=str(tmp_path)) == list(right.values())


@pytest.fixture
def package(tmp_path):
    """A copy of the package: its folder."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "minicaffe", tmp_path / "copy" / "minicaffe", ignore=ignore)
    return tmp_path / "copy"


def test_what_is_on_disk_is_of_no_use_once_a_loop_it_calls_has_changed(package, tmp_path):
    """implicit's loops call im2col's, in another file, which Numba does not look at."""
    pytest.importorskip("numba")
    script = (
        "import numpy as np\n"
        "from minicaffe.core.ops.conv import ENGINES\n"
        "from minicaffe.core.ops.geometry import ConvGeometry, Window\n"
        "g, op = ConvGeometry(1, 2, (6, 6), 3, Window((3, 3))), ENGINES['implicit']\n"
        "x, w, y = (np.ones(s, 'f4') for s in (g.x_shape, g.weight_shape, g.y_shape))\n"
        "print(op.forward(x, w, None, g, y, np.empty(2 * op.workspace(g, 1000), 'f4')).max())"
    )
    where = {"PYTHONPATH": str(package), "MINICAFFE_CACHE": str(tmp_path / "cache")}

    def largest():
        return float(run(["-c", script], tmp_path, **where)[-1])

    assert largest() == 18
    source = package / "minicaffe" / "backends" / "cpu" / "kernels" / "im2col.py"
    plain = "col[at(place + q)] = x[at(here + q)]"
    source.write_text(source.read_text().replace(plain, f"{plain} * 2"))
    assert largest() == 36


@pytest.fixture
def nowhere(package):
    """An environment in which not even root can keep anything."""
    (package / "minicaffe" / "backends" / "cpu" / "__pycache__").touch()
    names = ("HOME", "XDG_CACHE_HOME", "MINICAFFE_CACHE")
    return {"PYTHONPATH": str(package), **dict.fromkeys(names, f"{os.devnull}/home")}


def test_where_nothing_can_be_kept_loops_are_compiled_for_the_process(nowhere, tmp_path):
    pytest.importorskip("numba")
    told, result = run(["-c", SCRIPT], tmp_path, **nowhere)
    assert told == (
        f"compiling loops for this CPU (for this run only: {caches.obstacle(home(nowhere))}) ..."
    )
    assert result == "[0.5]"


def home(environment):
    """The folder of the loops there."""
    pytest.importorskip("numba")
    from minicaffe.backends.cpu import compile_cache as kept

    return Path(environment["MINICAFFE_CACHE"], "loops", kept.folder().name)


def test_doctor_where_nothing_can_be_kept(nowhere, tmp_path):
    lines = run(["-m", "minicaffe", "doctor"], tmp_path, **nowhere)
    (told,) = [line for line in lines if line.startswith("cache ")]
    assert told.split(maxsplit=1)[1] == f"{caches.obstacle(Path(os.devnull, 'home'))}"


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """The module that keeps loops, as in a new process with an empty cache folder."""
    pytest.importorskip("numba")
    from minicaffe.backends.cpu import compile_cache as kept

    monkeypatch.setenv("MINICAFFE_CACHE", str(tmp_path))
    for name in ("folder", "_can_keep"):
        monkeypatch.setattr(kept, name, functools.cache(getattr(kept, name).__wrapped__))
    monkeypatch.setattr(kept, "_told", threading.Lock())
    return kept


def files(kept):
    """Those of the loops here; a thread of a crew may keep one of its own meanwhile."""
    return sorted(kept.folder().glob("test_compile_cache.*"))


def found(function=double):
    """Whether a loop of a new process finds its code on disk; it gives what it should either way."""
    loop = module.compiled(function)
    assert loop(4) == function(4)
    return bool(sum(loop.stats.cache_hits.values()))


DAMAGES = {
    "empty": lambda whole: b"",
    "one byte": lambda whole: whole[:1],
    "the digest alone": lambda whole: whole[:32],
    "half": lambda whole: whole[: len(whole) // 2],
    "all but a byte": lambda whole: whole[:-1],
    "more": lambda whole: whole + b"\0",
    "noise": lambda whole: np.random.default_rng(1).bytes(len(whole)),
    "noise behind the digest": lambda whole: whole[:32] + bytes(reversed(whole[32:])),
    "a bit of the code": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    "a pickle": lambda whole: pickle.dumps({"something": "else"}),
    "a pickle behind the old digest": lambda whole: whole[:32] + pickle.dumps([1, 2]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_anew(kept, damage, caplog):
    assert not found()
    assert found()
    (file,) = files(kept)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    caplog.clear()
    assert not found()
    assert found()
    assert files(kept) == [file]
    assert len(caplog.messages) <= 1


@pytest.mark.parametrize(
    "content", [b"", b"noise", pickle.dumps([1, 2]), pickle.dumps((None,) * 9)]
)
def test_what_numba_cannot_load_is_made_anew(kept, content):
    """Whole, as the digest says, but not what Numba expects."""
    assert not found()
    (file,) = files(kept)
    key = kept.Kept(double)._file((kept.numba.int64,), context())[1]
    assert not file.read_bytes().startswith(kept.digest(key, content))
    file.write_bytes(kept.digest(key, content) + content)
    assert not found()
    assert found()


@pytest.mark.parametrize("known, callback", [(0, "getbuffer"), (0, "notify"), (1, "getbuffer")])
def test_ctrl_c_waits_where_llvm_calls_python(kept, known, callback):
    """An exception would be lost there, and LLVM would go on without the code that it asked for."""

    def press(frame, event, _):
        if event == "call" and frame.f_code.co_name == f"_raw_object_cache_{callback}":
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    assert not known or not found()
    loop = module.compiled(double)
    sys.setprofile(press)
    with pytest.raises(KeyboardInterrupt):
        loop(4)
    assert sys.getprofile() is None and loop(4) == 8


def context():
    from numba.core.registry import cpu_target

    return cpu_target.target_context


def test_the_file_of_another_loop_is_not_taken(kept):
    assert not found(double)
    assert not found(triple)
    one, other = files(kept)
    shutil.copy(one, other)
    assert not found(triple)
    assert found(triple)


def test_another_machine_has_its_own_files(kept):
    def cpu(*named):
        codegen = SimpleNamespace(magic_tuple=lambda: ("x86_64-unknown-linux-gnu", *named))
        return SimpleNamespace(codegen=lambda: codegen)

    loop = kept.Kept(double)
    machines = [cpu("znver3", "+avx2"), cpu("znver3", ""), cpu("skylake", "+avx2")]
    assert len({loop._file((kept.numba.int64,), machine)[0] for machine in machines}) == 3


def test_another_users_file_is_not_taken(kept, monkeypatch):
    """What is in it would be executed."""
    assert not found()
    with monkeypatch.context() as other:
        other.setattr(os, "fstat", lambda _: SimpleNamespace(st_uid=os.geteuid() + 1))
        assert not found()
    assert found()


def test_a_full_disk_is_told_once(kept, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert not found(double)
    assert not found(triple)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert caplog.messages[1] == (
        f"compiled loops are not kept for the next run: {kept.folder()} cannot be written:"
        " No space left on device"
    )
    assert files(kept) == []


def test_loops_of_old_sources_are_removed(kept):
    states = [kept.folder().parent / f"state {i}" for i in range(6)]
    for age, state in enumerate(states):
        state.mkdir(parents=True)
        (state / "loop").touch()
        os.utime(state, (1000 - age, 1000 - age))
    assert not found()
    assert set(kept.folder().parent.iterdir()) == {kept.folder(), *states[:3]}


def test_a_digest_of_all_sources_names_the_folder(kept):
    package = ROOT / "minicaffe" / "backends"
    files = [path for path in (package / "cpu").rglob("*.py") if path.parent.name != "conv"]
    sources = [path for path in files if path.stem not in kept.ON_THE_HOST]
    assert not any(
        "import numba" in (package / "cpu" / f"{name}.py").read_text() for name in kept.ON_THE_HOST
    )
    sources = sorted([*sources, package / "formulas.py"])
    content = b"".join(path.read_bytes() for path in sources)
    digest = hashlib.blake2b(content, digest_size=32).hexdigest()
    assert kept.folder().name == f"{__version__}-{digest[:16]}"


def test_loops_are_for_floats_of_32_and_64_bits(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(module, "available", lambda: True)
    for dtype in (np.float32, np.float64, np.dtype("f")):
        assert loops("im2col", dtype).im2col is not None
    for dtype in (np.float16, np.int32, np.complex64, bool):
        assert loops("im2col", dtype) is None


def test_no_loops_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delenv("MINICAFFE_NUMBA", raising=False)
    assert not module.available.__wrapped__()
    monkeypatch.setattr(module, "available", module.available.__wrapped__)
    assert loops("im2col", np.float32) is None


def test_no_loops_where_they_are_refused(monkeypatch):
    monkeypatch.setenv("MINICAFFE_NUMBA", "0")
    assert not module.available.__wrapped__()


ORDER = """
import hashlib, sys
import numpy as np
from minicaffe import Net, parse
x = np.random.default_rng(0).normal(size=(64, 10)) * 3
text = "layers:\\n  - {name: x, type: Input, shape: {dim: [64, 10]}}\\n  - {name: y, type: KIND, bottom: x}"
for kind in sys.argv[1:]:
    net = Net(parse(text.replace("KIND", kind)), device="cpu")
    y = net.forward(x=x)["y"].copy()
print(hashlib.md5(y.tobytes()).hexdigest())
"""


def test_bits_do_not_depend_on_which_loop_was_compiled_first(tmp_path):
    """An inlined part took the flags of the loop that was compiled first, and kept them on disk."""
    pytest.importorskip("numba")
    digests = set()
    for number, kinds in enumerate((["Softmax"], ["Sigmoid", "Softmax"])):
        digests.add(run(["-c", ORDER, *kinds], MINICAFFE_CACHE=str(tmp_path / str(number)))[-1])
    assert len(digests) == 1


def test_a_process_in_which_numba_does_not_compile_computes_by_numpy(tmp_path):
    pytest.importorskip("numba")
    script = ORDER + "from minicaffe.backends.cpu import available\nprint(available())"
    words = ["-c", script, "Softmax"]
    assert run(words, NUMBA_DISABLE_JIT="1", MINICAFFE_CACHE=str(tmp_path))[-1] == "False"
    assert not any(tmp_path.iterdir())
