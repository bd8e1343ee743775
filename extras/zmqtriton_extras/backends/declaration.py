"""The declaration, beside the package, which models import in Pythons without the server."""

from __future__ import annotations

from zmqtriton.sdk import AddOn, Backend

ADDON = AddOn(
    "backends",
    backends={
        "dyna_sequence": Backend(".dyna_sequence"),
        "fil": Backend(".fil", "treelite", "treelite"),
        "identity": Backend(".identity"),
        "iterative_sequence": Backend(".iterative_sequence"),
        "onnxruntime": Backend(".onnxruntime", "onnxruntime", "onnxruntime"),
        "openvino": Backend(".openvino", "openvino", "openvino"),
        "pytorch": Backend(".pytorch", "torch", "torch"),
        "repeat": Backend(".repeat"),
        "sequence": Backend(".sequence"),
        "square": Backend(".square"),
        "tensorflow": Backend(".tensorflow", "tensorflow", "tensorflow"),
        "tensorrt": Backend(".tensorrt", "tensorrt", "tensorrt cupy-cuda12x"),
        "vllm": Backend(".vllm", "vllm", "vllm"),
    },
)
