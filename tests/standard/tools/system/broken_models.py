"""Models that are broken in one way each, written into a repository."""

from __future__ import annotations

from pathlib import Path

_BEGIN = (
    "import os, sys, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
)
_TENSORS = """
input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }]
"""
_CONFIG = 'backend: "python"\n' + _TENSORS
_ANSWER = "return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.zeros(1, np.float32))])]"
_WORKS = f"    def execute(self, requests):\n        {_ANSWER}\n"


def _parameter(name: str, value: object) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n'


def _calling(model: str) -> str:
    return (
        "    def execute(self, requests):\n"
        "        given = pb_utils.get_input_tensor_by_name(requests[0], 'IN')\n"
        "        asked = pb_utils.InferenceRequest(\n"
        f"            model_name='{model}', requested_output_names=['OUT'], inputs=[given]\n"
        "        )\n"
        "        answer = asked.exec()\n"
        "        if answer.has_error():\n"
        "            raise pb_utils.TritonModelException(answer.error().message())\n"
        f"        {_ANSWER}\n"
    )


def _initializing(*lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"    def initialize(self, args):\n{body}{_WORKS}"


def _executing(*lines: str) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"    def execute(self, requests):\n{body}        {_ANSWER}\n"


def _ensemble(member: str) -> str:
    return (
        'platform: "ensemble"\n'
        f"{_TENSORS}"
        f'ensemble_scheduling {{ step [{{ model_name: "{member}" model_version: -1 '
        'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } }] }\n'
    )


_GPU = "instance_group [{ kind: KIND_GPU gpus: [7] }]\n"
_MANY = "instance_group [{ kind: KIND_CPU count: 900000 }]\n"
_ONE_PER_SECOND = _parameter("max_executions_per_second", "0.05")
_SHORT_QUEUE = _parameter("max_requests", 1)

#: By name: the configuration, and what is in the class (None: no model.py), and before it.
MODELS: dict[str, tuple[str, str | None, str]] = {
    "works": (_CONFIG, _WORKS, ""),
    "import_missing": (_CONFIG, _WORKS, "import nothing_here\n"),
    "syntax_wrong": (_CONFIG, _WORKS, "def broken(:\n    pass\n"),
    "config_wrong": (_CONFIG + "max_batchsize: 3\n", _WORKS, ""),
    "file_missing": (_CONFIG, None, ""),
    "name_wrong": ('name: "another"\n' + _CONFIG, _WORKS, ""),
    "backend_unknown": ('backend: "nonsense"\n' + _TENSORS, _WORKS, ""),
    "raises": (_CONFIG, _initializing("raise ValueError('no weights at /data/weights.pt')"), ""),
    "crashes": (_CONFIG, _initializing("os.kill(os.getpid(), 11)"), ""),
    "exits": (_CONFIG, _initializing("os._exit(3)"), ""),
    "loads_slowly": (
        _CONFIG + _parameter("max_load_seconds", 1),
        _initializing("time.sleep(1000)"),
        "",
    ),
    "loads_long": (_CONFIG, _initializing("time.sleep(1000)"), ""),
    "environment_missing": (
        _CONFIG + _parameter("EXECUTION_ENV_PATH", "/no/such.tar.gz"),
        _WORKS,
        "",
    ),
    "gpu_missing": (_CONFIG + _GPU, _WORKS, ""),
    "too_many": (_CONFIG + _MANY, _WORKS, ""),
    "dies": (_CONFIG, _executing("os._exit(4)"), ""),
    "hungry": (
        _CONFIG + _parameter("max_memory_bytes", "150M"),
        _executing("self.kept = bytearray(400 << 20)", "time.sleep(1000)"),
        "",
    ),
    "member": (_CONFIG, _initializing("raise OSError('the disk is gone')"), ""),
    "chain": (_ensemble("member"), None, ""),
    "chain_misspelt": (_ensemble("workss"), None, ""),
    "throttled": (_CONFIG + _ONE_PER_SECOND, _WORKS, ""),
    "crowded": (_CONFIG + _SHORT_QUEUE, _executing("time.sleep(1000)"), ""),
    "hanging": (_CONFIG, _executing("time.sleep(1000)"), ""),
    "asks_itself": (_CONFIG, _calling("asks_itself"), ""),
    "fails": (_CONFIG, _executing("raise KeyError('no such column')"), ""),
    "misnames": (
        _CONFIG,
        _executing("pb_utils.get_input_tensor_by_name(requests[0], 'INPUT').as_numpy()"),
        "",
    ),
    "doubled": (_CONFIG, _WORKS, ""),
    "unloaded": (_CONFIG, _WORKS, ""),
    "asleep": (_CONFIG, _WORKS, ""),
}


def write(repository: Path, names: list[str] | None = None) -> None:
    """Write the models, with a version 1 each."""
    for name in MODELS if names is None else names:
        config, body, before = MODELS[name]
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(config)
        if body is not None:
            code = f"{_BEGIN}{before}\n\nclass TritonPythonModel:\n{body}"
            (version / "model.py").write_text(code)
