"""The packages that an export to ONNX needs, imported when it does."""

from __future__ import annotations

from typing import Any

from minicaffe.errors import CheckpointError


def packages() -> tuple[Any, Any]:
    """onnx and onnxruntime. Raises CheckpointError where one is missing."""
    try:
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
        import onnxruntime
    except ImportError as error:
        package = (error.name or "onnx").partition(".")[0]
        need = f"needs the package {package}: pip install 'minicaffe[onnx]'"
        raise CheckpointError(f"an .onnx file {need}") from None
    return onnx, onnxruntime
