"""The places of buffers in one block: none that are in use at a time overlap, and little is wasted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe.core.net.memory import ALIGNED, Life, place


def lives(longest: int = 12):
    def life(size, a, b):
        return Life(size, min(a, b), max(a, b))

    step = st.integers(0, 9)
    return st.lists(st.builds(life, st.integers(0, 500), step, step), max_size=longest)


def played(buffers, offsets, whole):
    """Step by step, byte by byte: whose is each byte. Gives the most bytes ever in use."""
    most = 0
    for step in range(10):
        owner = [None] * whole
        for i, (life, offset) in enumerate(zip(buffers, offsets, strict=True)):
            if not life.first <= step <= life.last:
                continue
            assert offset >= 0 and offset % ALIGNED == 0 and offset + life.size <= whole
            for byte in range(offset, offset + life.size):
                assert owner[byte] is None, f"buffers {owner[byte]} and {i} at byte {byte}"
                owner[byte] = i
        most = max(most, sum(one is not None for one in owner))
    return most


@settings(max_examples=60)
@given(lives())
def test_buffers_in_use_at_a_time_do_not_overlap(buffers):
    offsets, whole = place(buffers)
    most = played(buffers, offsets, whole)
    assert most <= whole <= sum(-(-life.size // ALIGNED) * ALIGNED for life in buffers)
    assert place(buffers) == (offsets, whole)


def test_the_smallest_gap_that_is_wide_enough_is_taken():
    walls = [Life(1024, 0, 9), Life(640, 0, 9), Life(576, 0, 0), Life(512, 0, 9), Life(320, 0, 0)]
    offsets, whole = place([*walls, Life(256, 0, 9), Life(192, 1, 9)])
    at = dict(zip([life.size for life in walls], offsets, strict=False))
    assert (at[1024], at[640], at[576], at[512], at[320]) == (0, 1024, 1664, 2240, 2752)
    assert offsets[-2:] == [3072, 2752]
    assert whole == 3328
