"""The bridge to Caffe's files."""
