"""Instances of one load among users, environments, quotas and GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import find_tool
from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.system.model_api.test_instances_threads import CODE, ask, write_model

pytestmark = [pytest.mark.system, pytest.mark.server()]

KINDS = ("forks", "threads")
DRIVER = "int cuDeviceGetCount(int *count) { *count = 1; return 0; }"


@pytest.mark.parametrize("instances", KINDS)
def test_instances_of_one_load_run_in_the_model_s_environment(
    server: Server, tmp_path: Path, instances: str
) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    name = f"environment_{instances}"
    python = string_parameter("PYTHON_EXECUTABLE", str(environment / "bin" / "python"))
    write_model(server, name, 2, string_parameter("INSTANCES", instances) + python)

    assert server.control_model("load", name) == ""
    assert str(environment) == ask(server, name, "sys.prefix")
    server.control_model("unload", name)


@pytest.mark.parametrize(
    "instances",
    [
        "forks",
        pytest.param(
            "threads",
            marks=pytest.mark.long(
                "system/model_api/test_instances_surroundings.py::test_what_takes_too_much_memory_is_ended_with_its_reason",
                "reading/test_policy_reading.py::test_a_process_that_grows_beyond_its_limit_is_reported_once",
            ),
        ),
    ],
)
def test_what_takes_too_much_memory_is_ended_with_its_reason(
    server: Server, instances: str
) -> None:
    name = f"large_{instances}"
    code = CODE.replace("def preload(args):", "def preload(args):\n        grow()")
    grow = "def grow():\n    seen['much'] = b'x' * (300 << 20)\n    time.sleep(60)\n"
    limit = string_parameter("max_memory_bytes", "200M")
    write_model(
        server, name, 2, string_parameter("INSTANCES", instances) + limit, f"{grow}\n{code}"
    )

    assert "max_memory_bytes" in server.control_model("load", name)
    assert server.stub_pids(name) == []


@pytest.mark.parametrize("instances", KINDS)
def test_a_driver_that_was_initialised_is_no_hindrance_but_to_forks(
    server: Server, tmp_path: Path, instances: str
) -> None:
    source, driver = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER)
    compiler = find_tool("gcc", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(driver), str(source)], check=True)
    name = f"cuda_{instances}"
    write_model(
        server,
        name,
        2,
        string_parameter("INSTANCES", instances),
        f"import ctypes\nctypes.CDLL({str(driver)!r})\n{CODE}",
    )

    error = server.control_model("load", name)

    if instances == "forks":
        assert "CUDA was initialised by the import of model.py or in preload()" in error
        assert "move to the GPU in initialize()" in error
    else:
        assert error == ""
        server.control_model("unload", name)


@pytest.mark.parametrize("instances", KINDS)
def test_onnx_runtime_starts_no_thread_in_a_template(server: Server, instances: str) -> None:
    name = f"telemetry_{instances}"
    write_model(server, name, 2, string_parameter("INSTANCES", instances))
    assert server.control_model("load", name) == ""

    expected = "1" if instances == "forks" else os.environ.get("ORT_DISABLE_TELEMETRY", "None")
    assert expected == ask(server, name, "os.environ.get('ORT_DISABLE_TELEMETRY')")
    server.control_model("unload", name)
