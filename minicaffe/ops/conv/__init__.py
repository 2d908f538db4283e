"""Ways to lower a convolution to matrix products, all with one signature."""

from minicaffe.ops.conv import caffe

STRATEGIES = {"caffe": caffe}
