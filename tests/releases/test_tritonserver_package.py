"""The distribution with the import name of Triton's in-process API."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.releases.distributions import run, unpacked
from tests.support.needs import ROOT
from zmqtriton_floor import TRITON_VERSION, __version__

PACKAGE = ROOT / "packages" / "tritonserver"
#: What Triton's wheel offers.
NAMES = (
    "AlreadyExistsError DLDeviceType DataType InferenceRequest InferenceResponse "
    "InstanceGroupKind InternalError InvalidArgumentError LogFormat MemoryBuffer MemoryType "
    "Metric MetricFamily MetricFormat MetricKind Model ModelBatchFlag ModelControlMode "
    "ModelTxnPropertyFlag NotFoundError Options RateLimitMode RateLimiterResource Server Tensor "
    "TritonError UnavailableError UnknownError UnsupportedError"
)
#: What its bindings have besides calls: errors and enumerations, with their numbers.
NUMBERS = {
    "DataType": "INVALID BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 "
    "BYTES BF16",
    "InferenceTraceActivity": "REQUEST_START QUEUE_START COMPUTE_START COMPUTE_INPUT_END "
    "COMPUTE_OUTPUT_START COMPUTE_END REQUEST_END TENSOR_QUEUE_INPUT TENSOR_BACKEND_INPUT "
    "TENSOR_BACKEND_OUTPUT",
    "InferenceTraceLevel": "DISABLED MIN MAX . TIMESTAMPS . . . TENSORS",
    "InstanceGroupKind": "AUTO CPU GPU MODEL",
    "LogFormat": "DEFAULT ISO8601",
    "LogLevel": "INFO WARN ERROR VERBOSE",
    "MemoryType": "CPU CPU_PINNED GPU",
    "MetricFormat": "PROMETHEUS",
    "MetricKind": "COUNTER GAUGE",
    "ModelBatchFlag": ". UNKNOWN FIRST_DIM",
    "ModelControlMode": "NONE POLL EXPLICIT",
    "ModelIndexFlag": ". READY",
    "ModelTxnPropertyFlag": ". ONE_TO_ONE DECOUPLED",
    "ParameterType": "STRING INT BOOL BYTES DOUBLE",
    "RateLimitMode": "OFF EXEC_COUNT",
    "RequestFlag": ". SEQUENCE_START SEQUENCE_END",
    "RequestReleaseFlag": ". ALL",
    "ResponseCompleteFlag": ". FINAL",
}

SCRIPT = """
import json, sys
import tritonserver, tritonserver._c, tritonserver._c.triton_bindings as bindings
names, numbers = json.load(sys.stdin)
wrong = [name for name in names.split() if not hasattr(tritonserver, name)]
for name, members in numbers.items():
    kind = getattr(bindings, "TRITONSERVER_" + name)
    wrong += [
        f"{name}.{member}"
        for number, member in enumerate(members.split())
        if member != "." and int(kind[member]) != number
    ]
kinds = {bindings.TRITONSERVER_DataType, tritonserver.DataType}
kinds.add(tritonserver._c.TRITONSERVER_DataType)
print(json.dumps([tritonserver.__file__, tritonserver.__version__, wrong, len(kinds) == 1]))
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place where a script finds its wheel, unpacked."""
    return unpacked(PACKAGE, tmp_path_factory.mktemp("tritonserver"))


@pytest.mark.long(
    "command_line/test_public_names.py::test_a_module_is_the_same_by_both_names",
    "releases/test_tritonserver_package.py::test_its_version_is_that_of_zmqtriton",
)
def test_programs_find_our_names_under_tritons(target: Path) -> None:
    path, version, wrong, is_same = json.loads(run(target, SCRIPT, [NAMES, NUMBERS]))

    assert str(target) in path
    assert TRITON_VERSION == version
    assert [] == wrong
    assert is_same


def test_its_version_is_that_of_zmqtriton() -> None:
    text = (PACKAGE / "pyproject.toml").read_text("utf-8")

    assert [__version__, __version__] == re.findall(r'"(?:zmqtriton==)?([0-9][0-9.]+)"', text)
