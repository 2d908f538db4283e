"""Ops by compiled loops: functions of the names and arguments of `core/ops`, in files of the same names."""
