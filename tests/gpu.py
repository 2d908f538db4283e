"""Which CUDA the tests run on: a GPU through CuPy, or the stand-in for CuPy in tests/tools/standin."""

import importlib
import sys
from pathlib import Path

STAND_IN = Path(__file__).parent / "tools" / "standin"


def _gpu_works() -> bool:
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0 and not hasattr(cupy, "is_stand_in")
    except Exception:  # CuPy fails in many ways where there is no GPU
        return False


HAS_GPU = _gpu_works()
if not HAS_GPU:
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("cupy", "cupyx", "cupy_backends")
    ]:
        del sys.modules[name]
    sys.path.insert(0, str(STAND_IN))
    importlib.invalidate_caches()
