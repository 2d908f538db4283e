"""Ops by CUDA kernels: functions of the names and arguments of `core/ops`, in files of the same names."""
