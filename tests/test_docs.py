"""Everything that README and docs show is run: Python, YAML files and commands with their output."""

import ast
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import types
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gpu import HAS_GPU
from kit import digits_for_mnist, few_digits
from tools.parallel import mpi

import minicaffe
from minicaffe.cli import main
from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops import conv
from minicaffe.errors import DeviceError

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "data" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FILE = re.compile(r"# file: (\S+)\n")
TYPO = """\
name: Typo
layers:
  - {name: data, type: Input, shape: {dim: [1, 3]}}
  - {name: ip1, type: InnerProduct, bottom: data, num_ouput: 10}
"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.S | re.M)


def exit_code(words: list[str]) -> int:
    """The exit code of a command; a wrong option exits at once."""
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


def without(words: list[str], option: str) -> list[str]:
    """A command without an option and its value."""
    if option not in words:
        return words
    place = words.index(option)
    return words[:place] + words[place + 2 :]


def no_gpu(number, reason):
    raise DeviceError("the pages are for a machine without a GPU")


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """A copy of what a reader has before him, with few drawn digits for MNIST; of README's no pictures."""
    for name in ("models", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    if "README.md" not in request.node.name:
        shutil.copytree(ROOT / "tests" / "fixtures" / "examples", tmp_path / "pictures")
    for name, number in {"cats": 0, "dogs": 1}.items():  # a reader's own pictures
        (tmp_path / "photos" / name).mkdir(parents=True)
        for count in range(3):
            picture = ROOT / "tests" / "fixtures" / "examples" / f"{number}.png"
            copied = Path(shutil.copy(picture, tmp_path / "photos" / name / f"{count}.png"))
            with copied.open("ab") as file:  # which makes it another file, and the same picture
                file.write(bytes(count))
    shutil.copytree(tmp_path / "photos" / "cats", tmp_path / "new_pictures")
    mnist = tmp_path / "examples" / "mnist"  # as in a clone of Caffe
    mnist.mkdir()
    for name in ("lenet_solver.prototxt", "lenet_train_test.prototxt"):
        shutil.copy(ROOT / "tests" / "interop" / "caffe" / "nets" / name, mnist)
    (tmp_path / "typo.yaml").write_text(TYPO)
    monkeypatch.chdir(tmp_path)
    few_digits(monkeypatch, 300, 100)
    digits_for_mnist(monkeypatch)
    if not HAS_GPU:  # the stand-in is slow
        monkeypatch.setattr("minicaffe.backends.device._cuda", no_gpu)
    monkeypatch.syspath_prepend(tmp_path)
    registers = [(one, dict(one)) for one in (REGISTRY, conv.ENGINES)]
    yield tmp_path
    for register, before in registers:
        register.clear()
        register.update(before)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_and_commands_of_a_page(page, folder, capsys, monkeypatch):
    programs = [text for text in blocks(page, "python") if not FILE.match(text)]
    files = [text for text in blocks(page, "python") if FILE.match(text)]
    for text in [*files, *blocks(page, "yaml"), *blocks(page, "prototxt")]:
        name = FILE.match(text)
        assert name, f"{page}: a model's block must say which file it is"
        (folder / name[1]).write_text(text)
    module = types.ModuleType("a_page")
    monkeypatch.setitem(sys.modules, "a_page", module)
    for number, code in enumerate(programs):
        exec(compile(code, f"{page.name}, block {number}", "exec"), module.__dict__)
    for name in [name for name, cls in REGISTRY.items() if cls.__module__ == "a_page"]:
        del REGISTRY[name]  # the commands run in processes of their own
    for text in blocks(page, "console"):
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, *shown = part.rstrip().split("\n")
            words = shlex.split(command, comments=True)
            if words[0] == "mpiexec":
                on_ranks(words, folder)
                continue
            assert words[0] == "minicaffe"
            if words[1] == "train":
                words = without(words, "--epochs")
                words += ["--device", "cpu", "--max-iter", "3"]
            if words[1] == "report":
                words += ["--seconds", "1"]
            capsys.readouterr()
            assert exit_code(words[1:]) == (2 if "# exit code 2" in command else 0), command
            printed = "".join(capsys.readouterr())
            for line in shown:
                assert line in printed.split("\n"), f"{command}: {line!r} is not in\n{printed}"


def test_the_model_that_torch_exports_on_the_page_of_onnx(folder):
    """The page's first block, where torch is there; the page itself runs without it."""
    pytest.importorskip("torch")
    text = (ROOT / "docs" / "onnx-to-caffe.md").read_text("utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's exporter
        exec(re.search(r"^```\n(import torch\n.*?)^```", text, re.S | re.M)[1], {})
    assert exit_code(["import", "classifier.onnx", "--out", "net"]) == 0
    net = minicaffe.Net("net.prototxt", "TEST", device="cpu")
    assert net.forward(data=np.zeros((1, 3, 32, 32)))["score"].shape == (1, 10)


def on_ranks(words: list[str], folder: Path) -> None:
    """Run a command of several ranks, where there is MPI: it must end well."""
    assert words[1] == "-n" and words[3] in ("minicaffe", "python")
    program = [sys.executable, *(["-m", "minicaffe"] if words[3] == "minicaffe" else [])]
    if mpi.MPIEXEC is not None and find_spec("mpi4py") is not None:
        command = mpi.launched(int(words[2]), *program, *words[4:])
        done = subprocess.run(
            command, cwd=folder, env=mpi.environment(), capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stderr
        assert re.search(r"\d+ ranks, |rank 1 of 2", done.stderr + done.stdout)


def test_training_on_ranks_from_python(folder):
    """The example, on a net that needs no data set; alone it trains as well."""
    model = re.search(
        r"^```yaml\n(.*?)^```", (ROOT / "docs" / "scale.md").read_text("utf-8"), re.S | re.M
    )
    (folder / "small.yaml").write_text(model[1])
    on_ranks(shlex.split("mpiexec -n 2 python examples/train_on_mpi.py small.yaml 3"), folder)
    runpy.run_path(str(folder / "examples" / "train_on_mpi.py"))["main"](folder / "small.yaml", 3)
    assert (folder / "trained.npz").exists()


def test_other_blocks_are_shell_or_drawings():
    """No block escapes: what is neither Python, a model nor console is run by .ci/run or draws something."""
    for page in PAGES:
        kinds = set(re.findall(r"^```(\w+)\n", page.read_text("utf-8"), re.M))
        assert kinds <= {"python", "yaml", "prototxt", "console", "sh"}, page


def anchors(page: Path) -> set[str]:
    """The places in a page that a link may lead to, named as on the usual hosts."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_no_merge_is_half_done(page):
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
    assert not re.search(r"^(<<<<<<<|=======|>>>>>>>)", text, re.M)
    for link in re.findall(r"""(?:\]\(|\bsrc=")([^)"\s]+)[)"]""", text):
        if not link.startswith("https://"):
            file, _, place = link.partition("#")
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not place or place in anchors(target), link


def test_the_glossary_says_of_each_term_once_where_it_lives():
    """Files and nothing else: whether they exist is what the test of links asks."""
    rows = re.findall(
        r"^\| (?!term |---)(.*?) \| (.*?) \| (.*?) \|$",
        (ROOT / "docs" / "glossary.md").read_text("utf-8"),
        re.M,
    )
    terms = [term for row in rows for term in row[0].split(", ")]
    assert len(terms) == len(set(terms)) > 60
    for term, meaning, files in rows:
        assert re.fullmatch(r"(\[[\w/.]+\]\(\.\./minicaffe/[\w/]+\.py\)(, )?)+", files), term
        assert meaning and not meaning.endswith("."), term


def test_readmes_shell_commands_are_those_that_ci_runs():
    first, second = (text.strip() for text in blocks(ROOT / "README.md", "sh"))
    assert first.endswith("minicaffe train models/lenet.yaml")
    assert second.endswith("pytest")
    assert "blocks README.md" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_readme_is_short():
    """It is for people who have never seen this project; everything else has a page in docs."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 130


def test_the_table_of_environment_variables_holds_all_and_no_others():
    """A file that mentions the environment names its variables as words of their own."""
    read = set()
    for path in (ROOT / "minicaffe").rglob("*.py"):
        if "environ" in (source := path.read_text("utf-8")):
            words = (
                node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)
            )
            read |= {word for word in words if re.fullmatch("[A-Z0-9]+(_[A-Z0-9]+)+", str(word))}
    table = re.findall(
        r"^\| `([A-Z0-9_]+)` \|", (ROOT / "docs" / "environment.md").read_text("utf-8"), re.M
    )
    assert sorted(table) == sorted(read)


@pytest.mark.parametrize(
    "example", ["custom_layer.py", "train_from_python.py", "classify_from_python.py"]
)
def test_examples_run(example, folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [example, "2"])
    runpy.run_path(str(folder / "examples" / example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_benchmark_runs(folder, monkeypatch, capsys):
    """One short run of the LeNet benchmark, in this process."""
    monkeypatch.syspath_prepend(str(folder / "examples" / "benchmarks"))
    benchmark = runpy.run_path(str(folder / "examples" / "benchmarks" / "lenet_mnist.py"))
    result = benchmark["one_run"](str(folder / "models" / "lenet.yaml"), "cpu", 1, 2)
    assert result["iterations"] == 2
    assert result["warnings"]
    assert set(result["accuracies"]) == {0, 2}


def test_the_lenet_of_readme_is_trained_to_the_end_on_the_real_mnist():
    """Its table is one of those that examples/benchmarks compares with the result files."""
    results = ROOT / "examples" / "benchmarks" / "results" / "lenet_mnist_cpu.json"
    for run in json.loads(results.read_text("utf-8"))["runs"]:
        assert run["iterations"] == 10_000
        assert not run["warnings"]


def test_models_hold_what_they_should():
    from minicaffe import read
    from minicaffe.core.config.declare import TRAIN

    for path in (ROOT / "models").glob("*.yaml"):
        assert read(path).solver is not None
    assert [
        layer.type
        for layer in read(ROOT / "models" / "lenet_paper.yaml").layers
        if layer.included(TRAIN)
    ] == [
        "Data", "Convolution", "ReLU", "Pooling", "Convolution", "ReLU", "Pooling",
        "InnerProduct", "ReLU", "Dropout", "InnerProduct", "SoftmaxWithLoss",
    ]  # fmt: skip
