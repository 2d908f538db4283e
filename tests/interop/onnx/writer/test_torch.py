"""A net's parameters as PyTorch's state_dict: what is written, and that PyTorch's modules give the same numbers."""

import json
import sys

import numpy as np
import pytest
from kit import refusal, rows

from minicaffe import CheckpointError, Net, SpecError, parse
from minicaffe.errors import pip_install
from minicaffe.interop.torch import torch as state_dict

RNG = np.random.default_rng(5)


def net_of(shape, layer, **more_inputs):
    """A net of one layer `it`, every parameter drawn; a BatchNorm's variance and count are above 0."""
    inputs = {"x": shape, **more_inputs}
    lines = ["layers:"]
    for name, dim in inputs.items():
        lines.append(f"  - {{name: {name}, type: Input, shape: {{dim: {list(dim)}}}}}")
    lines.append(f"  - {{name: it, bottom: [{', '.join(inputs)}], {layer}}}")
    net = Net(parse("\n".join(lines)), "TEST", device="cpu", dtype="float64")
    for param in net.layers["it"].params:
        param.load(RNG.uniform(0.5, 2, param.shape))
    return net


def keys(net):
    return {e.key: e.array for module in state_dict.modules(net) for e in module.entries}


@pytest.mark.parametrize(
    ("shape", "layer", "call"),  # the bottom's, ours, PyTorch's
    rows("""
        [2, 4, 5, 6] | type: Convolution, num_output: 3, kernel_size: 3 | Conv2d(4, 3, kernel_size=(3, 3))
        [2, 4, 5, 6] | type: Convolution, num_output: 6, kernel_size: [3, 2], stride: 2, pad: [1, 0], dilation: [1, 2], group: 2, bias_term: false | Conv2d(4, 6, kernel_size=(3, 2), stride=(2, 2), padding=(1, 0), dilation=(1, 2), groups=2, bias=False)
        [2, 3, 7] | type: Convolution, num_output: 2, kernel_size: 3 | Conv1d(3, 2, kernel_size=(3,))
        [2, 3, 4, 3, 4] | type: Convolution, num_output: 2, kernel_size: [2, 1, 2] | Conv3d(3, 2, kernel_size=(2, 1, 2))
        [2, 4, 5, 6] | type: Deconvolution, num_output: 6, kernel_size: 4, stride: 2, pad: 1, group: 2 | ConvTranspose2d(4, 6, kernel_size=(4, 4), stride=(2, 2), padding=(1, 1), groups=2)
        [3, 4] | type: InnerProduct, num_output: 5 | Linear(4, 5)
        [3, 4] | type: InnerProduct, num_output: 5, transpose: true, bias_term: false | Linear(4, 5, bias=False)
        [2, 4, 5, 6] | type: BatchNorm | BatchNorm2d(4, momentum=0.001, affine=False)
        [3, 4, 7] | type: BatchNorm, eps: 0.1, moving_average_fraction: 0.9, scale_bias: true | BatchNorm1d(4, eps=0.1)
        [2, 4, 5, 6] | type: PReLU | PReLU(4)
        [3, 4] | type: PReLU, channel_shared: true | PReLU(1)
        [3, 4, 5] | type: LayerNorm, axis: 1, eps: 0.1 | LayerNorm((4, 5), eps=0.1)
        [3, 5] | type: LayerNorm, bias_term: false | LayerNorm((5,), bias=False)
        [2, 4, 5, 6] | type: GroupNorm, num_groups: 2 | GroupNorm(2, 4)
    """),
)
def test_a_module_of_pytorch_with_the_written_entries_gives_our_numbers(shape, layer, call):
    shape = json.loads(shape)
    net = net_of(shape, layer)
    (module,) = state_dict.modules(net)
    assert module.made_by == call and module.name == "it"
    torch = pytest.importorskip("torch")
    theirs = built(torch, module)
    x = RNG.normal(size=shape)
    with torch.no_grad():
        wanted = theirs(torch.from_numpy(x)).numpy()
    assert np.allclose(net.forward(x=x)["it"], wanted, rtol=0, atol=1e-12)


def built(torch, module):
    """The module that the mapping tells of, with what was written; every key must be there, and no other."""
    made = eval(module.made_by, vars(torch.nn)).double().eval()
    prefix = f"{module.name}."
    arrays = {e.key.removeprefix(prefix): torch.from_numpy(e.array) for e in module.entries}
    made.load_state_dict(arrays, strict=True)
    return made


def test_a_scale_behind_a_batch_norm_becomes_its_weight_and_bias():
    net = Net(parse("""
layers:
  - {name: x, type: Input, shape: {dim: [2, 3, 4, 4]}}
  - {name: bn, type: BatchNorm, bottom: x, eps: 0.5}
  - {name: scale, type: Scale, bottom: bn, top: bn, bias_term: true}
  - {name: alone, type: Scale, bottom: bn}
"""), "TEST", device="cpu", dtype="float64")  # fmt: skip
    values = {name: RNG.uniform(1, 2, p.shape) for name, p in net.named_params.items()}
    net.load(values)
    bn, alone = state_dict.modules(net)
    assert bn.made_by == "BatchNorm2d(3, eps=0.5, momentum=0.001)"
    assert alone.made_by is None and "x * weight + bias, from axis 1 on" in str(alone)
    found = keys(net)
    assert list(found) == [
        "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked", "alone.weight",
    ]  # fmt: skip
    assert np.array_equal(found["bn.weight"], values["scale__0"])
    assert np.allclose(found["bn.running_var"], values["bn__1"] / values["bn__2"])
    assert "bn__0 (3,) and bn__2 (1,) -> bn.running_mean (3,)" in str(bn)
    torch = pytest.importorskip("torch")
    x = RNG.normal(size=(2, 3, 4, 4))
    with torch.no_grad():
        wanted = built(torch, bn)(torch.from_numpy(x)).numpy()
    net.forward(x=x, end="scale")
    assert np.allclose(net.blobs["bn"].data, wanted, rtol=0, atol=1e-12)


SCALES = ["axis: 0, num_axes: 2", "axis: 2", "num_axes: 0", "bottom: [bn, own]"]


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_that_is_not_by_channel_stays_apart(scale):
    bottom = "" if "bottom" in scale else "bottom: bn, "
    net = Net(parse(f"""
layers:
  - {{name: x, type: Input, shape: {{dim: [3, 3, 3, 3]}}}}
  - {{name: own, type: Input, shape: {{dim: [3]}}}}
  - {{name: bn, type: BatchNorm, bottom: x}}
  - {{name: scale, type: Scale, {bottom}{scale}}}
"""), "TEST", device="cpu")  # fmt: skip
    assert state_dict.modules(net)[0].made_by.endswith("affine=False)")


def test_a_batch_norm_without_a_count_has_seen_nothing():
    net = net_of((2, 3), "type: BatchNorm")
    net.params["it"][2].load(np.zeros(1))
    assert not keys(net)["it.running_var"].any()


def test_lstm_gates_come_in_pytorchs_order():
    net = net_of((4, 2, 3), "type: LSTM, num_output: 5", cont=(4, 2))
    (module,) = state_dict.modules(net)
    assert module.made_by == "LSTM(3, 5)"
    ours, found = net.params["it"][0].data, keys(net)["it.weight_ih_l0"]
    for theirs, gate in enumerate((0, 1, 3, 2)):  # i, f, g, o of i, f, o, g
        assert np.array_equal(found[5 * theirs : 5 * theirs + 5], ours[5 * gate : 5 * gate + 5])
    torch = pytest.importorskip("torch")
    x = RNG.normal(size=(4, 2, 3))
    with torch.no_grad():
        wanted = built(torch, module)(torch.from_numpy(x))[0].numpy()
    cont = np.ones((4, 2))
    cont[0] = 0
    assert np.allclose(net.forward(x=x, cont=cont)["it"], wanted, rtol=0, atol=1e-12)


def test_an_rnn_is_two_modules():
    net = net_of((4, 2, 3), "type: RNN, num_output: 5", cont=(4, 2))
    hidden, out = state_dict.modules(net)
    assert (hidden.made_by, out.name, out.made_by) == ("RNN(3, 5)", "it_out", "Linear(5, 5)")
    torch = pytest.importorskip("torch")
    x, cont = RNG.normal(size=(4, 2, 3)), np.ones((4, 2))
    with torch.no_grad():
        h = built(torch, hidden)(torch.from_numpy(x))[0]
        wanted = torch.tanh(built(torch, out)(h)).numpy()
    assert np.allclose(net.forward(x=x, cont=cont)["it"], wanted, rtol=0, atol=1e-12)


def test_embed_is_an_embedding_and_a_bias():
    net = net_of((2, 3), "type: Embed, input_dim: 6, num_output: 4")
    rows, bias = state_dict.modules(net)
    assert (rows.made_by, bias.made_by, bias.name) == ("Embedding(6, 4)", None, "it_bias")
    torch = pytest.importorskip("torch")
    x = np.array([[0, 5, 2], [1, 1, 4]])
    with torch.no_grad():
        wanted = built(torch, rows)(torch.from_numpy(x)).numpy() + bias.entries[0].array
    assert np.allclose(net.forward(x=x)["it"], wanted)


def test_what_pytorch_has_no_module_for_is_written_as_it_is():
    for layer in ("type: Normalize", "type: Bias", "type: Scale, axis: 0, num_axes: 2"):
        net = net_of((2, 3), layer)
        (module,) = state_dict.modules(net)
        assert module.made_by is None
        assert "it: no module of PyTorch's; the arrays are as they were" in str(module)
        assert np.array_equal(module.entries[0].array, net.params["it"][0].data)
    net = net_of((4, 2, 3), "type: LSTM, num_output: 5", cont=(4, 2), static=(2, 3))
    assert state_dict.modules(net)[0].made_by is None
    assert keys(net)["it.weight_static"].shape == (20, 3)


NET = """
name: small
layers:
  - {name: x, type: Input, shape: {dim: [1, 2, 5, 5]}}
  - {name: conv/a.b, type: Convolution, num_output: 3, kernel_size: 3}
  - {name: ip, type: InnerProduct, num_output: 4}
"""


def test_the_file_holds_every_array_under_its_key(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    net = Net(parse(NET), device="cpu")
    made = state_dict.write(net, tmp_path / "small.safetensors")
    found = safetensors.load_file(tmp_path / "small.safetensors")
    assert list(map(str, made[1:])) == [
        "ip: Linear(27, 4)  # of x.flatten(1)\n"
        "  ip__0 (4, 27) -> ip.weight (4, 27)\n  ip__1 (4,) -> ip.bias (4,)"
    ]
    assert sorted(found) == ["conv/a_b.bias", "conv/a_b.weight", "ip.bias", "ip.weight"]
    for name, key in (("conv/a.b__0", "conv/a_b.weight"), ("ip__1", "ip.bias")):
        assert found[key].dtype == np.float32
        assert np.array_equal(found[key], net.named_params[name].data)


def test_refusals_leave_nothing_behind(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    target = tmp_path / "net.safetensors"
    without = NET.replace("small", "empty").partition("  - {name: conv")[0]
    texts = (NET, NET.replace("name: ip,", "name: conv/a_b,"), without)
    net, twice, empty = (Net(parse(text), device="cpu") for text in texts)
    for given, path, error, told in (
        (empty, target, SpecError, "net 'empty' has no parameters to write"),
        (twice, target, SpecError, "two layers would be named 'conv/a_b' in PyTorch"),
        (net, tmp_path / "none" / "net.safetensors", CheckpointError, "cannot be written"),
        (net, tmp_path / "net.pt", CheckpointError, "net.pt: expected a name that ends in .safetensors"),
    ):  # fmt: skip
        assert told in refusal(state_dict.write, given, path, error=error)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    told = refusal(state_dict.write, net, target, error=CheckpointError)
    assert pip_install("safetensors") in told
    assert not list(tmp_path.iterdir())
