"""The backend `onnxruntime`: models that are ONNX files."""
