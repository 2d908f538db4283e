"""A step as data: its trace, the trace's guard, and the command buffer or CUDA graph that is replayed."""
