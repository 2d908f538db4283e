"""Ranges of blobs and weights for compilers to int8, and what a simulated int8 net loses."""

from minicaffe.calibration.calibrate import Calibration, CalibrationNet, calibrate

__all__ = ["Calibration", "CalibrationNet", "calibrate"]
