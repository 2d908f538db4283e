"""What the rows of test_launch.py's table share, which stand there and in launch_rows_<family>.py."""

from unittest import mock

import numpy as np
from core.ops.cases import blank, numbers, put


def table():
    """A table of kernels, by name, and the decorator that adds a row to it.

    A row tells, on a device and for a type, how to run the kernel and what it writes.
    """
    rows = {}

    def row(function):
        rows[function.__name__] = function
        return function

    return rows, row


def drawn(device, dtype, *shapes, seed=1):
    """Random arrays there."""
    return [put(device, array) for array in numbers(seed, *shapes, dtype=dtype)]


def plain(op, inputs, out):
    """A row of an op that computes an array of some."""

    def build(device, dtype):
        given, written = drawn(device, dtype, *inputs), blank(device, out, dtype)
        return lambda: op(*given, written), [written]

    return build


def summed(dtype):
    """The type that sums are taken in."""
    return dtype if dtype == np.float64 else np.float32


def held_in_memory(device, room=0):
    """A context in which clusters hold rows in shared memory, however short: in `room` bytes, or by 8 blocks."""
    values = {"LEAST": 0, "ALONE": 0, "ROOM": room}
    if hasattr(device.xp, "is_stand_in"):
        values["HOLDING"] = range(999)
    return mock.patch.multiple("minicaffe.backends.cuda.moments", **values)
