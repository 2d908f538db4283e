"""Weights that a net packs once: whoever changes them, however, the next pass computes with what they are."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe import Net, parse
from minicaffe.backends.cpu import available

pytestmark = pytest.mark.skipif(not available(), reason="needs Numba: loops are compiled")

MODEL = """
layers:
  - {name: x, type: Input, shape: {dim: [1, 16, 9, 11]}}
  - {name: one, type: Convolution, num_output: 20, kernel_size: 3, pad: 1, engine: packed}
  - {name: bn, type: BatchNorm, top: one}
  - {name: scale, type: Scale, bias_term: true, top: one}
  - {name: two, type: Convolution, num_output: 36, kernel_size: 1, engine: packed, group: 2}
  - {name: three, type: Convolution, num_output: 5, kernel_size: 3, engine: packed,
     param: [{name: w}, {name: b}]}
"""


def built(weights=None, keep=()):
    net, rng = Net(parse(MODEL), "TEST", device="cpu", keep=keep), np.random.default_rng(3)
    for name, param in net.named_params.items():
        param.data = rng.uniform(0.5, 1.5, param.shape) if weights is None else weights[name]
    return net


def shares(net, param, held, numbers):
    other = built({name: one.to_host() for name, one in net.named_params.items()})
    net.share_with(other)
    held.append(other.named_params["one__0"].data)


ACTS = {
    "set": lambda net, param, held, numbers: setattr(param, "data", numbers),
    "load": lambda net, param, held, numbers: param.load(numbers),
    "in place": lambda net, param, held, numbers: np.multiply(param.data, 1.5, out=param.data),
    "hold": lambda net, param, held, numbers: held.append(param.data),
    "hold a view": lambda net, param, held, numbers: held.append(param.data.reshape(-1)[1::2]),
    "write to it": lambda net, param, held, numbers: [np.negative(one, out=one) for one in held],
    "let go": lambda net, param, held, numbers: held.clear(),
    "share": shares,
    "move": lambda net, param, held, numbers: (param.lie_in(numbers), held.append(numbers)),
}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([*ACTS]), st.integers(0, 10)), max_size=12),
    st.sampled_from([(), None]),
)
def test_a_pass_has_the_bits_of_a_net_that_packs_its_weights_for_it(acts, keep):
    net, held, rng = built(keep=keep), [], np.random.default_rng(5)
    x = rng.normal(size=(1, 16, 9, 11))
    for _ in range(4):
        net.forward(x=x)
    rows = [row.name for node in net.passes.nodes for row in node.rows]
    assert rows.count("packed_gemm.pack") == 3
    for act, which in acts:
        params = [*net.named_params.values()]
        param = params[which % len(params)]
        ACTS[act](net, param, held, rng.uniform(0.5, 1.5, param.shape).astype(np.float32))
        result = net.forward(x=x)["three"].copy()
        now = built({name: one.to_host() for name, one in net.named_params.items()})
        assert result.tobytes() == now.forward(x=x)["three"].tobytes(), act


def test_weights_that_nobody_holds_are_packed_once():
    net, x = built(), np.ones((1, 16, 9, 11))
    for _ in range(6):
        net.forward(x=x)
    assert not net.passes.weights.changed
    assert re.search(r"bytes; packed weights: [\d,]{6,}$", repr(net))
    held = net.params["one"][0].data
    for _ in range(2):
        net.forward(x=x)
        assert net.passes.weights.changed
    del held
    net.forward(x=x)
    net.forward(x=x)
    assert not net.passes.weights.changed
