"""Layers with a fault each, and what the dry run must say of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dry_run.cases import Case
from minicaffe import Layer, register
from minicaffe.backends.cuda.launch import launch
from minicaffe.core.ops.gemm import gemm

FAULTS: dict[str, str] = {}  # the name of a layer -> what is to be complained of


def fault(expected: str) -> Callable[[Any], None]:
    """Make a layer of a forward pass that does something wrong."""

    def make(wrong: Callable[[Any, Any], Any]) -> None:
        def forward(self: Any, x: Any) -> Any:
            self.xp.copyto(self.out[0], x)
            wrong(self, x)
            return self.out[0]

        name = wrong.__name__.title().replace("_", "")
        body = {"__doc__": expected, "setup": lambda self, x: x, "forward": forward}
        register(type(name, (Layer,), body))
        FAULTS[name] = expected

    return make


def cases() -> dict[str, Case]:
    """A net of each."""
    text = """
layers:
  - {name: x, type: Input, shape: {dim: [4, 6]}}
  - {name: wrong, type: NAME}
"""
    return {name: Case(text.replace("NAME", name), types=("float32",)) for name in FAULTS}


@fault("takes memory")
def returns_an_array_of_its_own(layer, x):
    layer.out[0] += 2 * x


@fault("takes memory: allocation CUB's work for sum")
def lets_cub_sum(layer, x):
    layer.xp.sum(x, axis=1, out=layer.out[0][:, 0])


@fault("CuPy copies an operand that overlaps the result")
def has_two_views_of_one_array(layer, x):
    layer.xp.multiply(layer.out[0][...], 2, out=layer.out[0])


@fault("waits for the device")
def looks_at_a_number(layer, x):
    assert not x[0, 0].get()


@fault("not page-locked")
def copies_from_the_host(layer, x):
    layer.out[0].set(np.zeros(x.shape, x.dtype))


@fault("1 uploads, 0 at the most")
def copies_what_no_data_layer_does(layer, x):
    layer.context.device.copy_from_host(layer.out[0], np.zeros(x.shape))


@fault("copies an array onto itself")
def copies_onto_itself(layer, x):
    layer.xp.copyto(layer.out[0], layer.out[0].reshape(x.shape))


@fault("cupy_multiply")
def is_never_the_same(layer, x):
    layer.xp.multiply(x, layer.context.passes, out=layer.out[0])


@fault("a step of 2 operations, then one of 3")
def does_something_every_other_time(layer, x):
    if layer.context.passes % 2 == 0:
        layer.out[0].fill(0)


@fault("Cannot cast")
def puts_numbers_into_booleans(layer, x):
    layer.xp.add(x, x, out=layer.xp.empty(x.shape, bool))


@fault("update takes 12")
def gives_a_kernel_too_few_arguments(layer, x):
    launch("update", x.size, x, x, of=("sgd",))


@fault("update: <class 'float'> for a float")
def gives_a_kernel_a_number_of_python(layer, x):
    given = x, x, x, None, None, 3, None, 1, 1, 0.5, x
    launch("update", x.size, x, *given, of=("sgd",))


@fault("softmax_loss_gradient: strides (24, 8) of (4, 3)")
def gives_a_kernel_an_array_with_gaps(layer, x):
    every = layer.out[0]
    given = every, every[:, ::2], 6, 1, 0, 0, every, every, every
    launch("softmax_loss_gradient", 4, x, *given)


@fault("behind 24 bytes")
def multiplies_beyond_its_array(layer, x):
    row = layer.out[0][3]
    gemm(row.reshape(1, 6), beyond(row), layer.out[0][:1])


@fault("an operand overlaps the product")
def multiplies_into_an_operand(layer, x):
    gemm(layer.out[0][:, :4], layer.out[0][:, :4], layer.out[0][:, :4])


def beyond(row):
    """A matrix that begins at a row, and ends behind its array."""
    from cupy.lib.stride_tricks import as_strided

    return as_strided(row, (6, 6), (24, 4))
