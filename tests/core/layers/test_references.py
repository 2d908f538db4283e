"""Every layer type has numbers of the real Caffe, or a float64 reference of its own, or both."""

from __future__ import annotations

import ast
from pathlib import Path

import caffe_cases as cases

from minicaffe.core.layers import REGISTRY

TESTS = Path(__file__).parent.parent.parent
FACES = "interop/caffe/forks/test_faces.py::test_"
METRICS = "interop/caffe/forks/test_metrics.py::test_"
SEGMENTATION = "interop/caffe/forks/test_segmentation.py::test_"
# Of the types that Caffe's cases do not hold: the test that compares it with a slow, independent reference.
REFERENCES = {
    **dict.fromkeys(("L1Loss", "ManhattanLoss"), f"{METRICS}sums_of_magnitudes_against_loops"),
    "AnnotatedData": "core/layers/test_annotated.py::test_boxes_stay_on_their_objects",
    "Axpy": "core/layers/test_channels.py::test_axpy_against_the_definition",
    "BatchTripletLoss": f"{METRICS}triplets_against_loops",
    "BilinearInterpolation": "core/layers/test_flow.py::test_interpolation_against_loops",
    "BoxAnnotatorOHEM": "core/layers/test_rfcn.py::test_the_hardest_regions_against_loops",
    "BoxOutput": "core/layers/test_mscnn.py::test_proposed_regions_against_loops",
    "CenterLoss": f"{FACES}center_loss_against_loops",
    "CompactBilinear": "core/layers/test_flow.py::test_compact_bilinear_against_loops",
    "ContinuationIndicator": "core/layers/test_sequences.py::test_an_indicator_says_where_sequences_begin",
    "Correlation": "core/layers/test_flow.py::test_correlation_against_loops",
    "CTCGreedyDecoder": "core/layers/test_sequences.py::test_decoding_against_loops",
    "CTCLoss": "core/layers/test_sequences.py::test_ctc_against_all_ways",
    "CtcLoss": "core/layers/test_sequences.py::test_ctc_of_warp_ctc_against_all_ways",
    "DecodeBBox": "core/layers/test_mscnn.py::test_regions_that_are_moved_against_loops",
    "DeformableConvolution": "core/layers/test_flow.py::test_deformable_convolution_against_loops",
    "DenseImageData": f"{SEGMENTATION}labels_are_cut_and_mirrored_with_their_pictures",
    "DetectionEvaluate": "core/layers/test_evaluate.py::test_against_loops",
    "DetectionOutput": "core/layers/test_detection.py::test_detections_against_loops",
    "DiceCoefLoss": f"{METRICS}dice_loss_against_loops",
    "DilatedPooling": f"{SEGMENTATION}dilated_pooling_against_loops",
    "EntropyLoss": f"{METRICS}entropy_against_loops",
    "Flip": f"{FACES}flip_against_loops",
    "FlowWarp": "core/layers/test_flow.py::test_a_warped_image_against_loops",
    "GELU": "core/ops/test_elementwise.py::test_a_row_against_the_definition",
    "GroupNorm": "core/layers/test_normalization.py::test_group_norm",
    "HDF5Output": "core/layers/test_reading.py::test_blobs_are_written_and_read_again",
    "HardSwish": "core/ops/test_elementwise.py::test_a_row_against_the_definition",
    "ImResize": f"{SEGMENTATION}im_resize_against_loops",
    "ImageData": "core/layers/test_reading.py::test_scaling_is_bilinear_and_opencvs_bit_for_bit",
    "ImageLabelmapData": f"{SEGMENTATION}labels_are_scaled_to_the_nearest_and_edges_are_not",
    "InnerDistance": f"{FACES}inner_distance_against_loops",
    "Input": "core/net/test_given.py::test_what_an_input_holds_may_be_given_to_any_pass",
    "Interp": "core/ops/test_moves.py::test_interpolation_against_products",
    "JMMDLoss": f"{METRICS}joint_mmd_against_loops",
    "L2Norm": f"{METRICS}rows_of_length_1_against_loops",
    "LayerNorm": "core/layers/test_normalization.py::test_layer_norm",
    "Lstm": "core/layers/test_sequences.py::test_an_lstm_against_loops",
    "MarginInnerProduct": f"{FACES}margin_inner_product_against_loops",
    "MaskPooling": "core/layers/test_mnc.py::test_a_mask_against_loops",
    "MaskResize": "core/layers/test_mnc.py::test_masks_of_another_size_against_loops",
    "MMDLoss": f"{METRICS}mmd_against_loops",
    "MultiBoxLoss": "core/layers/test_multibox.py::test_against_loops",
    "Normalize": "core/layers/test_normalization.py::test_normalize",
    "PSROIPooling": "core/layers/test_rfcn.py::test_means_of_bins_against_loops",
    "Permute": "core/layers/test_shape.py::test_a_layer_of_one_bottom_is_what_numpy_says",
    "PriorBox": "core/layers/test_detection.py::test_prior_boxes_against_loops",
    "PriorBoxClustered": "core/layers/test_yolo.py::test_clustered_boxes_against_loops",
    "Proposal": "core/layers/test_rfcn.py::test_proposals_against_loops",
    "Python": "core/layers/test_python.py::test_a_loss_as_in_caffes_examples",
    "ROIAlign": "core/layers/test_mscnn.py::test_corners_of_a_grid_against_loops",
    "ROIWarping": "core/layers/test_mnc.py::test_warped_regions_against_loops",
    "ROIPooling": "core/ops/test_roi_pool.py::test_against_loops",
    "Reorg": "core/layers/test_flow.py::test_places_become_channels_as_in_darknet",
    "Reverse": "core/layers/test_sequences.py::test_an_axis_is_turned_round",
    "ReLU6": "core/ops/test_elementwise.py::test_a_row_against_the_definition",
    "SegAccuracy": f"{SEGMENTATION}segmentation_accuracy_against_loops",
    "ShuffleChannel": "core/layers/test_shape.py::test_a_layer_of_one_bottom_is_what_numpy_says",
    "SigmoidCrossEntropyBalanceLoss": f"{SEGMENTATION}balanced_cross_entropy_against_loops",
    "Silence": "core/layers/test_shape.py::test_split_and_silence",
    "SmoothL1LossOHEM": "core/layers/test_ohem.py::test_smooth_l1_of_each_region_against_loops",
    "SmoothL1Loss": "core/ops/test_losses.py::test_smooth_l1_against_loops",
    "SoftmaxWithLossOHEM": "core/layers/test_ohem.py::test_softmax_of_each_label_against_loops",
    "Transpose": "core/layers/test_sequences.py::test_axes_change_places",
    "Upsample": "core/layers/test_shape.py::test_unpooling_undoes_max_pooling",
    "WeightedEuclideanLoss": f"{METRICS}weighted_euclidean_loss_against_loops",
    "WeightedSoftmaxWithLoss": f"{SEGMENTATION}weighted_classes_against_loops",
    "VideoData": "core/layers/test_video.py::test_clips_are_the_frames_in_order",
    "WindowData": "core/layers/test_reading.py::test_windows_are_caffes",
    "Yolov3DetectionOutput": "core/layers/test_yolo.py::test_detections_against_loops",
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
