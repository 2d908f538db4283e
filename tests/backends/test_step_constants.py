"""Slots: what changes from step to step goes to the device in one copy."""

import gc

import numpy as np
import pytest
from core.ops.cases import same

from minicaffe.backends.step_constants import SIZE, Slots


def test_what_is_put_is_there_once_it_is_sent(device):
    slots = Slots(device)
    kinds = [((2,), np.uint64), ((4, 3), np.int64), ((), np.float64), ((5,), np.float32)]
    taken = [slots.take(shape, dtype) for shape, dtype in kinds]
    for round_ in range(2):
        for i, slot in enumerate(taken):
            slot.put(np.full(slot.here.shape, 10 * round_ + i))
        slots.send()
        for i, (slot, (shape, dtype)) in enumerate(zip(taken, kinds, strict=True)):
            assert slot.there.dtype == dtype
            same(device, slot.there, np.full(shape, 10 * round_ + i, dtype))


def test_all_of_them_are_one_copy_and_none_if_nothing_changed(cuda):
    if not hasattr(cuda.xp, "is_stand_in"):
        pytest.skip("only the stand-in counts")
    slots = Slots(cuda)
    taken = [slots.take((3,), np.float64) for _ in range(4)]
    before = cuda.xp.uploads
    for slot in taken:
        slot.put(1)
    slots.send()
    assert cuda.xp.uploads == before + 1
    slots.send()
    assert cuda.xp.uploads == before + 1


def test_a_block_that_is_full_is_followed_by_another(cuda):
    slots = Slots(cuda)
    large = slots.take((SIZE,), np.int64)
    small = [slots.take((SIZE // 8 // 4,), np.int64) for _ in range(7)]
    for i, slot in enumerate([large, *small]):
        slot.put(i)
    slots.send()
    for i, slot in enumerate([large, *small]):
        same(cuda, slot.there, np.full(slot.here.shape, i))
    assert len({id(slot.block) for slot in [large, *small]}) == 3


def test_a_block_goes_with_its_slots(cuda):
    slots = Slots(cuda)
    for _ in range(100):  # as of a net that is reshaped again and again
        slot = slots.take((SIZE,), np.uint8)
    gc.collect()
    assert sum(ref() is not None for ref in slots._blocks) == 1 and slot.block is not None
