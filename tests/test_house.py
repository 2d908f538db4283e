"""The house's rules that a machine can check: imports, packaging, files, start-up."""

import ast
import collections
import configparser
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minicaffe.backends import cpu

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minicaffe"
SOURCES = sorted(PACKAGE.rglob("*.py"))
# From the bottom to the top: a file imports only from its own floor or from those below it.
FLOORS = [
    {"errors", "_moved"},
    {"storage"},
    # The gate, through which the core finds backends
    {"backends/aligned", "backends/formulas", "backends/load", "backends/thread_state"},
    {"backends/launch_listener"},
    {"backends/device"},
    {"backends/dispatch", "backends/step_constants"},
    # The core
    {"core/config", "core/interrupt", "core/plugins"},
    {"core/communicator"},
    {"core/ops"},
    {"core/layers"},
    {"core/gradient_check", "core/net"},
    {"core/solver"},
    # The backends, without which the core computes all the same
    {"backends/cpu"},
    {"backends/cuda"},
    {"backends/replay"},
    # What a person needs
    {"tools/data", "tools/im2col"},
    {"tools/folding", "tools/inference", "tools/parallel", "tools/training", "tools/visualize"},
    {"tools/deploy"},
    {"tools/own_data"},
    {"tools/report"},
    {"tools/hooks"},
    # Other people's formats
    {"interop/caffe", "interop/chips", "interop/onnx", "interop/torch"},
    {"interop/pycaffe"},
    {"cli"},
    {"__init__", "__main__"},
]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
RINGS = ("errors", "storage", "backends", "core", "tools", "interop", "cli")  # by `ls`


def floor(module: str) -> int:
    """The floor of a file or a name, `core/net/graph`: by its first two parts or its first one."""
    first, second = (*module.split("/"), "")[:2]
    return next(i for i, rooms in enumerate(FLOORS) if rooms & {first, f"{first}/{second}"})


def inside(path: Path) -> str:
    """A file's place in the package, `core/net/graph`."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def ring(path: Path) -> str:
    return inside(path).partition("/")[0]


def imports(path: Path) -> set[str]:
    """The modules a file imports, for types too, whole names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    """So the core imports neither tools nor interop, nor loops, kernels and replays."""
    if path.name == "__init__.py" and path.parent.name in RINGS[:-1]:
        assert not imports(path), "a ring's own file only says what it is"
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "minicaffe" and name not in ("minicaffe", "minicaffe.__version__"):
            target = "/".join(parts[1:]) if parts[1] in (*RINGS, "_moved") else "__init__"
            assert floor(target) <= floor(inside(path)), (
                f"{path.name} imports {name}, which stands above it"
            )


def test_no_file_imports_what_imports_it():
    """Within a room too: what a lower file needs of an upper one is passed to it as data."""
    files = {}
    for path in SOURCES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    below = {
        name: {_file(found, files) for found in imports(path)} - {None, name}
        for name, path in files.items()
    }
    before: dict = {}
    while below != before:  # take away the files that import none of the rest
        before, free = below, {name for name, others in below.items() if not others}
        below = {name: others - free for name, others in below.items() if name not in free}
    assert not below, "these import each other in a circle, or such as do"


def _file(name: str, files: dict[str, Path]) -> str | None:
    """The file that an imported name lies in."""
    return name if name in files else next(iter({name.rpartition(".")[0]} & set(files)), None)


SCRIPTS = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
SCRIPTS = sorted(path for path in SCRIPTS if path.name != "test_moved.py")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_scripts_import_is_there(path):
    """Also in functions, and in benchmarks that no test runs."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("minicaffe"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")


def test_the_rings_are_what_ls_shows():
    agreed = {"__init__.py", "__init__.pyi", "__main__.py", "_moved.py", "errors.py", "py.typed"}
    agreed |= {"backends", "cli", "core", "interop", "models", "storage", "tools"}
    assert {path.name for path in PACKAGE.iterdir()} - {"__pycache__"} == agreed


def test_only_engines_ops_and_backend_know_the_devices():
    for path in SOURCES:
        if ring(path) == "backends" or inside(path).startswith("core/ops/"):
            continue
        for name in imports(path):
            assert name.split(".")[0] not in ("cupy", "numba"), f"{path} imports {name}"


def wanted():
    """The packages that setup.cfg asks for, each with the oldest version of each place that names one."""
    places = [SETUP["options"]["install_requires"], *SETUP["options.extras_require"].values()]
    words = re.findall(r"^([a-zA-Z0-9_-]+)(?:\[\w+\])?(?:>=([0-9.]+))?", "\n".join(places), re.M)
    oldest = collections.defaultdict(set)
    for name, version in words:
        oldest[name.lower()].add(version)
    return oldest


def number(version):
    """A version's numbers, to be compared."""
    return tuple(map(int, version.split(".")))


def test_no_package_with_a_known_hole_is_asked_for():
    lines = (ROOT / ".ci" / "advisories.txt").read_text("utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert len(rows) > 5
    oldest = wanted()
    for name, sound, *_ in rows:
        assert oldest[name], name
        assert all(version and number(version) >= number(sound) for version in oldest[name]), name


def test_ci_trains_with_the_oldest_versions():
    lines = (ROOT / ".ci" / "oldest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert set(pinned) == {"numpy", "pyyaml", "tqdm", "numba"}
    for name, version in pinned.items():
        (oldest,) = wanted()[name]
        assert version == oldest or version == f"{oldest}.0", name


def test_core_packages_are_the_three():
    words = SETUP["options"]["install_requires"].split()
    assert [word.partition(">=")[0] for word in words] == ["numpy", "pyyaml", "tqdm"]
    third = {name.split(".")[0] for path in SOURCES for name in imports(path)}
    third -= set(sys.stdlib_module_names) | {"minicaffe"}
    extras = "cupy numba PIL h5py google onnx onnxruntime safetensors lmdb mpi4py shtab"
    extras += " tensorboardX IPython pandas"
    assert third == {"numpy", "yaml", "tqdm", *extras.split()}


def test_the_top_level_is_as_it_was_agreed():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    agreed = "minicaffe models examples data tests setup.cfg README.md LICENSE docs .ci"
    assert top <= {*agreed.split(), "CONTRIBUTING.md", "pyproject.toml", ".gitignore"}


def test_help_is_there_at_once():
    """Nothing heavy is imported for it (and so it takes some 0.05 s)."""
    program = "import sys; from minicaffe.cli import main; main(['--help']); print([*sys.modules])"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "usage: minicaffe COMMAND" in result.stdout
    for heavy in ("numpy", "yaml", "tqdm", "cupy", "numba", "PIL"):
        assert f"'{heavy}'" not in result.stdout


def test_every_command_has_help_with_an_example(capsys):
    from minicaffe.cli import COMMANDS, main

    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert not ended.value.code
        assert f"example:\n  minicaffe {command}" in capsys.readouterr().out, command


def test_every_command_is_there_without_numba():
    code = (
        "import sys; sys.modules['numba'] = None; from minicaffe.cli import COMMANDS, command_of\n"
    )
    code += "for name in COMMANDS: command_of(name)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")


LINES = {"backends": 12_336, "core": 17_262}  # of Python, at the most
ALL = 65_877  # of the whole package


@pytest.mark.parametrize("name", LINES)
def test_no_ring_grows(name):
    files = [path for path in SOURCES if ring(path) == name]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= LINES[name]


def test_the_package_does_not_grow():
    assert sum(len(path.read_text("utf-8").splitlines()) for path in SOURCES) <= ALL


TESTS = 63_771  # lines of Python in tests/; 45,000 are the aim


def test_the_tests_do_not_grow():
    files = (ROOT / "tests").rglob("*.py")
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= TESTS


def test_what_is_slow_is_there():
    for name in json.loads((ROOT / "tests" / "slow.json").read_text())["slow"]:
        file, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text("utf-8"), name


SAY_NOTHING = {"found", "given", "there", "told", "fast", "kept", "made"}  # of what they hold


def test_names_say_what_they_hold():
    """Variables and parameters of these names: fewer is welcome, more is not."""
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    names = [getattr(node, "id", getattr(node, "arg", None)) for node in nodes]
    assert sum(name in SAY_NOTHING for name in names) <= 67


DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = 22  # of docs, at the most
WORDS = 44_447  # of them all but layers.md, which is generated


def test_the_docs_do_not_grow():
    assert len(DOCS) <= PAGES
    texts = [page.read_text("utf-8") for page in DOCS if page.name != "layers.md"]
    assert sum(len(text.split()) for text in texts) <= WORDS


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_names_its_reader_first(page):
    title, _, first = page.read_text("utf-8").partition("\n\n")
    assert title.startswith("# ") and first.startswith("For those who")


def test_every_room_has_its_tests():
    """In the folder of its name, or where CONTRIBUTING.md says; and what that says to run is there."""
    lines = (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()
    rows = [line.split("|") for line in lines if "| `pytest " in line]
    changed = " ".join(row[1] for row in rows)
    rooms = {path.parent.relative_to(PACKAGE) for path in PACKAGE.glob("*/*/__init__.py")}
    without = {room.as_posix() for room in rooms if not (ROOT / "tests" / room).is_dir()}
    assert [room for room in sorted(without) if f"`minicaffe/{room}`" not in changed] == []
    named = {word for row in rows for word in row[2].replace("`", "").split()[1:]}
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_the_reading_path_is_there_and_no_longer_than_an_afternoon():
    page = (ROOT / "docs" / "read-me-first.md").read_text("utf-8")
    path = [ROOT / name for name in re.findall(r"^\d+\. \[(minicaffe/\S+\.py)\]", page, re.M)]
    assert len(path) == len(set(path)) == 14
    assert sum(len(file.read_text("utf-8").splitlines()) for file in path) <= 2_478


@pytest.mark.skipif(not cpu.available(), reason="needs Numba")
def test_how_much_a_reader_has_to_follow():
    """Less is welcome, more is not."""
    from walked import convolution, step

    one, ordinary = convolution(), step()
    assert len(one) <= 8 and sum(one.values()) <= 26
    assert len(ordinary) <= 34
    assert sum(step(10, replays=True).values()) <= 59
    assert sum(step(10, "caffe", replays=True).values()) <= 59


def test_all_ambient_state_is_in_one_place():
    assert {
        str(path.relative_to(PACKAGE))
        for path in SOURCES
        if re.search(r"threading\.local|ContextVar\(", path.read_text("utf-8"))
    } == {"backends/thread_state.py"}
