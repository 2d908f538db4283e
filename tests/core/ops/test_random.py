"""uniform: the bits of Philox4x64-10 on either device, a function of seed and names alone."""

import numpy as np
import pytest
from core.ops import references as ref
from core.ops.cases import blank, cases, same
from hypothesis import example, given
from hypothesis import strategies as st

from minicaffe.backends.cuda.launch import launch
from minicaffe.core.ops.random import uniform

names = st.lists(st.one_of(st.text(max_size=8), st.integers(0, 10**6)), max_size=3)
words = st.integers(0, 2**64 - 1)


def test_the_reference_is_philox_as_numpy_has_it():
    key = 0x0123456789ABCDEF << 64 | 0xFEDCBA9876543210
    generator = np.random.Generator(np.random.Philox(key=key))
    np.testing.assert_array_equal(ref.philox(key, 50), generator.random(50, dtype=np.float32))


@cases(240)
@given(st.integers(0, 2**63), names, st.integers(0, 100))
def test_against_philox_in_whole_numbers(device, seed, names, size):
    out = uniform(blank(device, size, np.float32), seed, *names)
    same(device, out, ref.philox(ref.random_key(seed, *names), size))


@pytest.mark.parametrize("size", range(1, 101))
def test_every_size_is_the_start_of_one_stream(device, size):
    """Also where the last block of eight is not used up; the numbers around `out` stay."""
    room = blank(device, 120, np.float32)
    uniform(room[8 : 8 + size], 7, "drop", size % 3)
    whole = ref.philox(ref.random_key(7, "drop", size % 3), size)
    same(device, room, np.concatenate([np.full(8, np.nan), whole, np.full(112 - size, np.nan)]))


@cases(320)
@given(words, words, st.integers(1, 100))
@example(0, 0, 100)
@example(2**64 - 1, 2**64 - 1, 100)
@example(2**63, 1, 9)
def test_the_kernel_for_any_key(cuda, low, high, size):
    out = blank(cuda, size, np.float32)
    key = np.uint64(low), np.uint64(high), np.uint64(0)
    launch("random.cu", "uniform", -(-size // 8), out, *key, size, out)
    generator = np.random.Generator(np.random.Philox(key=np.array([low, high], np.uint64)))
    same(cuda, out, generator.random(size, dtype=np.float32))


def test_the_shape_does_not_matter(device):
    flat = uniform(blank(device, 60, np.float32), 1, "a")
    solid = uniform(blank(device, (3, 4, 5), np.float32), 1, "a")
    same(device, solid.ravel(), device.to_host(flat))


def test_the_stream_stays_what_it_is(device):
    """A checkpoint of an older minicaffe resumes on the same numbers."""
    out = uniform(blank(device, 4, np.float32), 1, "conv1", 0)
    same(device, out * np.float32(2**24), [2747830, 402016, 2419778, 11680898])
