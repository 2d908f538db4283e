"""The stand-in for CuPy, loaded for tests of its own under the name stand_in."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "tools" / "standin"
EXTERN = 'extern "C" __global__ '


def load_stand_in():
    """The stand-in under a name of its own: this process may have the real CuPy imported."""
    spec = importlib.util.spec_from_file_location("stand_in", HERE / "cupy" / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["stand_in"] = module
    spec.loader.exec_module(module)
    return module


cupy = load_stand_in()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(cupy, "thread_order", "forward")
    monkeypatch.setattr(cupy, "allocations", 0)
    monkeypatch.setattr(cupy, "synchronizations", 0)


def kernel(code, name="f", expressions=None):
    try:
        return cupy.RawModule(code=code, name_expressions=expressions).get_function(name)
    except cupy.CompilerMissingError as error:
        pytest.skip(str(error))
