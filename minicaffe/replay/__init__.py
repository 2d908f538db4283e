"""A step as data: its trace, what that assumes, and the command buffer or CUDA graph that is replayed."""
