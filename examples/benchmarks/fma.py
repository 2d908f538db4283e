"""The rate of multiply-adds that the cores reach from registers, which no product exceeds.

A loop of fused multiply-adds of whole vectors on each thread at once, of sums none of which waits for others.

    python examples/benchmarks/fma.py
"""

import threading
import time
from typing import Any

import numpy as np

STEPS, ROUNDS = 2_000_000, 5


def sums() -> int:
    """Sums that fit into the registers beside two factors, and hide how long one takes: of 32, or of 16."""
    from minicaffe.backends.cpu.vector_ir import wide

    return 20 if wide() else 12


def loop(dtype: type = np.float32) -> Any:
    """The compiled loop, for arrays of a type: f(array, steps)."""
    import numba
    from numba.core import cgutils, types

    from minicaffe.backends.cpu.vector_ir import LONG, Emitter, lanes, made

    many = sums()

    @made
    def burn(typing: Any, a: Any, count: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            on = Emitter(context, builder, a)
            start = on.data(a, args[0])
            totals = [cgutils.alloca_once(builder, on.vector) for _ in range(many)]
            ends = [on.at(start, LONG(on.count * (i + 2))) for i in range(many)]
            for end, one in zip(ends, totals, strict=True):
                builder.store(on.load(end), one)
            left, right = on.load(start), on.load(on.at(start, LONG(on.count)))
            with cgutils.for_range(builder, args[1]):
                for one in totals:
                    on.multiply_add(left, right, one)
            for end, one in zip(ends, totals, strict=True):
                on.store(builder.load(one), end)
            return context.get_dummy_value()

        return types.void(a, types.int64), generate

    @numba.njit(nogil=True)
    def run(array: Any, steps: int) -> None:
        burn(array, steps)

    run(np.zeros((many + 2) * lanes(dtype), dtype), 1)
    return run


def rate(threads: int) -> float:
    """GFLOP/s of so many threads together, the best of some rounds; a multiply-add is two."""
    from minicaffe.backends.cpu.vector_ir import lanes

    run, count, many = loop(), lanes(np.float32), sums()
    arrays = [np.zeros((many + 2) * count, np.float32) for _ in range(threads)]
    best = 0.0
    for _ in range(ROUNDS):
        workers = [threading.Thread(target=run, args=(array, STEPS)) for array in arrays]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - start
        best = max(best, 2e-9 * threads * many * count * STEPS / seconds)
    return best


if __name__ == "__main__":
    for number in (1, 2):
        print(f"{number} threads: {rate(number):.0f} GFLOP/s")
