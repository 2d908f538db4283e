"""Each layer against its slow reference: of every row, and of random cases."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace

import caffe_cases
import numpy as np
import pytest
from core.layers.references import DRAWN, GRADIENTS, REFERENCES
from core.layers.rows import ROWS
from core.ops import cases
from kit import arrays_for, host, net_of

from minicaffe.core.config.types import keys_of
from minicaffe.core.layers import REGISTRY
from minicaffe.core.ops.random import random_stream

# Of types that read files, write them, or compute nothing: the tests that stand for a reference.
ELSEWHERE = {
    "AnnotatedData": "core/layers/test_annotated.py::test_boxes_stay_on_their_objects",
    "DenseImageData": "interop/caffe/forks/test_segmentation.py::test_labels_are_cut_and_mirrored_with_their_pictures",
    "HDF5Output": "core/layers/test_reading.py::test_blobs_are_written_and_read_again",
    "ImageData": "core/layers/test_reading.py::test_scaling_is_bilinear_and_opencvs_bit_for_bit",
    "ImageLabelmapData": "interop/caffe/forks/test_segmentation.py::test_labels_are_scaled_to_the_nearest_and_edges_are_not",
    "Input": "core/net/test_given.py::test_what_an_input_holds_may_be_given_to_any_pass",
    "Python": "core/layers/test_python.py::test_a_loss_as_in_caffes_examples",
    "Silence": "core/layers/test_shape.py::test_split_and_silence",
    "VideoData": "core/layers/test_video.py::test_clips_are_the_frames_in_order",
    "WindowData": "core/layers/test_reading.py::test_windows_are_caffes",
}


class Compared:
    """A net of the layer, with what its reference is told of it: see references/."""

    def __init__(self, name, keys, bottoms, device, dtype="float64"):
        options, phase = {"type": name, **keys}, keys.get("phase", "TRAIN")
        options.pop("phase", None)
        self.name, self.keys, self.dtype = name, f"{name} {keys} in {dtype}", dtype
        self.random = np.random.default_rng(9)
        self.net = net_of(options, *bottoms, device=device, phase=phase, dtype=dtype)
        self.it, spec = self.net.layers["it"], self.net.steps[-1].spec
        for param in self.it.params:
            if param.learns:
                each = math.sqrt(math.prod(param.shape[1:]))
                param.load(self.random.normal(size=param.shape) / each)
        every = keys_of(REGISTRY[name]).items()
        self.layer = SimpleNamespace(
            **{key: spec.options.get(key, one.default) for key, one in every},
            params=[host(self.net, param.data) for param in self.it.params],
            train=phase == "TRAIN",
            tops=len(spec.top),
            constants={},
            moved=False,
        )
        self.tops = spec.top

    def alike(self, blob, wanted, what, part="data"):
        got, wanted = host(self.net, getattr(blob, part)), np.asarray(wanted, np.float64)
        assert got.shape == wanted.shape, f"{what} of {self.keys}"
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-4)
        near = {"float64": 1e-9, "float32": 1e-4}[self.dtype] * largest
        np.testing.assert_allclose(got, wanted, rtol=0, atol=near, err_msg=f"{what} of {self.keys}")

    def wanted(self, layer, bottoms):
        found = REFERENCES[self.name](layer, *bottoms)
        tops = found if isinstance(found, tuple) else (found,)
        return [np.asarray(top, np.float64) for top in tops][: layer.tops]

    def forward(self, bottoms, passes):
        """The tops and the parameters that a pass leaves are the reference's."""
        self.bottoms = [np.asarray(one, self.dtype).astype(np.float64) for one in bottoms]
        self.layer.passes, self.layer.stream = passes, random_stream(1, "it", passes)
        self.before = copy.deepcopy(self.layer)
        wanted = self.wanted(self.layer, self.bottoms)
        self.net.forward(**{f"b{i}": one for i, one in enumerate(self.bottoms)})
        self.pulls = [self.random.normal(size=top.shape) for top in wanted]
        for top, exact in zip(self.tops, wanted, strict=True):
            self.alike(self.net.blobs[top], exact, f"top {top}")
        for i, (param, exact) in enumerate(zip(self.it.params, self.layer.params, strict=True)):
            self.alike(param, exact, f"parameter {i}")

    def backward(self, sloped):
        """The gradients are those of `<name>_gradient` or, if there is none, the slope of the reference."""
        gradient = GRADIENTS.get(self.name)
        if not self.it.runs_backward or not (gradient or sloped):
            return
        self.net.clear_param_diffs()
        self.net.backward(**dict(zip(self.tops, self.pulls, strict=True)))
        blobs = [self.net.blobs[f"b{i}"] for i in range(len(self.bottoms))]
        learns = [*self.it.needs_gradient, *(param.learns for param in self.it.params)]
        blobs = [
            blob if one else None
            for blob, one in zip([*blobs, *self.it.params], learns, strict=True)
        ]
        if gradient:
            exact = gradient(self.before, self.pulls, *self.bottoms)
            for i, (blob, one) in enumerate(zip(blobs, exact, strict=True)):
                if one is not None:
                    self.alike(blob, one, f"gradient {i}", "diff")
            return
        ways = [0 if blob is None else self.random.normal(size=blob.shape) for blob in blobs]
        parts = [
            (host(self.net, blob.diff) * way).sum()
            for blob, way in zip(blobs, ways, strict=True)
            if blob
        ]
        assert sum(parts) == pytest.approx(self.slope(ways), rel=1e-5, abs=1e-6), self.keys

    def slope(self, ways):
        """How much the pulled tops grow along the ways of the bottoms and of the parameters."""
        sums, step, given = [], 1e-6, [*self.bottoms, *self.before.params]
        for sign in (step, -step):
            moved = copy.deepcopy(self.before)
            moved.constants, moved.moved = self.layer.constants, True
            ends = [one + sign * way for one, way in zip(given, ways, strict=True)]
            moved.params = ends[len(self.bottoms) :]
            tops = self.wanted(moved, ends[: len(self.bottoms)])
            sums.append(sum((pull * top).sum() for pull, top in zip(self.pulls, tops, strict=True)))
        return (sums[0] - sums[1]) / (2 * step)


@pytest.mark.parametrize(
    ("name", "keys", "bottoms"),
    [
        (name, *row)
        for name, reference in REFERENCES.items()
        for row in ROWS.get(name, [])
        if getattr(reference, "takes", lambda keys: True)(row[0])
    ],
)
def test_a_row_is_what_its_reference_says(name, keys, bottoms, device):
    """In float64; test_16_bits.py compares other types with that, test_every_layer.py gradients with slopes."""
    one = Compared(name, keys, bottoms, device)
    one.forward(arrays_for(bottoms, np.random.default_rng(4)).values(), 0)
    one.backward(sloped=False)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", DRAWN)
def test_a_random_case_is_what_its_reference_says(name, device, dtype):
    draw, count, sloped = DRAWN[name]
    for seed in range(0, count * (20 if cases.LONG else 1), 1 if dtype == "float64" else 2):
        keys, *passes = draw(seed)
        one = Compared(name, keys, passes[0], device, dtype)
        for i, bottoms in enumerate(passes):
            one.forward(bottoms, i)
            if dtype == "float64":
                one.backward(sloped)


def test_no_type_is_without_a_reference():
    """Numbers of the real Caffe, a reference here, or a test elsewhere."""
    with_fixture = {name for name in REGISTRY if caffe_cases.names(name)}
    assert not set(REGISTRY) - with_fixture - set(REFERENCES) - set(ELSEWHERE)
    assert not set(REFERENCES) - set(REGISTRY)
    assert not set(REFERENCES) - set(ROWS) - set(DRAWN), "a reference that nothing is compared with"
    for name, where in ELSEWHERE.items():
        file, _, test = where.partition("::")
        assert f"def {test}(" in (Path(__file__).parents[2] / file).read_text(), f"{name}: {where}"
