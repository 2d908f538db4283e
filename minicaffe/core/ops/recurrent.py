"""One step in time of recurrent nets: the LSTM's unit and the plain one, and their gradients.

Streams are rows (n). `cont` (n,) is 1 where a stream goes on and 0 where it begins anew: it multiplies what
comes from the step before. What that gives through the weights comes as `r`, without cont, which is the same
for a product with rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minicaffe.backends.cpu import loops
from minicaffe.backends.cpu.run import run
from minicaffe.backends.cuda.launch import GRID, THREADS, launch_blocks
from minicaffe.backends.device import on_cuda
from minicaffe.backends.replay import trace
from minicaffe.core.ops import arrays, elementwise

GRAIN = 2**10  # numbers that a thread is worth waking for
FEW = 64  # rows of all steps: for fewer it does not pay to put the weights in panels
NEAR = 2**20  # bytes of weights, which then stay in the second cache
STREAMS = 2  # that are worth a thread


def lstm_unit(x: Any, r: Any | None, cont: Any, c_prev: Any, acts: Any, c: Any, h: Any) -> Any:
    """c = cont f c_prev + i g and h = o tanh(c), with i, f, o = sigmoid and g = tanh of x + cont r.

    x, r and acts (n, 4 d) hold i, f, o, g side by side, each (n, d); `acts` takes the four, and may be x
    itself. c_prev, c, h (n, d). r, which is overwritten, may be None for nothing.
    Source: Caffe's LSTMUnitLayer; W. Zaremba, I. Sutskever, Learning to Execute, 2014.

    >>> x, c, h = np.array([[0.0, 0.0, 0.0, 10.0]]), np.empty((1, 1)), np.empty((1, 1))
    >>> h = lstm_unit(x, None, np.ones(1), np.ones((1, 1)), x, c, h)
    >>> c.round(6), x.round(6)
    (array([[1.]]), array([[0.5, 0.5, 0.5, 1. ]]))
    """
    if on_cuda(x):
        _launch("lstm.cu", "lstm_unit", h, (x, c), x, r, cont, c_prev, h.shape[1], acts, c, h)
        return h
    if (fast := _loops("lstm_unit", x)) is not None:
        if acts is not x:
            arrays.copy(x, acts)
        given = acts, acts[:0] if r is None else r, x.shape[1], cont, c_prev, h.shape[1], c, h
        _run(fast.lstm_unit(x.dtype), h, *given)
        return h
    _joined(x, r, cont, acts)
    i, f, o, g = _quarters(acts)
    gates = acts[:, : 3 * h.shape[1]]  # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2, which cannot overflow
    np.multiply(gates, 0.5, out=gates)
    np.tanh(acts, out=acts)
    np.multiply(gates, 0.5, out=gates)
    np.add(gates, 0.5, out=gates)
    np.multiply(f, c_prev, out=c)
    np.multiply(c, cont[:, None], out=c)
    np.multiply(i, g, out=h)
    np.add(c, h, out=c)
    np.tanh(c, out=h)
    return np.multiply(h, o, out=h)


def lstm_unit_gradient(
    acts: Any, c_prev: Any, c: Any, cont: Any, dh: Any, r: Any, after: Any, dc: Any, dx: Any
) -> Any:
    """dx, the gradient of what i, f, o, g are of, and dc, in place: of c in, of c_prev out.

    h's gradient is dh + after r: what is read of h at this step, and what the next step gives through the
    weights, r (n, d), where `after` (n,), its cont, lets it. r may be overwritten.

    >>> acts, one, zero = np.array([[0.5, 0.5, 0.5, 1.0]]), np.ones((1, 1)), np.zeros((1, 1))
    >>> dc, dx = np.ones((1, 1)), np.empty((1, 4))
    >>> lstm_unit_gradient(acts, one, one, np.ones(1), zero, zero.copy(), np.ones(1), dc, dx)
    array([[0.25, 0.25, 0.  , 0.  ]])
    >>> dc
    array([[0.5]])
    """
    if on_cuda(acts):
        given = acts, c_prev, c, cont, dh, r, after, dh.shape[1], dc, dx
        _launch("lstm.cu", "lstm_unit_gradient", dh, (acts, c), *given)
        return dx
    if (fast := _loops("lstm_unit_gradient", acts)) is not None:
        d = dh.shape[1]
        _run(
            fast.lstm_unit_gradient(acts.dtype),
            dh,
            acts,
            c_prev,
            c,
            cont,
            dh,
            r,
            d,
            after,
            d,
            dc,
            dx,
        )
        return dx
    (i, f, o, g), (di, df, do, dg) = _quarters(acts), _quarters(dx)
    np.multiply(r, after[:, None], out=r)
    np.add(r, dh, out=r)
    np.tanh(c, out=do)
    np.multiply(r, o, out=dg)  # dc += dh o (1 - tanh(c)^2)
    np.multiply(do, do, out=di)
    np.subtract(1, di, out=di)
    np.multiply(dg, di, out=dg)
    np.add(dc, dg, out=dc)
    np.multiply(do, r, out=do)  # do = dh tanh(c) o (1 - o)
    _times_slope(do, o, di)
    np.multiply(g, g, out=di)  # dg = dc i (1 - g^2)
    np.subtract(1, di, out=di)
    np.multiply(dc, i, out=dg)
    np.multiply(dg, di, out=dg)
    np.multiply(dc, g, out=di)  # di = dc g i (1 - i)
    _times_slope(di, i, r)
    np.multiply(dc, cont[:, None], out=dc)
    np.multiply(dc, c_prev, out=df)  # df = dc cont c_prev f (1 - f)
    _times_slope(df, f, r)
    np.multiply(dc, f, out=dc)
    return dx


def lstm(z: Any, cont: Any, first: Any, weight: Any, c: Any, h: Any, work: Any) -> bool:
    """All steps of `lstm_unit` on the CPU, if threads can take streams through them; returns whether they did.

    z, which becomes i, f, o, g, (t, n, 4 d), cont (t, n), c (t + 1, n, d), of which c[0] is read, h (t, n, d)
    and the h before, `first` (n, d), whose weight is (4 d, d). `work` is flat.
    """
    return _swept("lstm", weight, True, h, work, z, cont, first, c, h)


def lstm_gradient(
    acts: Any, c: Any, cont: Any, dh: Any, weight: Any, dc: Any, dz: Any, work: Any
) -> bool:
    """dz (t, n, 4 d), the gradient of all z of `lstm`, if it can be as there; dc (n, d) is overwritten."""
    return _swept("lstm_gradient", weight, False, dh, work, acts, c, cont, dh, dc, dz)


def _swept(name: str, weight: Any, turned: bool, h: Any, work: Any, *kernel_args: Any) -> bool:
    """Run a loop over streams, if it pays to put the weights of h in panels, which stay in a cache."""
    (t, n, _), (rows, columns) = h.shape, weight.shape[::-1] if turned else weight.shape
    fast = None if on_cuda(h) else loops("recurrent", h.dtype)
    if fast is None or t * n < FEW or weight.nbytes > NEAR:
        return False
    vectors, wide, places = fast.panels_of(rows, columns, weight.dtype)
    if (rows + n) * wide > work.size:
        return False
    panels, r = work[: rows * wide], work[rows * wide : (rows + n) * wide]
    run(fast.panels, vectors, weight.reshape(-1), rows, columns, turned, places, panels)
    flat = [array.reshape(-1) for array in kernel_args]
    run(getattr(fast, name)(h.dtype), n, *flat, panels, (*h.shape, wide), r, grain=STREAMS)
    return True


def tanh_unit(x: Any, r: Any | None, cont: Any, h: Any) -> Any:
    """h = tanh(x + cont r), all (n, d); r, which is overwritten, may be None for nothing.

    >>> tanh_unit(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1), np.empty((1, 1)))
    array([[0.]])
    """
    if on_cuda(x):
        _launch("rnn.cu", "tanh_unit", h, (x,), x, r, cont, h.shape[1], h)
        return h
    return elementwise.forward("TanH", x if r is None else _joined(x, r, cont, h), (), h)


def tanh_unit_gradient(h: Any, dh: Any, r: Any | None, after: Any, dx: Any) -> Any:
    """dx = (dh + after r) (1 - h^2): as in `lstm_unit_gradient`, but that r may be None for nothing.

    >>> one = np.ones((1, 1))
    >>> tanh_unit_gradient(one / 2, one, one.copy(), np.ones(1), np.empty((1, 1)))
    array([[1.5]])
    """
    if on_cuda(h):
        _launch("rnn.cu", "tanh_unit_gradient", h, (h,), h, dh, r, after, h.shape[1], dx)
        return dx
    dy = dh if r is None else _joined(dh, r, after, r)
    return elementwise.gradient("TanH", dy, h, h, (), dx)


def _loops(name: str, like: Any) -> Any:
    """The compiled loops for a type; none where NumPy has to compute `name`, which no program can."""
    fast = loops("recurrent", like.dtype)
    if fast is None:
        trace.host(f"{name} by NumPy")
    return fast


def _run(loop: Any, h: Any, *given: Any) -> None:
    """Run a compiled loop over streams; arrays go flat."""
    flat = [arg.reshape(-1) if isinstance(arg, np.ndarray) else arg for arg in given]
    run(loop, len(h), *flat, grain=1 + GRAIN // max(h.shape[1], 1))


def _joined(x: Any, r: Any | None, cont: Any, out: Any) -> Any:
    """out = x + cont r."""
    if r is not None:
        arrays.multiply(r, cont[:, None], r)
        return arrays.plus(x, r, out)
    return out if out is x else arrays.copy(x, out)


def _times_slope(d: Any, y: Any, scratch: Any) -> None:
    """d *= y (1 - y): times the derivative of y = sigmoid."""
    np.multiply(d, y, out=d)
    np.subtract(1, y, out=scratch)
    np.multiply(d, scratch, out=d)


def _quarters(array: Any) -> list[Any]:
    d = array.shape[1] // 4
    return [array[:, k * d : (k + 1) * d] for k in range(4)]


def _launch(file: str, name: str, h: Any, types: tuple[Any, ...], *args: Any) -> None:
    """A thread an entry of h."""
    grid = (min(-(-h.size // THREADS), GRID),)
    launch_blocks(file, name, grid, types, h.size, *args)
