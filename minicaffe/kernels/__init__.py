"""CUDA C++ kernels, one .cu file a family; loaded by minicaffe.backend."""
