"""Pixels of a line that are some apart, side by side."""

from minicaffe.backends.cpu import at, helper
from minicaffe.backends.cpu.vector_ir import lanes_of, mover

_move, _move_second, _move_fourth = mover(1), mover(2), mover(4)


@helper
def stepped(x, here, step, to, place, count):
    """Some numbers, each `step` behind the one before, by whole vectors: if they are few, some more."""
    lanes = lanes_of(x)
    if step not in (1, 2, 4) or here + max(count, lanes) * step > len(x):
        for u in range(count):
            to[at(place + u)] = x[at(here + u * step)]
        return
    for v in range(0, count, lanes):
        u = max(0, min(v, count - lanes))
        if step == 1:
            _move(x, here + u, to, place + u)
        elif step == 2:
            _move_second(x, here + 2 * u, to, place + u)
        else:
            _move_fourth(x, here + 4 * u, to, place + u)
