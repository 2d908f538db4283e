"""Kernels of the CPU that Numba compiles, one family a file."""
