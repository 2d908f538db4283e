"""Names that modules had before: the modules of today, with a warning, for one release."""

import contextlib
import importlib
import pickle
import subprocess
import sys

import pytest

from minicaffe._moved import MOVED, PUBLIC, today


@pytest.mark.parametrize("name", MOVED)
def test_an_old_name_is_the_module_of_today(name):
    sys.modules.pop(f"minicaffe.{name}", None)
    room = name.partition(".")[0]
    sys.modules.pop(f"minicaffe.{room}", None)
    warns = pytest.warns(DeprecationWarning) if room not in PUBLIC else contextlib.nullcontext()
    with warns:
        module = importlib.import_module(f"minicaffe.{name}")
    assert module is importlib.import_module(f"minicaffe.{MOVED[name]}")


def test_the_warning_names_both():
    sys.modules.pop("minicaffe.spec", None)
    said = r"minicaffe\.spec is minicaffe\.core\.config now; the old name goes with 0\.3"
    with pytest.warns(DeprecationWarning, match=said):
        importlib.import_module("minicaffe.spec")


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_nothing(name):
    program = f"import minicaffe.{name} as one; print(one.__name__)"
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"minicaffe.{PUBLIC[name]}\n"


@pytest.mark.filterwarnings("ignore:minicaffe.*data")
def test_a_file_that_left_its_room_is_found_by_either_form():
    from minicaffe.data import idx, wire  # noqa: I001
    import minicaffe.storage.wire
    import minicaffe.tools.data.idx

    assert wire is minicaffe.storage.wire and idx is minicaffe.tools.data.idx


@pytest.mark.filterwarnings("ignore:minicaffe.net")
def test_what_was_pickled_under_an_old_name_is_read():
    from minicaffe.core.net.weights import LoadReport

    text = pickle.dumps(LoadReport(["conv1__0"]), protocol=2)
    old = text.replace(b"minicaffe.core.net.weights", b"minicaffe.net.weights")
    assert b"minicaffe.net.weights" in old
    assert pickle.loads(old).loaded == ["conv1__0"]


def test_a_name_that_never_was_stays_unknown():
    assert today("minicaffe.nowhere") == "minicaffe.nowhere"
    with pytest.raises(ModuleNotFoundError, match="minicaffe.nowhere"):
        importlib.import_module("minicaffe.nowhere")
