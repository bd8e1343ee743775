"""The declaration, next to the package, which models import in Pythons without the server."""

from __future__ import annotations

from zmqtriton.sdk import AddOn

ADDON = AddOn(
    "backends",
    offers={
        "diagnosis.version": ".model_files:file_problems",
        "models.backend": {
            "dyna_sequence": ".dyna_sequence",
            "fil": ".fil",
            "identity": ".identity",
            "iterative_sequence": ".iterative_sequence",
            "onnxruntime": ".onnxruntime",
            "openvino": ".openvino",
            "pytorch": ".pytorch",
            "repeat": ".repeat",
            "sequence": ".sequence",
            "square": ".square",
            "tensorflow": ".tensorflow",
            "tensorrt": ".tensorrt",
            "vllm": ".vllm",
        },
        "models.framework": {
            "fil": "treelite",
            "onnxruntime": "onnxruntime",
            "openvino": "openvino",
            "pytorch": "torch",
            "tensorflow": "tensorflow",
            "tensorrt": "tensorrt tensorrt cupy-cuda12x",
            "vllm": "vllm",
        },
    },
)
