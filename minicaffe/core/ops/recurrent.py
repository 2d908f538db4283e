"""One step in time of recurrent nets: the LSTM's unit and the plain one, and their gradients.

Streams are rows (n). `cont` (n,), 1 where a stream goes on and 0 where it begins anew, multiplies what comes
from the step before. What that gives through the weights is `r`, without cont: by rows it is the same.
"""

from typing import Any

import numpy as np

from minicaffe.backends.dispatch import op, tried
from minicaffe.core.ops import arrays, elementwise


@op("h acts c", replays=False)
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
    if r is not None:
        x = np.add(x, np.multiply(r, cont[:, None], out=r), out=acts)
    elif acts is not x:
        np.copyto(acts, x)
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
    np.multiply(h, o, out=h)


@op("dx r dc", replays=False)
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


@tried
def lstm(z: Any, cont: Any, first: Any, weight: Any, c: Any, h: Any, work: Any) -> bool:
    """All steps of `lstm_unit` on the CPU, if threads can take streams through them; returns whether they did.

    z, which becomes i, f, o, g, (t, n, 4 d), cont (t, n), c (t + 1, n, d), of which c[0] is read, h (t, n, d)
    and the h before, `first` (n, d), whose weight is (4 d, d). `work` is flat.
    """
    return False


@tried
def lstm_gradient(
    acts: Any, c: Any, cont: Any, dh: Any, weight: Any, dc: Any, dz: Any, work: Any
) -> bool:
    """dz (t, n, 4 d), the gradient of all z of `lstm`, if it can be as there; dc (n, d) is overwritten."""
    return False


@op("h", traced=False)
def tanh_unit(x: Any, r: Any | None, cont: Any, h: Any) -> Any:
    """h = tanh(x + cont r), all (n, d); r, which is overwritten, may be None for nothing.

    >>> tanh_unit(np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1), np.empty((1, 1)))
    array([[0.]])
    """
    elementwise.forward("TanH", x if r is None else _joined(x, r, cont, h), (), h)


@op("dx", traced=False)
def tanh_unit_gradient(h: Any, dh: Any, r: Any | None, after: Any, dx: Any) -> Any:
    """dx = (dh + after r) (1 - h^2): as in `lstm_unit_gradient`, but that r may be None for nothing.

    >>> one = np.ones((1, 1))
    >>> tanh_unit_gradient(one / 2, one, one.copy(), np.ones(1), np.empty((1, 1)))
    array([[1.5]])
    """
    elementwise.gradient("TanH", dh if r is None else _joined(dh, r, after, r), h, h, (), dx)


def _joined(x: Any, r: Any, cont: Any, out: Any) -> Any:
    """out = x + cont r."""
    arrays.multiply(r, cont[:, None], r)
    return arrays.plus(x, r, out)


def _times_slope(d: Any, y: Any, scratch: Any) -> None:
    """d *= y (1 - y): times the derivative of y = sigmoid."""
    np.multiply(d, y, out=d)
    np.subtract(1, y, out=scratch)
    np.multiply(d, scratch, out=d)


def _quarters(array: Any) -> list[Any]:
    d = array.shape[1] // 4
    return [array[:, k * d : (k + 1) * d] for k in range(4)]
