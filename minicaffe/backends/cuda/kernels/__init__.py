"""The sources of the CUDA kernels."""
