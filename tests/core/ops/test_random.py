"""uniform: the bits of Philox4x64-10 on either device, a function of seed and names alone."""

import numpy as np
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
    room = blank(device, size + 16, np.float32)  # the numbers around `out` stay
    uniform(room[8 : size + 8], seed, *names)
    drawn = ref.philox(ref.random_key(seed, *names), size)
    same(device, room, np.pad(drawn, 8, constant_values=np.nan))


@cases(320)
@given(words, words, st.integers(1, 100))
@example(0, 0, 100)
@example(2**64 - 1, 2**64 - 1, 100)
@example(2**63, 1, 9)
def test_the_kernel_for_any_key(cuda, low, high, size):
    out = blank(cuda, size, np.float32)
    key = np.uint64(low), np.uint64(high), np.uint64(0)
    launch("uniform", -(-size // 8), out, *key, size, out)
    generator = np.random.Generator(np.random.Philox(key=np.array([low, high], np.uint64)))
    same(cuda, out, generator.random(size, dtype=np.float32))
