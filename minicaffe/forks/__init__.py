"""Layers of Caffe's forks, a fork a file."""
