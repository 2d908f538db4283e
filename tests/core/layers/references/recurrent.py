"""LSTM and RNN, stream by stream."""
# ruff: noqa: N802

import numpy as np
from core.layers.references.draws import drawn
from core.layers.references.points import sigmoid


def steps(layer, x, cont, more, states, step):
    """What each step gives, and the states after the last; a pass goes on from the one before."""
    d, n = layer.num_output, x.shape[1]
    exposed = list(more[len(more) - states :]) if layer.expose_hidden else []
    static = more[: len(more) - len(exposed)]
    weight, bias, *params = layer.params
    of_static = params.pop(0) if static else None
    ends = [one[0].copy() for one in exposed] or getattr(
        layer, "carried", [np.zeros((n, d))] * states
    )
    ends, tops = [one.copy() for one in ends], np.zeros((*x.shape[:2], d))
    for t, i in np.ndindex(x.shape[:2]):
        z = weight @ x[t, i].ravel() + bias + cont[t, i] * (params[0] @ ends[0][i])
        z = z + of_static @ static[0][i].ravel() if static else z
        tops[t, i] = step(z, cont[t, i], [end[i] for end in ends], params)
    layer.carried = ends
    if not layer.moved:  # the last states have no gradient
        layer.constants["ends"] = [end[None] for end in ends]
    return tops, *(layer.constants["ends"] if exposed else [])


def LSTM(layer, x, cont, *more):
    def step(z, cont, ends, params):
        i, f, o, g = np.split(z, 4)
        ends[1][:] = cont * sigmoid(f) * ends[1] + sigmoid(i) * np.tanh(g)
        ends[0][:] = sigmoid(o) * np.tanh(ends[1])
        return ends[0]

    return steps(layer, x, cont, more, 2, step)


def RNN(layer, x, cont, *more):
    def step(z, cont, ends, params):
        ends[0][:] = np.tanh(z)
        return np.tanh(params[1] @ ends[0] + params[2])

    return steps(layer, x, cont, more, 1, step)


SIZES = [(1, 2, 3), (4, 3, 2), (3, 1, 1), (16, 5, 3), (11, 6, 20), (8, 9, 40)]
REST = [(), (2,), (3, 1)]


def recurrent_case(kind, states):
    @drawn(
        kind, sizes=SIZES, k=REST, static=[None, *REST[1:]], expose_hidden=[False, True], count=20
    )
    def case(random, sizes, k, static, expose_hidden):
        t, n, d = sizes
        passes = []
        for _ in range(2):
            bottoms = [random.normal(size=(t, n, *k)), random.random((t, n)) < 0.7]
            bottoms += [random.normal(size=(n, *static))] if static else []
            passes.append([*bottoms, *random.normal(size=(states * expose_hidden, 1, n, d))])
        tops = ["y", "h", "c"][: 1 + states * expose_hidden]
        return {"num_output": d, "expose_hidden": expose_hidden, "top": tops}, *passes


recurrent_case("LSTM", 2)
recurrent_case("RNN", 1)
