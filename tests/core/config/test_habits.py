"""What other frameworks call a layer or a key is answered with what it is here."""

from kit import refusal

from minicaffe import parse
from minicaffe.core.config.declare import SolverSpec
from minicaffe.core.config.types import NAMES, keys_of
from minicaffe.core.layers import REGISTRY


def test_a_type_of_layer():
    for word, hint in {
        "Conv": "'Convolution'", "Conv2d": "'Convolution'", "Linear": "'InnerProduct'",
        "Dense": "'InnerProduct'", "BatchNormalization": "'BatchNorm'", "BatchNorm2d": "'BatchNorm'",
        "MaxPool": "'Pooling' with pool: MAX", "AveragePooling2D": "'Pooling' with pool: AVE",
        "CrossEntropyLoss": "'SoftmaxWithLoss'", "Convolutoin": "'Convolution'",
    }.items():  # fmt: skip
        said = refusal(parse, f"layers: [{{name: a, type: {word}}}]", "m.yaml")
        assert said == f"m.yaml:1:26: layer 'a': unknown type '{word}'; did you mean {hint}?"


def test_a_key():
    for text, hint in {
        "layers: [{name: a, type: Convolution, filters: 3}]": "'num_output'?",
        "layers: [{name: a, type: Pooling, padding: 3}]": "'pad'?",
        "layers: [{name: x, type: Exp}]\nsolver: {lr: 1}": "'base_lr'?",
        "layers: [{name: x, type: Exp}]\nsolver: {epochs: 1}": "'max_iter' (--epochs counts in epochs)?",
    }.items():
        said = refusal(parse, text, "m.yaml")
        assert "unknown key" in said and said.endswith(f"; did you mean {hint}")


def test_each_word_means_something_that_is_there():
    keys = {key for cls in REGISTRY.values() for key in keys_of(cls)} | set(keys_of(SolverSpec))
    assert {name.split()[0] for name in NAMES} <= {*REGISTRY, *keys}
