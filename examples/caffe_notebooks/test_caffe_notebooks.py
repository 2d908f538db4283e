"""Scripts as people wrote them around Caffe's notebooks, run with nothing but their imports changed."""

import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

FILES = sorted(set(Path(__file__).parent.glob("*.py")) - {Path(__file__)})
MODULES = ("drawn", "shapes_datalayers", "voc_tools")
SCRIPTS = [path.stem for path in FILES if path.stem not in MODULES]
CHANGED = (
    (re.compile(r"^import caffe$", re.M), "import minicaffe.pycaffe as caffe"),
    (re.compile(r"^from caffe(?=[. ])", re.M), "from minicaffe.pycaffe"),
)


def changed(text: str) -> str:
    for pattern, now in CHANGED:
        text = pattern.sub(now, text)
    return text


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the scripts, from which they find their modules, and where they write."""
    for path in FILES:
        (tmp_path / path.name).write_text(changed(path.read_text()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)
    shutil.rmtree(tmp_path)


def test_nothing_but_imports_is_changed():
    assert len(SCRIPTS) == 7
    for path in FILES:
        before, after = path.read_text().split("\n"), changed(path.read_text()).split("\n")
        apart = {(a, b) for a, b in zip(before, after, strict=True) if a != b}
        assert all(re.fullmatch(r"(import caffe|from caffe[.\w]* import .*)", a) for a, _ in apart)
        assert not re.search(r"\bminicaffe\b", path.read_text().replace("minicaffe's", ""))
        assert path.stem not in SCRIPTS or ("import caffe", CHANGED[0][1]) in apart


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_with_its_imports_changed(name, folder):
    for package in ("matplotlib", "lmdb", "google.protobuf", "PIL"):
        pytest.importorskip(package)
    runpy.run_path(str(folder / f"{name}.py"), run_name="__main__")
