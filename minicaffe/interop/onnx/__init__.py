"""ONNX: nets written (writer) and read (reader)."""
