"""Each layer against its slow reference: of every row, and of random cases."""

from __future__ import annotations

import copy
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
    "Axpy": "core/layers/test_channels.py::test_axpy_against_the_definition",
    "BilinearInterpolation": "core/layers/test_flow.py::test_interpolation_against_loops",
    "BoxAnnotatorOHEM": "core/layers/test_rfcn.py::test_the_hardest_regions_against_loops",
    "BoxOutput": "core/layers/test_mscnn.py::test_proposed_regions_against_loops",
    "CTCGreedyDecoder": "core/layers/test_sequences.py::test_decoding_against_loops",
    "CTCLoss": "core/layers/test_sequences.py::test_ctc_against_all_ways",
    "CompactBilinear": "core/layers/test_flow.py::test_compact_bilinear_against_loops",
    "ContinuationIndicator": "core/layers/test_sequences.py::test_an_indicator_says_where_sequences_begin",
    "Correlation": "core/layers/test_flow.py::test_correlation_against_loops",
    "CtcLoss": "core/layers/test_sequences.py::test_ctc_of_warp_ctc_against_all_ways",
    "DecodeBBox": "core/layers/test_mscnn.py::test_regions_that_are_moved_against_loops",
    "DeformableConvolution": "core/layers/test_flow.py::test_deformable_convolution_against_loops",
    "DenseImageData": "interop/caffe/forks/test_segmentation.py::test_labels_are_cut_and_mirrored_with_their_pictures",
    "DetectionEvaluate": "core/layers/test_evaluate.py::test_against_loops",
    "DetectionOutput": "core/layers/test_detection.py::test_detections_against_loops",
    "FlowWarp": "core/layers/test_flow.py::test_a_warped_image_against_loops",
    "GELU": "core/ops/test_elementwise.py::test_a_row_against_the_definition",
    "GroupNorm": "core/layers/test_normalization.py::test_group_norm",
    "HDF5Output": "core/layers/test_reading.py::test_blobs_are_written_and_read_again",
    "HardSwish": "core/ops/test_elementwise.py::test_a_row_against_the_definition",
    "ImageData": "core/layers/test_reading.py::test_scaling_is_bilinear_and_opencvs_bit_for_bit",
    "ImageLabelmapData": "interop/caffe/forks/test_segmentation.py::test_labels_are_scaled_to_the_nearest_and_edges_are_not",
    "Input": "core/net/test_given.py::test_what_an_input_holds_may_be_given_to_any_pass",
    "Interp": "core/ops/test_moves.py::test_interpolation_against_products",
    "LayerNorm": "core/layers/test_normalization.py::test_layer_norm",
    "Lstm": "core/layers/test_sequences.py::test_an_lstm_against_loops",
    "MaskPooling": "core/layers/test_mnc.py::test_a_mask_against_loops",
    "MaskResize": "core/layers/test_mnc.py::test_masks_of_another_size_against_loops",
    "MultiBoxLoss": "core/layers/test_multibox.py::test_against_loops",
    "Normalize": "core/layers/test_normalization.py::test_normalize",
    "PSROIPooling": "core/layers/test_rfcn.py::test_means_of_bins_against_loops",
    "Permute": "core/layers/test_shape.py::test_a_layer_of_one_bottom_is_what_numpy_says",
    "PriorBox": "core/layers/test_detection.py::test_prior_boxes_against_loops",
    "PriorBoxClustered": "core/layers/test_yolo.py::test_clustered_boxes_against_loops",
    "Proposal": "core/layers/test_rfcn.py::test_proposals_against_loops",
    "Python": "core/layers/test_python.py::test_a_loss_as_in_caffes_examples",
    "ROIAlign": "core/layers/test_mscnn.py::test_corners_of_a_grid_against_loops",
    "ROIPooling": "core/ops/test_roi_pool.py::test_against_loops",
    "ROIWarping": "core/layers/test_mnc.py::test_warped_regions_against_loops",
    "ReLU6": "core/ops/test_elementwise.py::test_a_row_against_the_definition",
    "Reorg": "core/layers/test_flow.py::test_places_become_channels_as_in_darknet",
    "Reverse": "core/layers/test_sequences.py::test_an_axis_is_turned_round",
    "ShuffleChannel": "core/layers/test_shape.py::test_a_layer_of_one_bottom_is_what_numpy_says",
    "Silence": "core/layers/test_shape.py::test_split_and_silence",
    "SmoothL1Loss": "core/ops/test_losses.py::test_smooth_l1_against_loops",
    "SmoothL1LossOHEM": "core/layers/test_ohem.py::test_smooth_l1_of_each_region_against_loops",
    "SoftmaxWithLossOHEM": "core/layers/test_ohem.py::test_softmax_of_each_label_against_loops",
    "Transpose": "core/layers/test_sequences.py::test_axes_change_places",
    "Upsample": "core/layers/test_shape.py::test_unpooling_undoes_max_pooling",
    "VideoData": "core/layers/test_video.py::test_clips_are_the_frames_in_order",
    "WindowData": "core/layers/test_reading.py::test_windows_are_caffes",
    "Yolov3DetectionOutput": "core/layers/test_yolo.py::test_detections_against_loops",
}


def alike(got, wanted, what):
    wanted = np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape, what
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-30)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-9 * largest, err_msg=what)


def tops_of(name, layer, bottoms):
    found = REFERENCES[name](layer, *bottoms)
    return [
        np.asarray(top, np.float64) for top in (found if type(found) in (list, tuple) else [found])
    ][: layer.tops]


def slope(name, before, after, bottoms, ways, pulls):
    """How much the pulled tops grow along the ways of the bottoms and of the parameters."""
    sums, step = [], 1e-6
    for sign in (1, -1):
        moved = copy.deepcopy(before)
        moved.constants, moved.moved = after.constants, True
        ends = [
            one + sign * step * way
            for one, way in zip([*bottoms, *before.params], ways, strict=True)
        ]
        moved.params = ends[len(bottoms) :]
        tops = tops_of(name, moved, ends[: len(bottoms)])
        sums.append(sum((pull * top).sum() for pull, top in zip(pulls, tops, strict=True)))
    return (sums[0] - sums[1]) / (2 * step)


def compare(name, keys, passes, device, sloped=True):
    """The layer's tops in each pass are the reference's, and so are the parameters that it leaves and its gradients.

    These are those of `<name>_gradient` or, if there is none and they are wanted, the slope of the reference.
    """
    random, phase = np.random.default_rng(9), keys.get("phase", "TRAIN")
    keys = {"type": name, **{key: keys[key] for key in keys if key != "phase"}}
    net = net_of(keys, *passes[0], device=device, phase=phase)
    it, spec = net.layers["it"], net.steps[-1].spec
    for param in it.params:
        if param.learns:
            param.load(random.normal(size=param.shape))
    options = {
        key: spec.options.get(key, one.default) for key, one in keys_of(REGISTRY[name]).items()
    }
    layer = SimpleNamespace(**options, train=phase == "TRAIN", tops=len(spec.top))
    layer.constants, layer.moved = {}, False
    layer.params = [host(net, param.data) for param in it.params]
    for turn, bottoms in enumerate(passes):
        bottoms = [np.asarray(one, np.float64) for one in bottoms]
        layer.passes, layer.stream = turn, random_stream(1, "it", turn)
        before = copy.deepcopy(layer)
        wanted = tops_of(name, layer, bottoms)
        net.forward(**{f"b{i}": one for i, one in enumerate(bottoms)})
        for top, exact in zip(spec.top, wanted, strict=True):
            alike(host(net, net.blobs[top].data), exact, f"top {top} of {keys}")
        for i, (param, exact) in enumerate(zip(it.params, layer.params, strict=True)):
            alike(host(net, param.data), exact, f"parameter {i} of {keys}")
        gradient = GRADIENTS.get(name)
        if not it.runs_backward or not (gradient or sloped):
            continue
        pulls = [random.normal(size=top.shape) for top in wanted]
        net.clear_param_diffs()
        net.backward(**dict(zip(spec.top, pulls, strict=True)))
        blobs = [net.blobs[f"b{i}"] if needs else None for i, needs in enumerate(it.needs_gradient)]
        blobs += [param if param.learns else None for param in it.params]
        found = [blob and host(net, blob.diff) for blob in blobs]
        if gradient:
            exact = gradient(before, pulls, *bottoms)
            for i, (mine, one) in enumerate(zip(found, exact, strict=True)):
                if one is not None:
                    alike(mine, one, f"gradient {i} of {keys}")
        else:
            ways = [0 if one is None else random.normal(size=one.shape) for one in found]
            parts = [
                (diff * way).sum()
                for diff, way in zip(found, ways, strict=True)
                if diff is not None
            ]
            exact = slope(name, before, layer, bottoms, ways, pulls)
            assert sum(parts) == pytest.approx(exact, rel=1e-5, abs=1e-6), keys


@pytest.mark.parametrize(
    ("name", "keys", "bottoms"),
    [(name, *row) for name in REFERENCES for row in ROWS.get(name, [])],
)
def test_a_row_is_what_its_reference_says(name, keys, bottoms, device):
    """In float64; test_every_layer.py compares float32 with that."""
    random = np.random.default_rng(4)
    compare(name, keys, [arrays_for(bottoms, random).values()], device, sloped=False)


@pytest.mark.parametrize("name", DRAWN)
def test_a_random_case_is_what_its_reference_says(name, device):
    count, draw = DRAWN[name]
    for seed in range(count * (20 if cases.LONG else 1)):
        keys, *passes = draw(seed)
        compare(name, keys, passes, device)


def test_no_type_is_without_a_reference():
    """Numbers of the real Caffe, a reference here, or a test elsewhere."""
    with_fixture = {name for name in REGISTRY if caffe_cases.names(name)}
    assert not set(REGISTRY) - with_fixture - set(REFERENCES) - set(ELSEWHERE)
    assert not set(REFERENCES) - set(REGISTRY)
    assert not set(REFERENCES) - set(ROWS) - set(DRAWN), "a reference that nothing is compared with"
    for name, where in ELSEWHERE.items():
        file, _, test = where.partition("::")
        text = (Path(__file__).parents[2] / file).read_text()
        assert f"def {test}(" in text, f"{name}: {where}"
