"""The repository of a published example: an image goes through three models of an ensemble.

Its `core` ran on a framework's backend; here it is a Python model under the same name and with the
same configuration otherwise. Two of the models have their environment in their own folder.
"""

from __future__ import annotations

import venv
from pathlib import Path

_ENVIRONMENT = """
instance_group [ { kind: KIND_CPU } ]
parameters {
  key: "EXECUTION_ENV_PATH"
  value { string_value: "$$TRITON_MODEL_DIRECTORY/python_env" }
}
"""
CONFIGS = {
    "preprocessing": """name: "preprocessing"
backend: "python"
max_batch_size: 0
input [ { name: "image" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "input_image" data_type: TYPE_FP32 dims: [ -1, 3, -1, -1 ] } ]
"""
    + _ENVIRONMENT,
    "core": """name: "core"
backend: "python"
max_batch_size: 0
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ -1, 3, 224, 224 ] } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]
""",
    "postprocessing": """name: "postprocessing"
backend: "python"
max_batch_size: 0
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]
output [ { name: "result" data_type: TYPE_STRING dims: [ -1 ] } ]
"""
    + _ENVIRONMENT,
    "ensemble": """name: "ensemble"
platform: "ensemble"
max_batch_size: 0
input [ { name: "image" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "result" data_type: TYPE_STRING dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "preprocessing" model_version: -1
    input_map { key: "image" value: "image" }
    output_map { key: "input_image" value: "input_image" } },
  { model_name: "core" model_version: -1
    input_map { key: "INPUT__0" value: "input_image" }
    output_map { key: "OUTPUT__0" value: "scores" } },
  { model_name: "postprocessing" model_version: -1
    input_map { key: "INPUT__0" value: "scores" }
    output_map { key: "result" value: "result" } }
] }
""",
}
_HEAD = """import json
import sys

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
"""
MODELS = {
    # A picture is a PPM: a line with its size, then red, green and blue of each dot.
    "preprocessing": _HEAD
    + """        logger = pb_utils.Logger
        logger.log_info("===== INFO MSG =====")
        print("printed by", sys.prefix, flush=True)
        responses = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()[0]
            _, size, _, dots = data.split(b"\\n", 3)
            width, height = map(int, size.split())
            picture = np.frombuffer(dots, np.uint8).reshape(height, width, 3)
            rows = np.arange(224) * height // 224
            columns = np.arange(224) * width // 224
            scaled = picture[rows][:, columns].transpose(2, 0, 1)[None] / np.float32(255)
            tensor = pb_utils.Tensor("input_image", scaled.astype(np.float32))
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
""",
    "core": _HEAD
    + """        responses = []
        for request in requests:
            images = pb_utils.get_input_tensor_by_name(request, "INPUT__0").as_numpy()
            scores = np.zeros((len(images), 1000), np.float32)
            scores[:, :3] = images.mean(axis=(2, 3))
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT__0", scores)])
            )
        return responses
""",
    "postprocessing": _HEAD
    + """        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "INPUT__0").as_numpy()
            best = int(scores[0].argmax())
            text = json.dumps({"class": best, "score": round(float(scores[0, best]), 3)})
            found = np.array([text.encode()], dtype=np.object_)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("result", found)]))
        return responses
""",
}


def write_repository(repository: Path) -> None:
    """Writes it into this directory, with a folder that is no model."""
    for model, config in CONFIGS.items():
        version = repository / model / "1"
        version.mkdir(parents=True)
        (repository / model / "config.pbtxt").write_text(config)
        if model in MODELS:
            (version / "model.py").write_text(MODELS[model])
    for model in ("preprocessing", "postprocessing"):
        venv.create(repository / model / "python_env", symlinks=True, with_pip=False)


def ppm_image(color: tuple[int, int, int], width: int = 32, height: int = 24) -> bytes:
    """Of one color."""
    return f"P6\n{width} {height}\n255\n".encode() + bytes(color) * (width * height)
