"""Other people's formats: Caffe and its forks, pycaffe, ONNX, PyTorch, compilers of chips."""
