"""Sums over ranks of one machine: in memory that they share, and in messages."""

import sys
from pathlib import Path

import pytest
from tools.parallel.mpi import launched, needs_mpi, ran

pytestmark = needs_mpi
SCRIPT = Path(__file__).parent / "sums.py"


def summed(size: int, lent: int, worth: int) -> str:
    """What rank 0 says of the sums of so many ranks; each checks them."""
    done = ran(launched(size, sys.executable, "-W", "error", str(SCRIPT), str(lent), str(worth)))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_sums_in_shared_memory(size):
    """Of any size, in pieces that parts do not divide, ranks late by turns; of three, twice the same bits."""
    said = summed(size, 2**12 * size, 0)
    assert said.startswith("shared")
    assert size != 3 or summed(size, 2**12 * size, 0) == said


def test_sums_in_messages():
    assert summed(3, 2**12, 2**40).startswith("messages")
