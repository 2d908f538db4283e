"""PyTorch: nets written as modules and state_dicts."""
