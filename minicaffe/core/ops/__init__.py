"""Pure functions on arrays, with the NumPy form beside the launch of the CUDA kernel."""
