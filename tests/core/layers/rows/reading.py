"""Layers that read files: they have no gradient, and are tested in tests/core/layers/test_reading.py."""

from typing import Any

ROWS: dict[str, list[tuple[dict[str, Any], list[Any]]]] = {}
WITHOUT_GRADIENT = {"DenseImageData", "HDF5Data", "HDF5Output", "ImageData", "ImageLabelmapData"}
WITHOUT_GRADIENT |= {"VideoData", "WindowData"}
