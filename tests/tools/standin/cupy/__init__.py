"""A stand-in for CuPy on machines without a GPU; put tests/tools/standin on sys.path to import it.

Arrays are NumPy arrays kept apart from the host's, kernels run one thread after the other, the lanes of a
warp to their block's next barrier before those of another. Tests may read and reset `synchronizations`
(waits for the device), `allocations` (of memory: arrays, and what CuPy takes besides), `uploads` (copies
from the host) and `operations` (all else that is queued, a graph as one), `graphs` (those launched), and
set `thread_order` to "reversed" or "random" (or the environment's STANDIN_ORDER) to show a race,
`late_copies` to have uploads from page-locked memory done when they are waited for and no sooner, and
`device_count`.
"""

import os
import sys

from numpy import (  # noqa: F401
    bool_,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

__version__ = "14.2.0"
is_stand_in = True
synchronizations = 0
allocations = 0
uploads = 0
operations = 0
graphs = 0
late_copies = False
device_count = 1
thread_order = os.environ.get("STANDIN_ORDER", "forward")

from . import cuda  # noqa: E402
from ._array import ndarray  # noqa: E402
from ._creation import (  # noqa: E402, F401
    arange,
    array,
    asarray,
    ascontiguousarray,
    asnumpy,
    copyto,
    empty,
    empty_like,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from ._functions import ALL, ufunc  # noqa: E402, F401
from ._products import dot, matmul  # noqa: E402, F401
from ._raw import CompilerMissingError, RawModule  # noqa: E402, F401

globals().update(ALL)
_pool = cuda.MemoryPool()


def get_default_memory_pool():
    return _pool


def get_array_module(*args):
    return sys.modules[__name__ if any(isinstance(a, ndarray) for a in args) else "numpy"]
