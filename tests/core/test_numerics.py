"""How a net computes: one argument of Net, Solver and Classifier, or its fields by name."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from minicaffe import Classifier, Net, Numerics, Solver, SpecError, parse
from minicaffe.core.config.types import keys_of

NET = """
name: small
solver: {base_lr: 0.1, max_iter: 2, test_interval: 1, test_iter: 1}
layers:
  - {name: data, type: Data, top: [data, label], source: digits, batch_size: 2}
  - {name: conv, type: Convolution, num_output: 2, kernel_size: 3}
  - {name: ip, type: InnerProduct, num_output: 10}
  - {name: loss, type: SoftmaxWithLoss, bottom: [ip, label]}
"""
OTHERS = {
    "dtype": "float64",
    "precision": "tf32",
    "engine": "caffe",
    "workspace_cap": 2**20,
    "deterministic": True,
}


def test_each_field_reaches_every_net_as_one_argument_and_by_name(few_digits):
    assert list(OTHERS) == list(keys_of(Numerics))
    model, wanted = parse(NET), replace(Numerics(**OTHERS), dtype=np.dtype("float64"))
    for how in ({"numerics": Numerics(**OTHERS)}, OTHERS):
        solver = Solver(model, device="cpu", **how)
        net, used = (kind(model, device="cpu", **how) for kind in (Net, Classifier))
        for one in (net, pickle.loads(pickle.dumps(net)), solver.net, solver.test_net, used.net):
            numerics = replace(one.context.numerics, precision="tf32")  # a CPU has none
            assert numerics == wanted and one.context.dtype == np.float64
            assert set(one.layers["conv"].plan.names.values()) == {"caffe"}


def test_a_field_by_name_is_taken_instead_of_that_of_the_argument(few_digits):
    numerics = Numerics(engine="caffe", dtype="float64")
    net = Net(parse(NET), device="cpu", numerics=numerics, dtype="float32")
    assert (net.context.dtype, net.context.numerics.engine) == (np.float32, "caffe")


def test_without_it_the_models_own_are_taken_and_a_classifier_measures_nothing(few_digits):
    model = parse(NET.replace("name: small", "dtype: float64"))
    wanted = Numerics(dtype=np.dtype("float64"), precision="high")
    assert Net(model, device="cpu").context.numerics == wanted
    assert Classifier(model, device="cpu").net.context.numerics.deterministic
    measured = Classifier(model, device="cpu", deterministic=False).net
    assert not measured.context.numerics.deterministic


def test_wrong_names_are_refused():
    with pytest.raises(TypeError, match="enigne"):
        Net(parse(NET), enigne="caffe")
    with pytest.raises(SpecError, match="unknown engine 'cafe'; expected one of .*; did you mean"):
        Numerics(engine="cafe")
    with pytest.raises(SpecError, match="enigne"):
        Solver(parse(NET), enigne="caffe")
