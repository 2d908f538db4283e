"""Ranges of blobs and weights for compilers to int8, and what a simulated int8 net loses."""

from minicaffe.calibration.calibrate import Calibration, calibrate
from minicaffe.calibration.observed import CalibrationNet

__all__ = ["Calibration", "CalibrationNet", "calibrate"]
