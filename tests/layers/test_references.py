"""Every layer type has numbers of the real Caffe, or a float64 reference of its own, or both."""

from __future__ import annotations

import ast
from pathlib import Path

import caffe_cases as cases

from minicaffe.layers import REGISTRY

TESTS = Path(__file__).parent.parent
# Of the types that Caffe's cases do not hold: the test that compares it with a slow, independent reference.
REFERENCES = {
    "Axpy": "layers/test_channels.py::test_axpy_against_the_definition",
    "BilinearInterpolation": "layers/test_flow.py::test_interpolation_against_loops",
    "BoxAnnotatorOHEM": "layers/test_rfcn.py::test_the_hardest_regions_against_loops",
    "CTCGreedyDecoder": "layers/test_sequences.py::test_decoding_against_loops",
    "CTCLoss": "layers/test_sequences.py::test_ctc_against_all_ways",
    "CompactBilinear": "layers/test_flow.py::test_compact_bilinear_against_loops",
    "ContinuationIndicator": "layers/test_sequences.py::test_an_indicator_says_where_sequences_begin",
    "Correlation": "layers/test_flow.py::test_correlation_against_loops",
    "CtcLoss": "layers/test_sequences.py::test_ctc_of_warp_ctc_against_all_ways",
    "DeformableConvolution": "layers/test_flow.py::test_deformable_convolution_against_loops",
    "DetectionOutput": "layers/test_detection.py::test_detections_against_loops",
    "FlowWarp": "layers/test_flow.py::test_a_warped_image_against_loops",
    "GELU": "ops/test_elementwise.py::test_a_row_against_the_definition",
    "GroupNorm": "layers/test_normalization.py::test_group_norm",
    "HDF5Output": "layers/test_reading.py::test_blobs_are_written_and_read_again",
    "HardSwish": "ops/test_elementwise.py::test_a_row_against_the_definition",
    "ImageData": "layers/test_reading.py::test_scaling_is_bilinear_and_opencvs_bit_for_bit",
    "Input": "net/test_given.py::test_what_an_input_holds_may_be_given_to_any_pass",
    "Interp": "ops/test_moves.py::test_interpolation_against_products",
    "LayerNorm": "layers/test_normalization.py::test_layer_norm",
    "Lstm": "layers/test_sequences.py::test_an_lstm_against_loops",
    "MaskPooling": "layers/test_mnc.py::test_a_mask_against_loops",
    "Normalize": "layers/test_normalization.py::test_normalize",
    "PSROIPooling": "layers/test_rfcn.py::test_means_of_bins_against_loops",
    "Permute": "layers/test_shape.py::test_a_layer_of_one_bottom_is_what_numpy_says",
    "PriorBox": "layers/test_detection.py::test_prior_boxes_against_loops",
    "PriorBoxClustered": "layers/test_yolo.py::test_clustered_boxes_against_loops",
    "Proposal": "layers/test_rfcn.py::test_proposals_against_loops",
    "Python": "layers/test_python.py::test_a_loss_as_in_caffes_examples",
    "ROIWarping": "layers/test_mnc.py::test_warped_regions_against_loops",
    "ROIPooling": "ops/test_roi_pool.py::test_against_loops",
    "Reorg": "layers/test_flow.py::test_places_become_channels_as_in_darknet",
    "Reverse": "layers/test_sequences.py::test_an_axis_is_turned_round",
    "ReLU6": "ops/test_elementwise.py::test_a_row_against_the_definition",
    "ShuffleChannel": "layers/test_shape.py::test_a_layer_of_one_bottom_is_what_numpy_says",
    "Silence": "layers/test_shape.py::test_split_and_silence",
    "SmoothL1Loss": "ops/test_losses.py::test_smooth_l1_against_loops",
    "Transpose": "layers/test_sequences.py::test_axes_change_places",
    "Upsample": "layers/test_shape.py::test_unpooling_undoes_max_pooling",
    "WindowData": "layers/test_reading.py::test_windows_are_caffes",
    "Yolov3DetectionOutput": "layers/test_yolo.py::test_detections_against_loops",
}


def test_no_type_is_without_a_reference():
    with_fixture = {name for name in REGISTRY if cases.names(name)}
    assert not set(REGISTRY) - with_fixture - set(REFERENCES)


def test_the_references_are_there():
    for name, where in REFERENCES.items():
        file, _, test = where.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert test in found, f"{name}: {where}"
