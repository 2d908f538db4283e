"""Rows that are one in a replay: which are, and that a net then computes what it does layer by layer, to the bit."""

import numpy as np
import pytest
from core.solver.twins import Twins, segments
from hypothesis import given, settings
from hypothesis import strategies as st

from minicaffe import Net, Solver, parse
from minicaffe.backends.cpu import available
from minicaffe.core.solver.report import Mute
from minicaffe.errors import ShapeError

pytestmark = pytest.mark.skipif(not available(), reason="needs Numba: loops are compiled")

HEAD = "layers:\n  - {name: x, type: Input, shape: {dim: [%s]}}\n"
CONV = "  - {name: conv, type: Convolution, bottom: x, num_output: 6, kernel_size: 3}\n"
DEEP = "  - {name: conv, type: Convolution, bottom: x, num_output: 3, group: 3, kernel_size: 3}\n"
DECONV = CONV.replace("Convolution", "Deconvolution").replace(
    "3}", "3, engine: packed, bias_term: false}"
)
PACKED = CONV.replace("3}", "3, engine: packed}")
STRIDED = CONV.replace("kernel_size: 3", "kernel_size: 3, stride: 2")
BN = "  - {name: bn, type: BatchNorm, top: conv}\n"
SCALE = "  - {name: scale, type: Scale, top: conv, bias_term: true}\n"
RELU = "  - {name: relu, type: ReLU, top: conv}\n"
OTHER = "  - {name: other, type: Convolution, bottom: x, num_output: 6, kernel_size: 3}\n"
LATER = OTHER + PACKED
ADDED = (
    "  - {name: sum, type: Eltwise, bottom: [conv, other]}\n"
    "  - {name: relu2, type: ReLU, top: sum}\n"
)
SUM = OTHER + ADDED
LEAKY = RELU.replace("ReLU", "ReLU, negative_slope: 0.1")
PRELU = RELU.replace("ReLU", "PReLU")
BEHIND = "  - {name: pool, type: Pooling, kernel_size: 2}\n"
LAST = "  - {name: last, type: Softmax}\n"
ELU = RELU.replace("ReLU", "ELU, alpha: 0.5")
SWISH = "  - {name: swish, type: Swish, top: swish}\n"
POOLS = [
    BEHIND,
    "  - {name: pool, type: Pooling, kernel_size: 2, stride: 2}\n",
    "  - {name: pool, type: Pooling, kernel_size: 3, stride: 1, pad: 1}\n",
    "  - {name: pool, type: Pooling, kernel_size: 3, stride: 2, pool: AVE}\n",
]


def drawn(model, dtype, seed=0, keep=()):
    """A net whose statistics, factors and terms are of both signs, with zeros among them."""
    rng = np.random.default_rng(seed)
    net = Net(parse(model), "TEST", device="cpu", dtype=dtype, keep=keep)
    for name, param in net.named_params.items():
        param.data = rng.normal(size=param.shape) * rng.integers(0, 2, param.shape)
        if name.startswith("bn"):
            param.data = abs(rng.normal(size=param.shape)) + 0.1
    return net


def passes(net, x):
    """The outputs of passes, the first of them layer by layer, the last a replay; and what rows that has."""
    found = [{name: y.copy() for name, y in net.forward(x=x).items()} for _ in range(4)]
    assert net.passes.nodes
    return found, [what for node in net.passes.nodes for what in node.whose]


def same(found):
    return all(y.tobytes() == found[0][name].tobytes() for one in found for name, y in one.items())


@pytest.mark.parametrize(
    ("layers", "rows"),
    [
        (CONV + BN, ["conv", "bn"]),
        (CONV + BN + SCALE, ["conv", "bn to scale"]),
        (CONV + BN + SCALE + RELU, ["conv", "bn to relu"]),
        (CONV + BN + RELU, ["conv", "bn", "relu"]),
        (CONV + RELU, ["conv to relu"]),
        (CONV + BN + SCALE.replace("bias_term: true", "bias_term: false"), ["conv", "bn to scale"]),
        (CONV + RELU + SCALE, ["conv to relu", "scale"]),
        (CONV + SCALE + BN, ["conv", "scale", "bn"]),
        (CONV + BN + SCALE + LEAKY, ["conv", "bn to scale", "relu"]),
        (CONV + PRELU, ["conv", "relu"]),
        (CONV + BN + SCALE.replace("top: conv", "top: conv, axis: 0, num_axes: 2"), 2),
        (CONV + BN + SCALE.replace("top: conv", "top: apart"), ["conv", "bn", "scale"]),
        (CONV + SUM, ["conv", "other", "sum", "relu2"]),  # over what was computed last
        (CONV + SUM.replace("[conv, other]", "[conv, other, conv]"), 3),
        (CONV + ELU, ["conv", "relu"]),
        *((CONV + pool, ["conv to pool"]) for pool in POOLS),
        *((DEEP + RELU + pool, ["conv to pool"]) for pool in POOLS),
        (CONV + BEHIND + SWISH, ["conv to pool", "swish"]),
        (DEEP + RELU, ["conv to relu"]),
        (DEEP.replace("3}", "3, stride: 2}") + RELU, ["conv to relu"]),
        (DECONV + RELU, ["conv", "conv to relu"]),
        (PACKED + BN + SCALE + RELU, ["conv", "conv to relu"]),
        (PACKED + BN + SCALE + POOLS[1], ["conv", "conv to pool"]),
        (PACKED + BN + RELU, ["conv", "bn", "relu"]),
        (LATER + ADDED, ["other", "conv", "conv to relu2"]),
        (LATER + BN + SCALE + ADDED, ["other", "conv", "conv to relu2"]),
        (DECONV.replace("3,", "3, stride: 2,", 1) + RELU, 2),
    ],
)
def test_which_rows_are_one(layers, rows):
    model = HEAD % "2, 3, 7, 8" + layers + LAST
    net, x = drawn(model, "float32"), np.random.default_rng(1).normal(size=(2, 3, 7, 8))
    found, whose = passes(net, x)
    assert same(found)
    names = [what.removesuffix(" forward") for what in whose if not what.startswith("last")]
    # Winograd's convolutions have rows before it
    assert list(dict.fromkeys(names)) == rows if isinstance(rows, list) else len(names) >= rows


@settings(max_examples=40)
@given(
    n=st.integers(1, 3),
    size=st.tuples(st.integers(6, 17), st.integers(6, 17)),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 2**16),
    odd=st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan]),
    engine=st.sampled_from(["auto", "direct", "implicit", "packed", "winograd"]),
    conv=st.sampled_from([CONV, CONV.replace("6, ", "6, pad: 1, "), DEEP, STRIDED]),
    ended=st.sampled_from(
        [
            *(BN + SCALE, BN + SCALE + RELU, BN, RELU, SCALE, SUM, BN + RELU + SUM),
            *(BN + SCALE + LEAKY, PRELU, BN + PRELU + SUM),
            *(ELU, BN + SWISH, SUM + BEHIND, *(RELU + pool for pool in POOLS)),
        ]
    ),
)
def test_they_compute_what_layers_do(n, size, dtype, seed, odd, engine, conv, ended):
    x = np.random.default_rng(seed).normal(size=(n, 3, *size))
    x[0, 0, 0, 0] = odd
    ended = ended.replace("num_output: 6", "num_output: 3") if "group" in conv else ended
    if "stride" in conv:
        ended = ended.replace("type: Convolution", "type: Convolution, stride: 2")
    if "pad" in conv:
        ended = ended.replace("type: Convolution", "type: Convolution, pad: 1")
    engine = "packed" if engine == "winograd" and "stride" in conv else engine
    conv, ended = (
        layers.replace("type: Convolution", f"type: Convolution, engine: {engine}")
        for layers in (conv, ended)
    )
    net = drawn(HEAD % f"{n}, 3, {size[0]}, {size[1]}" + conv + ended, dtype, seed)
    found, whose = passes(net, x)
    assert same(found)
    if engine != "auto" and ended.startswith(RELU):
        assert any(what.startswith("conv to ") for what in whose)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("layers", "rows"),
    [
        (BN + SCALE + RELU, ["bn", "bn to relu"]),
        (BN + SCALE.replace(", bias_term: true", "") + RELU, ["bn", "bn to relu"]),
        (BN + SCALE + LEAKY, ["bn", "bn to scale", "relu"]),
        (BN + SCALE.replace("top:", "axis: 0, num_axes: 2, top:"), ["bn", "scale"]),
        (BN + RELU + SCALE, ["bn", "relu", "scale"]),
    ],
)
def test_training_scales_where_it_normalises(layers, rows, dtype):
    head = HEAD.replace("Input, shape:", "DummyData, data_filler: {type: gaussian}, shape:")
    drawn = "Scale, filler: {type: gaussian}, bias_filler: {type: gaussian}"
    model = head % "2, 3, 9, 8" + CONV + layers.replace("Scale", drawn)
    model += (
        "  - {name: loss, type: Reduction, loss_weight: 1}\nsolver: {base_lr: 0.01, max_iter: 9}\n"
    )
    twins = Twins(lambda: Solver(parse(model), device="cpu", dtype=dtype, report=Mute()))
    twins.step(6)
    assert twins.replays
    whose = [what.split(" forward") for node in segments(twins.replaying) for what in node.whose]
    names = [name for name, *ways in whose if ways and name not in ("x", "conv", "loss")]
    assert list(dict.fromkeys(names)) == rows


@pytest.mark.parametrize("keep", [None, ()])
def test_a_sum_lies_over_what_was_computed_last(keep):
    """But for blobs that somebody may look at; it is the same sum, whole or from the middle."""
    model = HEAD % "1, 3, 6, 6" + CONV + SUM + BEHIND
    x = np.random.default_rng(2).normal(size=(1, 3, 6, 6))
    net = drawn(model, "float32", keep=keep)
    over = [net.layers[name].out[0].ctypes.data for name in ("other", "sum")]
    assert (over[0] == over[1]) == (keep is not None)
    found, _ = passes(net, x)
    assert same(found)
    net.forward(end="other", x=x)
    assert net.blobs["other"].data.any() and net.blobs["conv"].data.any()
    assert same([found[0], {name: y.copy() for name, y in net.forward(start="sum").items()}])
    if keep is not None:
        with pytest.raises(ShapeError, match="other"):
            net.forward(start="sum")


def test_what_somebody_keeps_is_there():
    """A blob that is looked at holds what it would."""
    model = HEAD % "1, 3, 6, 6" + CONV + BN + SCALE + RELU + BEHIND
    x = np.random.default_rng(2).normal(size=(1, 3, 6, 6))
    net, whole = drawn(model, "float32", keep=("conv",)), drawn(model, "float32", keep=None)
    passes(net, x)
    whole.forward(x=x)
    assert np.array_equal(net.blobs["conv"].data, whole.blobs["conv"].data)


def test_a_factor_that_is_changed_counts():
    """It is read where it lies, in each replay."""
    model = HEAD % "1, 3, 6, 6" + CONV + BN + SCALE + RELU + BEHIND
    x = np.random.default_rng(3).normal(size=(1, 3, 6, 6))
    net = drawn(model, "float32")
    before = passes(net, x)[0][0]
    for name in ("scale__0", "bn__0"):
        data = net.named_params[name].data
        data *= 2
        twin = drawn(model, "float32")
        twin.load(net.weights())
        now = {k: v.copy() for k, v in net.forward(x=x).items()}
        assert same([now, {k: v.copy() for k, v in twin.forward(x=x).items()}])
        assert not same([now, before])


@pytest.mark.parametrize("n", [1, 2])
def test_what_is_joined_lies_side_by_side(n):
    """Of one sample; but what is read later, or twice, is copied."""
    joined = (
        "  - {name: both, type: Concat, bottom: [%s]}\n  - {name: relu2, type: ReLU, top: both}\n"
    )
    other = CONV.replace("conv,", "other,").replace("num_output: 6", "num_output: 4")
    for bottoms, behind, copies in (
        ("conv, other", BEHIND, 2 * (n > 1)),
        ("conv, other, conv", BEHIND, 3),
        ("conv, other", "  - {name: late, type: Power, bottom: conv}\n", 2),
    ):
        model = HEAD % f"{n}, 3, 10, 10" + CONV + other + joined % bottoms + behind
        x = np.random.default_rng(4).normal(size=(n, 3, 10, 10))
        net, whole = drawn(model, "float32"), drawn(model, "float32", keep=None)
        found, whose = passes(net, x)
        assert same([*found, {name: y.copy() for name, y in whole.forward(x=x).items()}])
        assert whose.count("both forward") == copies
        assert net.memory.sharing.size <= net.memory.sharing.before
