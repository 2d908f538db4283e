"""What is installed: a wheel, and a clone with `pip install -e`. Built without a network."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import minicaffe

pytest.importorskip("setuptools")
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "minicaffe"
MODELS = sorted(path.stem for path in (ROOT / "models").glob("*.yaml"))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A clone, but for what is neither package nor model."""
    clone = tmp_path_factory.mktemp("clone")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, clone / "minicaffe", symlinks=True, ignore=ignore)
    shutil.copytree(ROOT / "models", clone / "models")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone / name)
    return clone


def installed(source: Path, target: Path, how: str) -> Path:
    """A folder of packages into which the clone is installed, as `pip install` does: with `how` editable -e."""
    build = f"import setuptools.build_meta as b, sys; b.build_{how}(sys.argv[1])"
    command = [sys.executable, "-c", build, str(target)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    with zipfile.ZipFile(next(target.glob("*.whl"))) as wheel:
        wheel.extractall(target / "packages")
    return target / "packages"


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    return installed(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def editable(source, tmp_path_factory) -> Path:
    return installed(source, tmp_path_factory.mktemp("editable"), "editable")


def test_a_wheel_holds_the_whole_package(wheel):
    here = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    names = {path.relative_to(PACKAGE) for path in here}
    names |= {Path("models", f"{name}.yaml") for name in MODELS}  # rglob follows no link
    assert {path.suffix for path in names} >= {".cu", ".html", ".js", ".css", ".schema", ".pyi"}
    assert {str(name) for name in names if not (wheel / "minicaffe" / name).is_file()} == set()
    assert {path.name.split("-")[0] for path in wheel.iterdir()} == {"minicaffe"}


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_models_are_found_by_name_from_another_folder(how, request, tmp_path):
    """In a process that has but what was installed, and the packages that it needs."""
    packages = request.getfixturevalue(how)
    script = (
        "import site, sys; site.addsitedir(sys.argv[1]); sys.path.insert(0, sys.path.pop());"
        "import minicaffe; print(minicaffe.__file__);"
        "from minicaffe.cli import main; main(['models']); main(['summary', 'lenet'])"
    )
    command = [sys.executable, "-I", "-c", script, str(packages)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    file, *lines = ran.stdout.splitlines()
    assert not file.startswith(str(ROOT))
    assert [line.split()[0] for line in lines[: len(MODELS)]] == MODELS
    assert "parameters: 431,080 (1.6 MiB)" in lines


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_type_checkers_see_it(how, request, tmp_path):
    pytest.importorskip("mypy")
    packages = request.getfixturevalue(how)
    venv = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(venv, check=True)
    scheme = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = sysconfig.get_path("purelib", "venv" if os.name != "nt" else "nt_venv", scheme)
    shutil.copytree(packages, site, dirs_exist_ok=True)
    program = "import minicaffe\nminicaffe.Net('lenet').nonsense\nminicaffe.nonsense\n"
    (tmp_path / "program.py").write_text(program)
    python = Path(sysconfig.get_path("scripts", "venv", scheme), "python")
    words = ["--python-executable", str(python), "--cache-dir", os.devnull, "program.py"]
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", *words]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.splitlines()[:2] == [
        'program.py:2: error: "Net" has no attribute "nonsense"  [attr-defined]',
        'program.py:3: error: Module has no attribute "nonsense"  [attr-defined]',
    ]


def test_the_stub_has_the_public_names():
    text = (PACKAGE / "__init__.pyi").read_text()
    for name, home in minicaffe._HOME.items():
        assert f"from minicaffe.{home} import {name} as {name}\n" in text
    for name, home in minicaffe.PUBLIC.items():
        room, _, file = home.rpartition(".")
        assert f"from minicaffe.{room} import {file} as {name}" in text
    assert text.count(" as ") == len(minicaffe.__all__) - 1  # all but the version


def test_a_name_is_a_model(tmp_path, here, capsys):
    from minicaffe.cli import main

    net = minicaffe.Net("lenet", device="cpu", shapes_only=True)
    assert net.name == "LeNet" and minicaffe.read("lenet").path.name == "lenet.yaml"
    assert main(["models", "lenet"]) == 0
    text = capsys.readouterr().out
    assert text == (ROOT / "models" / "lenet.yaml").read_text()
    (tmp_path / "lenet").write_text(text.replace("name: LeNet", "name: mine", 1))
    assert minicaffe.read("lenet").name == "mine"  # a file comes first
    assert main(["convert", "lenet_paper", "paper.prototxt"]) == 0
    assert minicaffe.interop.caffe.read("paper.prototxt").name == minicaffe.read("lenet_paper").name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["summary", "lenett"], "lenett: no such file, and no model of this name; did you mean 'lenet'? (minica"),
        (["models", "lenett"], "there is no model 'lenett'; did you mean 'lenet'?"),
        (["train", "./lenet"], "./lenet: no such file"),
    ],
)  # fmt: skip
def test_another_word_is_no_model(words, told, tmp_path, here, capsys):
    from minicaffe.cli import main

    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"minicaffe: {told}")
    assert list(tmp_path.iterdir()) == []
