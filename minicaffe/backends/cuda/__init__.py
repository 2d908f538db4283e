"""CUDA through CuPy: launches, cuBLAS, graph capture and fusion; the kernels' sources are in kernels/."""
