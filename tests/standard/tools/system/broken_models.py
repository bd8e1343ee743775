"""Models that are broken in one way each, written into a repository."""

from __future__ import annotations

from pathlib import Path

BEGIN = "import os, sys, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
TENSORS = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
"""
CONFIG = 'backend: "python"\n' + TENSORS
ANSWER = "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, np.float32))])]"
WORKS = f"    def execute(self, requests):\n        {ANSWER}\n"


def parameter(name: str, value: object) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


def calling(model: str) -> str:
    return (
        "    def execute(self, requests):\n"
        "        given = pb_utils.get_input_tensor_by_name(requests[0], 'IN')\n"
        "        asked = pb_utils.InferenceRequest(\n"
        f"            model_name='{model}', requested_output_names=['OUT'], inputs=[given]\n"
        "        )\n"
        "        answer = asked.exec()\n"
        "        if answer.has_error():\n"
        "            raise pb_utils.TritonModelException(answer.error().message())\n"
        f"        {ANSWER}\n"
    )


def initializing(*lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"    def initialize(self, args):\n{body}{WORKS}"


def executing(*lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"    def execute(self, requests):\n{body}        {ANSWER}\n"


def ensemble(member: str) -> str:
    return (
        'platform: "ensemble"\n'
        f"{TENSORS}"
        f'ensemble_scheduling {{ step [{{ model_name: "{member}" model_version: -1 '
        'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }] }\n'
    )


#: By name: what is in the class.
MODELS = {
    "works": WORKS,
    "raises": initializing("raise ValueError('no weights at /data/weights.pt')"),
    "dies": executing("os._exit(4)"),
    "fails": executing("raise KeyError('no such column')"),
}


def write(repository: Path) -> None:
    """Write the models, with a version 1 each."""
    for name, body in MODELS.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)
        (version / "model.py").write_text(f"{BEGIN}\n\nclass TritonPythonModel:\n{body}")
