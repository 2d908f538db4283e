"""What the rows of test_launch.py's table share, which stand there and in launch_rows_<family>.py."""

import numpy as np


def table():
    """A table of kernels, by name, and the decorator that adds a row to it.

    A row tells, on a device and for a type, how to run the kernel and what it writes.
    """
    rows = {}

    def row(function):
        rows[function.__name__] = function
        return function

    return rows, row


def summed(dtype):
    """The type that sums are taken in."""
    return dtype if dtype == np.float64 else np.float32
