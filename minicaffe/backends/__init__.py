"""How it is made fast: the device, compiled loops, CUDA kernels, replays."""
