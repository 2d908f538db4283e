"""What is captured is done by each launch, and counts its blocks in counters of its own."""

import numpy as np
import pytest
from core.ops.cases import blank, numbers, put, same

from minicaffe.backends.cuda import capture, implicit_gemm


def test_a_product_in_parts_is_captured_with_counters_of_its_own(cuda):
    a, b = numbers(1, (20, 900), (900, 30), dtype=np.float32)
    there, work = [put(cuda, array) for array in (a, b)], blank(cuda, 10**4, np.float32)
    wanted, out = (blank(cuda, (20, 30), np.float32) for _ in range(2))
    with cuda.current():
        implicit_gemm.product(*there, wanted, work)
    launch = capture.captured(cuda, lambda: implicit_gemm.product(*there, out, work))
    outside = capture.arrived()
    known = dict(capture._kept)
    assert all(np.isnan(cuda.to_host(out)).ravel())  # it is not done yet
    outside.fill(7)  # as if another stream's kernel were under way
    try:
        for _ in range(2):
            out.fill(np.nan)
            launch()
            same(cuda, out, cuda.to_host(wanted))
    finally:
        outside.fill(0)
    assert capture._kept.keys() == known.keys()


def test_what_no_graph_can_hold_is_refused_and_leaves_nothing_behind(cuda):
    known, target = capture._kept.keys() | set(), blank(cuda, 3, np.float32)
    with pytest.raises(RuntimeError, match="in a capture the host gives the device something"):
        capture.captured(cuda, lambda: cuda.copy_from_host(target, np.ones(3)))
    with pytest.raises(RuntimeError, match="in a capture the host reads what the device computed"):
        capture.captured(cuda, lambda: cuda.to_host(target))
    assert capture._kept.keys() == known
    capture.captured(cuda, lambda: None)()
