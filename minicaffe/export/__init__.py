"""Nets for other runtimes: ONNX, and PyTorch's state_dict."""
