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


_GPU = "instance_group [{ kind: KIND_GPU gpus: [7] }]\n"
_MANY = "instance_group [{ kind: KIND_CPU count: 900000 }]\n"
_ONE_PER_SECOND = parameter("max_executions_per_second", "0.05")
_SHORT_QUEUE = parameter("max_requests", 1)

#: By name: the configuration, and what is in the class (None: no model.py), and before it.
MODELS: dict[str, tuple[str, str | None, str]] = {
    "works": (CONFIG, WORKS, ""),
    "import_missing": (CONFIG, WORKS, "import nothing_here\n"),
    "syntax_wrong": (CONFIG, WORKS, "def broken(:\n    pass\n"),
    "config_wrong": (CONFIG + "max_batchsize: 3\n", WORKS, ""),
    "file_missing": (CONFIG, None, ""),
    "name_wrong": ('name: "another"\n' + CONFIG, WORKS, ""),
    "backend_unknown": ('backend: "nonsense"\n' + TENSORS, WORKS, ""),
    "raises": (CONFIG, initializing("raise ValueError('no weights at /data/weights.pt')"), ""),
    "crashes": (CONFIG, initializing("os.kill(os.getpid(), 11)"), ""),
    "exits": (CONFIG, initializing("os._exit(3)"), ""),
    "loads_slowly": (
        CONFIG + parameter("max_load_seconds", 1),
        initializing("time.sleep(1000)"),
        "",
    ),
    "loads_long": (CONFIG, initializing("time.sleep(1000)"), ""),
    "environment_missing": (
        CONFIG + parameter("EXECUTION_ENV_PATH", "/no/such.tar.gz"),
        WORKS,
        "",
    ),
    "gpu_missing": (CONFIG + _GPU, WORKS, ""),
    "too_many": (CONFIG + _MANY, WORKS, ""),
    "dies": (CONFIG, executing("os._exit(4)"), ""),
    "hungry": (
        CONFIG + parameter("max_memory_bytes", "150M"),
        executing("self.kept = bytearray(400 << 20)", "time.sleep(1000)"),
        "",
    ),
    "member": (CONFIG, initializing("raise OSError('the disk is gone')"), ""),
    "chain": (ensemble("member"), None, ""),
    "chain_misspelt": (ensemble("workss"), None, ""),
    "throttled": (CONFIG + _ONE_PER_SECOND, WORKS, ""),
    "crowded": (CONFIG + _SHORT_QUEUE, executing("time.sleep(1000)"), ""),
    "hanging": (CONFIG, executing("time.sleep(1000)"), ""),
    "asks_itself": (CONFIG, calling("asks_itself"), ""),
    "fails": (CONFIG, executing("raise KeyError('no such column')"), ""),
    "misnames": (
        CONFIG,
        executing("pb_utils.get_input_tensor_by_name(requests[0], 'INPUT').as_numpy()"),
        "",
    ),
    "doubled": (CONFIG, WORKS, ""),
}


def write(repository: Path, names: list[str] | None = None) -> None:
    """Write the models, with a version 1 each."""
    for name in MODELS if names is None else names:
        config, body, before = MODELS[name]
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(config)
        if body is not None:
            code = f"{BEGIN}{before}\n\nclass TritonPythonModel:\n{body}"
            (version / "model.py").write_text(code)
