"""What each layer says of keys, bottoms and numbers that it cannot take, word for word."""

import ast

import kit
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("kind", "keys", "shapes", "told"),
    kit.rows("""
Accuracy | top_k: 4 | (2, 3), (2,) | top_k 4 is more than the 3 classes
ArgMax | axis: 2, top_k: 6 | (2, 6, 5, 4) | top_k 6 is more than the 5 numbers there are
ArgMax |  | () | needs a bottom of at least one axis, got ()
Axpy |  | (2, 3), (2, 3, 4), (2, 3) | needs bottoms 1 and 2 of one shape, got (2, 3, 4) and (2, 3)
Axpy |  | (2, 4), (2, 3, 4), (2, 3, 4) | needs bottom 0 of shape (2, 3), for bottoms of (2, 3, 4), got (2, 4)
Axpy |  | (2, 3, 1), (2, 3, 4, 4), (2, 3, 4, 4) | needs bottom 0 of shape (2, 3), for bottoms of (2, 3, 4, 4), got (2, 3, 1)
BatchNorm | param: [{}, {lr_mult: 1}] | (2, 4) | SpecError: mean, variance and count are not learnt: give the first three of `param` lr_mult 0, or none
BatchReindex |  | (2, 6, 5, 4), (2, 3) | needs bottoms (n, ...) and (m,), got (2, 6, 5, 4) and (2, 3)
Bias | axis: -1 | (2, 3, 4), (4, 1) | bottom 1 of shape (4, 1) does not fit (2, 3, 4) from axis 2 on
BilinearInterpolation |  | (1, 4, 3, 3) | give one of: interpolation_factor; a second bottom
BilinearInterpolation | interpolation_factor: 2 | (1, 4, 3, 3), (1, 2, 3, 3) | give one of: interpolation_factor; a second bottom
BilinearInterpolation | interpolation_factor: 2 | (2, 3) | needs bottoms of 4 axes (n, c, h, w), got (2, 3)
BoxAnnotatorOHEM | roi_per_img: 2, top: [a, b] | (3, 4), (3,), (3,), (3, 8) | needs regions (r, 5) or (r, 5, h, w), got (3, 4)
BoxAnnotatorOHEM | roi_per_img: 2, top: [a, b] | (3, 5), (4,), (3,), (3, 8) | needs losses of 3 entries, one a region, got (4,)
BoxAnnotatorOHEM | roi_per_img: 2, top: [a, b] | (3, 5), (3,), (3, 2), (3, 8) | needs labels of 3 entries, one a region, got (3, 2)
BoxAnnotatorOHEM | roi_per_img: 2, top: [a, b] | (3, 5), (3,), (3,), (2, 8) | needs weights (3, k), a row a region, got (2, 8)
BoxOutput | field_w: 8, field_h: 8, downsample_rate: 8 | (1, 6, 2, 2), (1, 6, 2, 2) | field_h: expected 2 numbers, one a bottom, got 1
BoxOutput | field_w: [8, 8], field_h: 8, downsample_rate: 8 | (1, 6, 2, 2) | field_w: expected 1 numbers, one a bottom, got 2
BoxOutput | field_w: 8, field_h: 8, downsample_rate: 8 | (1, 5, 2, 2) | needs bottoms (n, k + 4, h, w), k at least 2, got (1, 5, 2, 2)
BoxOutput | field_w: 8, field_h: 8, downsample_rate: 8, field_whr: 0.5 | (1, 6, 2, 2) | field_whr is at least 1, and field_xyr above 0
BoxOutput | field_w: 8, field_h: 8, downsample_rate: 8, bbox_mean: [0, 0, 0], bbox_std: [1, 1, 1, 1] | (1, 6, 2, 2) | bbox_mean: expected 4 numbers, got 3
Clip | min: 1.0, max: 0.5 | (2, 3) | SpecError: expected min <= max, got min 1.0 and max 0.5
CompactBilinear | num_output: 3 | (1, 4, 3, 3), (1, 4, 3, 2) | needs (n, c1, h, w) and (n, c2, h, w), got (1, 4, 3, 3) and (1, 4, 3, 2)
Concat | axis: 1, concat_dim: 1 | (2, 6, 5, 4) | give either axis or concat_dim, which is its old name, not both
Concat |  | (2, 6, 5, 4), (2, 6, 5, 3) | needs bottoms that differ along axis 1 only, got (2, 6, 5, 4) and (2, 6, 5, 3)
Concat |  | (2, 6, 5, 4), (3, 6, 5, 4) | needs bottoms that differ along axis 1 only, got (2, 6, 5, 4) and (3, 6, 5, 4)
Concat | axis: -1 | (2, 6, 5, 4), (2, 6, 5) | needs bottoms that differ along axis 3 only, got (2, 6, 5, 4) and (2, 6, 5)
ContrastiveLoss |  | (2, 3, 2), (2, 3, 2), (2,) | needs bottoms of rows (n, c), got (2, 3, 2)
ContrastiveLoss |  | (2, 3), (2, 3), (3,) | needs 2 labels, one a prediction, got a bottom of shape (3,)
Convolution | num_output: 2, kernel_size: 2, top: [a, b] | (2, 6, 5, 4), (2, 6, 4, 4) | needs bottoms of one shape, got (2, 6, 5, 4) and (2, 6, 4, 4)
Convolution | num_output: 2, kernel_size: [3, 3, 3] | (2, 4, 7, 6) | kernel_size: expected one number or [h, w], got 3 numbers
Convolution | num_output: 2, kernel_size: 3, dilation: [1, 1, 1] | (2, 4, 7, 6) | dilation: expected one number or [h, w], got 3 numbers
Convolution | num_output: 2, kernel_size: [3, 3], axis: 2 | (2, 4, 7, 6) | kernel_size: expected one number, got 2 numbers
Convolution | num_output: 2, kernel_size: [3, 3], axis: 0 | (2, 4, 7, 6) | kernel_size: expected one number or [d, h, w], got 2 numbers
Convolution | num_output: 2, kernel_h: 3, kernel_w: 3, axis: 2 | (2, 4, 7, 6) | kernel_h and kernel_w are for images of 2 axes, not of 1; give kernel_size
Convolution | num_output: 2, kernel_size: 3, stride_h: 2, axis: 0 | (2, 4, 7, 6) | stride_h and stride_w are for images of 2 axes, not of 3; give stride
Convolution | num_output: 2, kernel_size: 3, axis: 3 | (2, 4, 7, 6) | needs a bottom with 1 to 3 axes after the channels' axis 3, got (2, 4, 7, 6)
Convolution | num_output: 2, kernel_size: 3, axis: -5 | (2, 4, 7, 6) | needs a bottom with 1 to 3 axes after the channels' axis -5, got (2, 4, 7, 6)
Convolution | num_output: 3, kernel_size: 3, group: 2 | (2, 4, 7, 6) | num_output 3 cannot be divided into group 2
Convolution | num_output: 3, kernel_size: 3, group: 3 | (2, 4, 7, 6) | channels 4 cannot be divided into group 3
Convolution | num_output: 3 | (2, 4, 7, 6) | missing key 'kernel_size'
Correlation | kernel_size: 1, max_displacement: 1 | (1, 4, 3, 3), (1, 2, 3, 3) | needs two bottoms (n, c, h, w) of one shape, got (1, 4, 3, 3) and (1, 2, 3, 3)
Correlation | kernel_size: 2, max_displacement: 1 | (1, 4, 3, 3), (1, 4, 3, 3) | kernel_size: expected an odd number, got 2
Correlation | kernel_size: 3, max_displacement: 1 | (1, 4, 3, 3), (1, 4, 3, 3) | max_displacement 1 and kernel_size 3 do not fit into (1, 4, 3, 3) with pad 0
Crop |  | (2, 6, 5, 4), (2, 3) | needs two bottoms of as many axes, got (2, 6, 5, 4) and (2, 3)
Crop | offset: [1, 2, 3] | (2, 6, 5, 4), (2, 6, 5, 4) | offset: expected 1 or 2, got 3 numbers
Crop | offset: 1 | (2, 6, 5, 4), (2, 6, 5, 4) | axis 2: 5 from 1 on are more than the 5 of (2, 6, 5, 4)
CTCGreedyDecoder |  | (4, 2, 3), (4, 1) | needs indicators (4, 2), got (4, 1)
CTCGreedyDecoder | blank_index: 9 | (4, 2, 3), (4, 2) | blank_index: expected below 3, got 9
CTCLoss |  | (4, 2), (4, 2), (4, 2) | needs scores (t, n, c), got (4, 2)
CTCLoss |  | (4, 2, 3), (4, 3), (4, 2) | needs indicators (4, 2), got (4, 3)
CTCLoss |  | (4, 2, 3), (4, 2), (3, 2) | needs labels (4, 2), got (3, 2)
CTCLoss | blank_index: 3 | (4, 2, 3), (4, 2), (4, 2) | blank_index: expected below 3, got 3
CTCLoss | output_delay: 4 | (4, 2, 3), (4, 2), (4, 2) | output_delay: expected below 4 steps, got 4
CtcLoss | alphabet_size: 3, time_step: 5 | (4, 2, 3), (2, 1) | needs scores (5, n, 3), got (4, 2, 3)
CtcLoss | alphabet_size: 3, time_step: 4 | (4, 2, 3), (3, 1) | needs labels (2, l), a row a sequence, got (3, 1)
CtcLoss | alphabet_size: 3, time_step: 4, blank_label: 3 | (4, 2, 3), (2, 1) | blank_label: expected below 3, got 3
DecodeBBox |  | (3, 4), (3, 5) | needs predictions (r, 8), r as many as regions, got (3, 4)
DecodeBBox |  | (3, 8), (3, 4) | needs regions (r, 5), r as many as regions, got (3, 4)
DecodeBBox |  | (3, 8), (3, 5), (2, 5) | needs a box for each of 3 regions, got (2, 5)
DecodeBBox |  | (3, 8), (3, 5), (3, 5) | a third bottom, the boxes of regions, is there in TRAIN alone
Deconvolution | num_output: 1, kernel_size: 1, pad: 4 | (2, 4, 7, 6) | pad 4 leaves nothing of the 7 outputs along an axis
DeformableConvolution | num_output: 2, kernel_size: 1 | (1, 4, 3, 3), (1, 1, 3, 3) | needs offsets (1, 2, 3, 3), got (1, 1, 3, 3)
DeformableConvolution | num_output: 2, kernel_size: 1 | (2, 3), (1, 2, 3, 3) | needs a bottom of 4 axes (n, c, h, w), got (2, 3)
DeformableConvolution | num_output: 2, kernel_size: 1, group: 3 | (1, 4, 3, 3), (1, 2, 3, 3) | channels 4 cannot be divided into groups of 3
DeformableConvolution | num_output: 2, kernel_size: 1, group: 4 | (1, 4, 3, 3), (1, 2, 3, 3) | num_output 2 cannot be divided into groups of 4
DeformableConvolution | num_output: 2, kernel_size: 1, deformable_group: 3 | (1, 4, 3, 3), (1, 2, 3, 3) | channels 4 cannot be divided into groups of 3
Data | source: digits, batch_size: 1, top: [a, b, c] | | has 1 or 2 tops (images, labels), got 3
DetectionEvaluate | num_classes: 3 | (1, 1, 4, 6), (1, 1, 4, 8) | needs detections (1, 1, k, 7), got (1, 1, 4, 6)
DetectionEvaluate | num_classes: 3 | (1, 1, 4, 7), (1, 4, 8) | needs true boxes (1, 1, k, 8), got (1, 4, 8)
DetectionEvaluate | num_classes: 1 | (1, 1, 4, 7), (1, 1, 4, 8) | num_classes: expected a class beside the background
DetectionEvaluate | num_classes: 3, overlap_threshold: 0 | (1, 1, 4, 7), (1, 1, 4, 8) | overlap_threshold: expected above 0, got 0.0
DetectionEvaluate | num_classes: 2000000000 | (1, 1, 4, 7), (1, 1, 4, 8) | SpecError: num_classes: expected below 1000001, got 2000000000
DetectionOutput | num_classes: 2 | (1, 8), (1, 5), (1, 2, 8) | needs scores of shape (1, 4) for 2 prior boxes, got (1, 5)
DetectionOutput | num_classes: 2, share_location: false | (1, 8), (1, 4), (1, 2, 8) | needs predictions of shape (1, 16) for 2 prior boxes, got (1, 8)
DetectionOutput | num_classes: 2 | (1, 8), (1, 4), (1, 1, 8) | needs prior boxes (1, 2, 4 p) as its third bottom, got (1, 1, 8)
DetectionOutput | num_classes: 2 | (1, 8), (2, 4), (1, 2, 8) | needs scores of shape (1, 4) for 2 prior boxes, got (2, 4)
DetectionOutput | num_classes: 2, nms_param: {eta: 0} | (1, 8), (1, 4), (1, 2, 8) | nms_param: eta: expected above 0 and at most 1, got 0.0
DetectionOutput | num_classes: 2, visualize: true | (1, 8), (1, 4), (1, 2, 8) | visualize: minicaffe shows no windows; expected false
DummyData | num: 1 | | channels: expected 1 or 1, one a top, got 0
DummyData | shape: {dim: 2}, num: 1 | | give either shape or num, channels, height, width, not both
DummyData |  | | shape: expected 1 or 1, one a top, got 0
DummyData | shape: [{dim: 2}, {dim: 3}] | | shape: expected 1 or 1, one a top, got 2
DummyData | shape: {dim: 2}, data_filler: [xavier, msra] | | data_filler: expected 1 or 1, one a top, got 2
DummyData | shape: {dim: 2}, data_filler: bilinear | | the bilinear filler needs a square (n, c, k, k) parameter, got (2,)
Eltwise | coeff: 2 | (2, 6, 5, 4), (2, 6, 5, 4) | coeff goes with SUM, one number for each of 2 bottoms
Eltwise | coeff: [1, 2], operation: MAX | (2, 6, 5, 4), (2, 6, 5, 4) | coeff goes with SUM, one number for each of 2 bottoms
EuclideanLoss |  | (2, 3), (3, 2) | needs bottoms of as many samples and entries, got (2, 3) and (3, 2)
EuclideanLoss |  | (2, 3), (2, 4) | needs bottoms of as many samples and entries, got (2, 3) and (2, 4)
Exp | base: -2.0 | (2, 3) | SpecError: base: expected a number above 0, or -1 for e, got -2.0
Filter |  | (2, 6, 5, 4), (2, 2) | needs a selector (n,) or (n, 1, ...), got (2, 2)
Filter |  | (2, 6, 5, 4), (3,) | needs 3 entries, one a selector, got (2, 6, 5, 4)
Flatten | axis: 2, end_axis: 1 | (2, 6, 5, 4) | end_axis 1 comes before axis 2
FlowWarp |  | (1, 4, 3, 3), (1, 4, 3, 3) | needs x (n, c, h, w) and a flow (n, 2, h, w), got (1, 4, 3, 3) and (1, 4, 3, 3)
GroupNorm | num_groups: 3 | (2, 4) | 4 channels cannot be divided into 3 groups
GroupNorm | num_groups: 1 | (7,) | needs a bottom of at least 2 axes (n, c, ...), got (7,)
HingeLoss |  | (2, 3), (2, 3) | needs 2 labels, one a prediction, got a bottom of shape (2, 3)
InfogainLoss |  | (2, 3), (2,) | needs the matrix once: as its third bottom or as the file `source`
InfogainLoss | source: a.npy | (2, 3), (2,), (3, 3) | needs the matrix once: as its third bottom or as the file `source`
InfogainLoss |  | (2, 3), (2,), (2, 3) | needs a matrix of 3 x 3 as its third bottom, got (2, 3)
InfogainLoss | normalize: true | (2, 3), (2,), (3, 3) | normalize is not taken by InfogainLoss; give normalization, as Caffe asks
Interp |  | (2, 6, 5, 4) | give one of: both height and width; zoom_factor, shrink_factor or both; a second bottom
Interp | height: 3 | (2, 6, 5, 4) | give one of: both height and width; zoom_factor, shrink_factor or both; a second bottom
Interp | zoom_factor: 2 | (2, 6, 5, 4), (2, 6, 5, 4) | give one of: both height and width; zoom_factor, shrink_factor or both; a second bottom
Interp | zoom_factor: 2, pad_beg: -3, pad_end: -1 | (2, 6, 5, 4) | pad_beg -3 and pad_end -1 leave nothing of (2, 6, 5, 4)
LayerNorm | axis: 2 | (2, 4) | axis 2 is out of range for 2 axes
Log | base: 0.0 | (2, 3) | SpecError: base: expected a number above 0, or -1 for e, got 0.0
Log | base: 1.0 | (2, 3) | SpecError: base: there is no logarithm to base 1
LRN | local_size: 4 | (2, 4, 5, 6) | SpecError: expected an odd local_size, got 4
LRN |  | (2, 4, 5) | needs a bottom of 4 axes (n, c, h, w), got (2, 4, 5)
Lstm | num_output: 2, batch_size: 4 | (6, 3) | needs x (t 4, ...), a whole number of steps of 4 streams, got (6, 3)
Lstm | num_output: 2, batch_size: 3 | (6, 3), (3,) | needs clip (6,), a number for each row of x, got (3,)
LSTM | num_output: 6 | (3,), (3,) | needs x (t, n, ...) and cont (t, n), got (3,) and (3,)
LSTM | num_output: 6 | (3, 2, 4), (2, 3) | needs x (t, n, ...) and cont (t, n), got (3, 2, 4) and (2, 3)
LSTM | num_output: 6 | (3, 2, 4), (3, 2), (3, 5) | needs x_static (2, ...), a row a stream, got (3, 5)
LSTM | num_output: 6 | (3, 2, 4), (3, 2), (2,) | needs x_static (2, ...), a row a stream, got (2,)
LSTM | num_output: 6 | (3, 2, 4), (3, 2), (2, 5), (2, 5) | with expose_hidden False needs 2 or 3 bottoms, got 4
LSTM | num_output: 6, expose_hidden: true | (3, 2, 4), (3, 2) | with expose_hidden True needs 4 or 5 bottoms, got 2
LSTM | num_output: 6, expose_hidden: true | (3, 2, 4), (3, 2), (1, 2, 6), (2, 6) | needs a first state of shape (1, 2, 6), got (2, 6)
LSTMUnit | top: [a, b] | (1, 2, 3), (1, 2, 11), (1, 2) | needs (1, n, d), (1, n, 4 d) and (1, n), got (1, 2, 3), (1, 2, 11) and (1, 2)
MaskPooling |  | (1, 2, 3, 3), (1, 2, 3, 3) | needs x (n, c, h, w) and a mask (n, 1, h, w), got (1, 2, 3, 3) and (1, 2, 3, 3)
MaskPooling |  | (1, 2, 3), (1, 1, 3) | needs x (n, c, h, w) and a mask (n, 1, h, w), got (1, 2, 3) and (1, 1, 3)
MaskResize | output_height: 1, output_width: 1 | (1, 2, 3) | needs a bottom of 4 axes (n, c, h, w), got (1, 2, 3)
MultiBoxLoss | num_classes: 3, do_neg_mining: false | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 8) | do_neg_mining: false contradicts mining_type MAX_NEGATIVE
MultiBoxLoss | num_classes: 3, share_location: false | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 8) | mining_type MAX_NEGATIVE needs share_location
MultiBoxLoss | num_classes: 3, background_label_id: 3 | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 8) | background_label_id: expected below num_classes 3, got 3
MultiBoxLoss | num_classes: 3, neg_pos_ratio: 0 | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 8) | neg_pos_ratio: expected above 0, got 0
MultiBoxLoss | num_classes: 3, neg_pos_ratio: -1 | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 8) | neg_pos_ratio: expected above 0, got -1
MultiBoxLoss | num_classes: 3, map_object_to_agnostic: true | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 8) | map_object_to_agnostic: expected num_classes 2, got 3
MultiBoxLoss | num_classes: 3 | (2, 36), (2, 27), (1, 1, 36), (1, 1, 3, 8) | needs prior boxes (1, 2, 4 p) as its third bottom, got (1, 1, 36)
MultiBoxLoss | num_classes: 3 | (2, 36), (2, 27), (1, 2, 36), (1, 1, 3, 7) | needs true boxes (1, 1, k, 8) as its fourth bottom, got (1, 1, 3, 7)
MultiBoxLoss | num_classes: 3 | (2, 36), (2, 26), (1, 2, 36), (1, 1, 3, 8) | needs scores of shape (2, 27) for 9 prior boxes, got (2, 26)
MemoryData | batch_size: 2, channels: 1, height: 2, width: 3, top: [a, b], transform: {scale: 2} | | SpecError: transform: arrays are taken as they are; transform them before reset
MultinomialLogisticLoss |  | (2, 3), (3,) | needs 2 labels, one a prediction, got a bottom of shape (3,)
MVN |  | (7,) | needs a bottom of at least 2 axes (n, c, ...), got (7,)
Normalize |  | (7,) | needs a bottom of at least 2 axes (n, c, ...), got (7,)
Permute | order: [0, 0] | (2, 3) | order: expected different axes below 2, got [0, 0]
Permute | order: [2] | (2, 3) | order: expected different axes below 2, got [2]
Pooling | kernel_size: 2, pool: AVE, top: [a, b] | (2, 6, 5, 4) | a second top, the mask, is of pool MAX, not of AVE
Pooling | kernel_size: 2, pool: STOCHASTIC, pad: 1 | (2, 6, 5, 4) | pool STOCHASTIC takes no pad
Pooling | kernel_size: 2, pool: STOCHASTIC | (1, 2, 4, 6, 6) | along three axes pool is MAX or AVE, and there is no mask
Pooling | kernel_h: 2, kernel_w: 2 | (1, 2, 4, 6, 6) | kernel_h and kernel_w are for images of 2 axes, not of 3; give kernel_size
Pooling | kernel_size: [2, 2] | (1, 2, 4, 6, 6) | kernel_size: expected one number or [d, h, w], got 2 numbers
Pooling | global_pooling: true, stride: 2 | (1, 1, 5, 5) | with global_pooling there is no stride and no pad
Pooling | global_pooling: true, pad: 2 | (1, 1, 5, 5) | with global_pooling there is no stride and no pad
Pooling | global_pooling: true, kernel_size: 2 | (1, 1, 5, 5) | with global_pooling the window is the image; remove kernel_size
PReLU |  | (4,) | needs a bottom with channels, of at least 2 axes, got (4,)
PriorBox | min_size: [10, 9], max_size: 20 | (1, 1, 2, 2), (1, 1, 8, 8) | max_size: expected one for each min_size, larger than that
PriorBox | min_size: [10, 9], max_size: [20, 9] | (1, 1, 2, 2), (1, 1, 8, 8) | max_size: expected one for each min_size, larger than that
PriorBox | min_size: [10, 9], variance: [1, 2] | (1, 1, 2, 2), (1, 1, 8, 8) | variance: expected 1 or 4 numbers, got 2
PriorBox | min_size: [10, 9], aspect_ratio: 0 | (1, 1, 2, 2), (1, 1, 8, 8) | aspect_ratio: expected numbers above 0, got (0.0,)
PriorBox | min_size: [10, 9], step: -1 | (1, 1, 2, 2), (1, 1, 8, 8) | step: expected numbers above 0, got -1.0
PriorBox | min_size: [10, 9], img_h: 3 | (1, 1, 2, 2), (1, 1, 8, 8) | give either img_size or both img_h and img_w
PriorBox | min_size: [10, 9], step: 3, step_h: 2, step_w: 2 | (1, 1, 2, 2), (1, 1, 8, 8) | give either step or both step_h and step_w
PriorBox | min_size: [] | (1, 1, 2, 2), (1, 1, 8, 8) | min_size: expected a number at least
PriorBox | min_size: 4 | (1, 1, 2), (1, 1, 8, 8) | needs bottoms of 4 axes (n, c, h, w), got (1, 1, 2) and (1, 1, 8, 8)
PriorBoxClustered | width: [3, 4], height: 3 | (1, 1, 2, 2), (1, 1, 8, 8) | height: expected 2 numbers above 0, got (3.0,)
PriorBoxClustered | width: [], height: [] | (1, 1, 2, 2), (1, 1, 8, 8) | width: expected 1 numbers above 0, got ()
PriorBoxClustered | width: 3, height: -3 | (1, 1, 2, 2), (1, 1, 8, 8) | height: expected 1 numbers above 0, got (-3.0,)
PriorBoxClustered | width: 3, height: 3, img_h: 4 | (1, 1, 2, 2), (1, 1, 8, 8) | give either img_size or both img_h and img_w
PriorBoxClustered | width: 3, height: 3, variance: [1, 2] | (1, 1, 2, 2), (1, 1, 8, 8) | variance: expected 1 or 4 numbers, got 2
Proposal | ratio: [1], scale: [], top: [a, b] | (1, 2, 3, 3), (1, 4, 3, 3), (1, 3) | scale: expected numbers above 0, got ()
Proposal | ratio: [1], scale: [1], top: [a, b] | (2, 2, 3, 3), (2, 4, 3, 3), (1, 3) | needs scores (1, 2, h, w) for 1 anchors, got (2, 2, 3, 3)
Proposal | ratio: [1], scale: [1], top: [a, b] | (1, 2, 3, 3), (1, 4, 3, 2), (1, 3) | needs predictions (1, 4, 3, 3), got (1, 4, 3, 2)
Proposal | ratio: [1], scale: [1], top: [a, b] | (1, 2, 3, 3), (1, 4, 3, 3), (1, 2) | needs im_info (1, 3): rows, columns, scale; got (1, 2)
PSROIPooling | output_dim: 2, group_size: 2, spatial_scale: 1 | (1, 4, 3, 3), (1, 5) | needs a bottom (n, c, h, w) of output_dim group_size^2 = 8 channels, got (1, 4, 3, 3)
PSROIPooling | output_dim: 1, group_size: 2, spatial_scale: 1 | (1, 4, 3, 3), (1, 4) | needs regions (r, 5) as its second bottom, got (1, 4)
Reorg | stride: 3 | (1, 4, 3, 3) | needs (n, c, h, w) with c a multiple of 9, got (1, 4, 3, 3)
Reorg | stride: 2 | (1, 4, 3, 3) | needs h and w that are multiples of stride 2, got (1, 4, 3, 3)
Reshape | shape: {dim: [7, -1]} | (2, 6, 5, 4) | 240 numbers (2, 6, 5, 4) cannot be divided into 7
Reshape | shape: {dim: [-1, -1]} | (2, 6, 5, 4) | shape: only one dim can be -1, got [-1, -1]
Reshape | shape: {dim: [3, 2, 0]} | (2, 3) | shape: dim 2 is 0, but the bottom (2, 3) has no axis 2
Reshape | shape: {dim: [3, 3]} | (2, 3) | (2, 3) has 6 numbers, (3, 3) 9
Reshape | axis: 3 | (2, 3) | axis 3 is out of range for 2 axes
Reshape | axis: 1, num_axes: 2 | (2, 3) | num_axes 2 from axis 1 on: (2, 3) has 2
Reverse | axis: 3 | (2, 3) | axis 3 is out of range for 2 axes
RNN | num_output: 2, debug_info: true | (1, 1, 2), (1, 1) | SpecError: debug_info: steps are not layers here; there is no net to tell of
ROIAlign | pooled_h: 1, pooled_w: 1 | (1, 2, 3), (1, 5) | needs a bottom of 4 axes (n, c, h, w), got (1, 2, 3)
ROIAlign | pooled_h: 1, pooled_w: 1 | (1, 2, 3, 3), (1, 4) | needs regions (r, 5) as its second bottom, got (1, 4)
ROIPooling | pooled_h: 2, pooled_w: 3 | (2, 3, 5, 6), (4, 4) | needs regions (r, 5) as its second bottom, got (4, 4)
ROIPooling | pooled_h: 2, pooled_w: 3 | (2, 3, 5, 6), (20,) | needs regions (r, 5) as its second bottom, got (20,)
ROIPooling | pooled_h: 2, pooled_w: 3 | (2, 3, 5, 6), (4, 5, 2) | needs regions (r, 5) as its second bottom, got (4, 5, 2)
ROIPooling | pooled_h: 2, pooled_w: 3 | (2, 3, 5), (4, 5) | needs a bottom of 4 axes (n, c, h, w), got (2, 3, 5)
ROIWarping | pooled_h: 1, pooled_w: 1 | (1, 2, 3), (1, 5) | needs a bottom of 4 axes (n, c, h, w), got (1, 2, 3)
ROIWarping | pooled_h: 1, pooled_w: 1 | (1, 2, 3, 3), (1, 6) | needs regions (r, 5) as its second bottom, got (1, 6)
Scale | axis: 3, num_axes: 2 | (2, 3, 4, 5) | axis 3 and num_axes 2 reach past the axes of (2, 3, 4, 5)
Scale | axis: 4 | (2, 3, 4, 5) | axis 4 is out of range for 4 axes
Scale |  | (2, 3, 4), (2, 3) | bottom 1 of shape (2, 3) does not fit (2, 3, 4) from axis 1 on
Scale |  | (2, 3), (3,), (3,) | takes 1 to 2 bottom(s), got 3
ShuffleChannel | group: 4 | (2, 6, 5, 4) | group 4 does not divide the channels (axis 1) of (2, 6, 5, 4)
SigmoidCrossEntropyLoss |  | (2, 3), (2,) | needs bottoms of as many samples and entries, got (2, 3) and (2,)
Slice | top: [a, b, c, d] | (2, 6, 5, 4) | the 6 of axis 1 cannot be cut into 4 equal tops
Slice | slice_point: [2, 2], top: [a, b, c] | (2, 6, 5, 4) | slice_point: expected rising numbers below 6, got [2, 2]
Slice | slice_point: 6, top: [a, b] | (2, 6, 5, 4) | slice_point: expected rising numbers below 6, got [6]
Slice | slice_point: 2 | (2, 6, 5, 4) | slice_point: expected 0, one less than tops, got 1
Slice | axis: 1, slice_dim: 1 | (2, 6, 5, 4) | give either axis or slice_dim, which is its old name, not both
SmoothL1Loss |  | (2, 3), (2, 3), (2, 1) | needs bottoms of as many samples and entries, got (2, 3) and (2, 1)
SmoothL1Loss | sigma: 0 | (2, 3), (2, 3) | sigma: expected above 0, got 0.0
SmoothL1LossOHEM |  | (3,), (3,) | needs bottoms (n, c) or (n, c, h, w), got (3,)
SmoothL1LossOHEM |  | (3, 2), (3, 3) | needs bottoms of as many samples and entries, got (3, 2) and (3, 3)
SmoothL1LossOHEM |  | (3, 2), (3, 2), (2, 3) | needs bottoms of as many samples and entries, got (3, 2) and (2, 3)
SmoothL1LossOHEM | top: [a, b, c] | (3, 2), (3, 2) | has 1 or 2 tops (loss, that of each region), got 3
SoftmaxWithLoss | top: [a, b, c] | (2, 3), (2,) | has 1 or 2 tops (loss, probabilities), got 3
SoftmaxWithLoss | loss_weight: 1, top: [a, b] | (2, 3), (2,) | SpecError: loss_weight: expected 2 number(s), got 1
SoftmaxWithLossOHEM |  | (3, 2), (2,) | needs 3 labels, one a prediction, got a bottom of shape (2,)
SoftmaxWithLossOHEM | top: [a, b, c, d] | (3, 2), (3,) | has 1 to 3 tops (loss, probabilities, that of each), got 4
SPP | pyramid_height: 3 | (2, 3) | needs a bottom of 4 axes (n, c, h, w), got (2, 3)
SPP | pyramid_height: 3 | (2, 6, 5, 4) | level 2, 4 windows an axis of (2, 6, 5, 4): pad 2 must be smaller than the window of 2
Transpose | dim: [0, 0] | (2, 3) | dim: expected each of the 2 axes once, got [0, 0]
Transpose | dim: [1, 0] | (2, 3, 4) | dim: expected each of the 3 axes once, got [1, 0]
Upsample |  | (2, 6, 5, 4), (2, 6, 5, 5) | needs a mask of the first bottom's shape (2, 6, 5, 4), got (2, 6, 5, 5)
Upsample | scale_h: 2 | (2, 6, 5, 4) | give both scale_h and scale_w
Upsample | upsample_h: 9, upsample_w: 9 | (2, 6, 5, 4) | without a mask there is scale, and no upsample_h, pad_out_h or the like
Upsample | upsample_h: 9, upsample_w: 9, pad_out_h: true | (2, 6, 5, 4), (2, 6, 5, 4) | upsample_h and upsample_w are the size; there is no scale, no pad_out_h or pad_out_w
Upsample | scale: 1, pad_out_h: true | (2, 1, 1, 3), (2, 1, 1, 3) | pad_out_h and pad_out_w leave nothing of (2, 1, 1, 3)
Yolov3DetectionOutput | num_classes: 1, num_box: 1, biases: [9, 9], mask: 0, anchors_scale: 32, mask_group_num: 1 | (1, 6, 2, 2), (1, 6, 2, 2) | needs as many bottoms as mask_group_num 1, with an anchors_scale each, got 2 and 1
Yolov3DetectionOutput | num_classes: 1, num_box: 1, biases: [9, 9], mask: 0, anchors_scale: 32, mask_group_num: 1 | (1, 5, 2, 2) | needs bottoms (n, 6, side, side), got (1, 5, 2, 2)
Yolov3DetectionOutput | num_classes: 1, num_box: 1, biases: [9, 9], mask: 0, anchors_scale: 32, mask_group_num: 1 | (1, 6, 2, 3) | needs bottoms (n, 6, side, side), got (1, 6, 2, 3)
Yolov3DetectionOutput | num_classes: 1, num_box: 1, biases: [9, 9], mask: 1, anchors_scale: 32, mask_group_num: 1 | (1, 6, 2, 2) | biases: expected two for each of 2 anchors
Yolov3DetectionOutput | num_classes: 1, num_box: 1, biases: [9, 9], mask: [], anchors_scale: 32, mask_group_num: 1 | (1, 6, 2, 2) | mask: expected num_box 1 a bottom, got 0
Yolov3DetectionOutput | num_classes: 1, num_box: 1, biases: [9, 9], mask: 0, anchors_scale: 32, mask_group_num: 1, nms_threshold: 0 | (1, 6, 2, 2) | nms_threshold: expected above 0, got 0.0
"""),
)
def test_a_layer_refuses(kind, keys, shapes, told):
    """With a ShapeError, unless the row names another class."""
    bottoms = ast.literal_eval(f"[{shapes}]")
    said = kit.error_line(kit.net_of, f"type: {kind}, {keys}", *bottoms, phase="TEST")
    error, _, words = said.partition(": ")
    words = words.partition(f"layer 'it' ({kind}): ")[2]
    assert (words if error == "ShapeError" else f"{error}: {words}") == told


@pytest.mark.parametrize(
    ("kind", "keys", "bottoms", "told"),
    kit.rows("""
CTCLoss |  | (2, 2, 3), (2, 2), [[0, 0], [-1, 0]] | sequence 1: its 2 labels need 3 steps, it has 2
CTCLoss |  | (2, 2, 3), (2, 2), [[0, 0], [3, 0]] | sequence 0: label 3 is not one of the 3 classes 0..2 without the blank 2
CTCLoss |  | (2, 2, 3), (2, 2), [[0, 2], [-1, -1]] | sequence 1: label 2 is not one of the 3 classes 0..2 without the blank 2
CtcLoss | alphabet_size: 3, time_step: 2 | (2, 2, 3), [[0, -1], [1, 1]] | sequence 0: label -1 is not one of the 3 classes 0..2 without the blank 0
CtcLoss | alphabet_size: 3, time_step: 2 | (2, 2, 3), [[0, 5], [1, 1]] | sequence 0: label 5 is not one of the 3 classes 0..2 without the blank 0
DetectionEvaluate | num_classes: 3 | (1, 1, 1, 7), [[[[0, 1, 0, 0, 0, 1, 1, 0], [1, -2, 0, 0, 0, 1, 1, 0]]]] | a box of picture 1 of the batch is of class -2; expected 0 to 2
DetectionEvaluate | num_classes: 3 | (1, 1, 1, 7), [[[[0, 1, 0, 0, 0, 1, 1, 0], [1, 0, 0, 0, 0, 1, 1, 0]]]] | a box of picture 1 of the batch is of class 0, the background
DetectionEvaluate | num_classes: 3 | (1, 1, 1, 7), [[[[0, 1, 0, 0, 0, 1, 1, 0], [1, 3, 0, 0, 0, 1, 1, 0]]]] | a box of picture 1 of the batch is of class 3; expected 0 to 2
DetectionOutput | num_classes: 2, code_type: CENTER_SIZE | (1, 8), (1, 4), [[[0, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]]] | prior box 1 has no area: [0.5, 0.5, 0.5, 1.0]
DetectionOutput | num_classes: 2, code_type: CORNER_SIZE | (1, 8), (1, 4), [[[0, 0, 0.5, 0.5, 0.5, 0.5, 0.5, 1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]]] | prior box 1 has no area: [0.5, 0.5, 0.5, 1.0]
MultiBoxLoss | num_classes: 3 | (2, 4), (2, 3), [[[0, 0, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]]], [[[[0, 0, 0, 0, 0, 1, 1, 0]]]] | a box of picture 0 of the batch is of class 0, the background
MultiBoxLoss | num_classes: 3 | (2, 4), (2, 3), [[[0, 0, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]]], [[[[0, 3, 0, 0, 0, 1, 1, 0]]]] | a box of picture 0 of the batch is of class 3; expected 0 to 2
MultiBoxLoss | num_classes: 3 | (2, 4), (2, 3), [[[0, 0, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]]], [[[[2, 1, 0, 0, 0, 1, 1, 0]]]] | a box is of picture 2 of a batch of 2
PSROIPooling | output_dim: 1, group_size: 1, spatial_scale: 1 | (1, 1, 2, 2), [[1, 0, 0, 1, 1]] | region 0 is of image 1; there are 1: 0..0
ROIAlign | pooled_h: 1, pooled_w: 1 | (2, 1, 2, 2), [[2, 0, 0, 1, 1]] | region 0 is of image 2; there are 2: 0..1
ROIWarping | pooled_h: 1, pooled_w: 1 | (2, 1, 2, 2), [[-1, 0, 0, 1, 1]] | region 0 is of image -1; there are 2: 0..1
"""),
)
def test_a_layer_refuses_numbers(device, kind, keys, bottoms, told):
    """In a pass, with a DataError. A bottom is a shape of ones, or is written out."""
    listed = ast.literal_eval(f"[{bottoms}]")
    arrays = [np.ones(one) if isinstance(one, tuple) else np.array(one, float) for one in listed]
    net = kit.net_of(f"type: {kind}, {keys}", *arrays, phase="TEST", device=device)
    said = kit.error_line(net.forward, **{f"b{i}": array for i, array in enumerate(arrays)})
    assert said.startswith("DataError: ") and said.endswith(f"layer 'it' ({kind}): {told}")
