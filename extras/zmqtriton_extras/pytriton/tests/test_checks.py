"""The environment as a log, and names of `pytriton.utils`."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.support.waiting import eventually
from zmqtriton_extras.pytriton.check.env_checks import env_checks
from zmqtriton_extras.pytriton.check.utils import ScriptThread, find_free_port
from zmqtriton_extras.pytriton.utils.dataclasses import kwonly_dataclass
from zmqtriton_extras.pytriton.utils.distribution import get_root_module_path, is_editable_install
from zmqtriton_extras.pytriton.utils.endpoint_utils import get_endpoint
from zmqtriton_extras.pytriton.utils.logging import silence_3rd_party_loggers

pytestmark = pytest.mark.slow


def test_the_environment_is_logged_without_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-secret-of-mine")

    with caplog.at_level(logging.INFO):
        env_checks(logging.getLogger("check"))

    assert f"Distribution: numpy=={np.__version__}" in caplog.text
    assert "HF_TOKEN" in caplog.text
    assert "a-secret-of-mine" not in caplog.text
    assert "GPUs: " in caplog.text


def test_fields_are_set_by_name_alone() -> None:
    @kwonly_dataclass
    @dataclass
    class Point:
        x: int
        y: int = 2

    assert (1, 2) == (Point(x=1).x, Point(x=1).y)
    with pytest.raises(TypeError, match="can't be used with positional arguments"):
        Point(1)


def test_the_package_is_where_its_modules_are() -> None:
    assert (get_root_module_path() / "triton.py").exists()
    assert is_editable_install() is ("site-packages" not in str(get_root_module_path()))


@pytest.mark.parametrize(
    ("options", "endpoint", "url"),
    [
        ({}, "http", "http://127.0.0.1:8000"),
        ({}, "grpc", "grpc://127.0.0.1:8001"),
        ({"http-address": "0.0.0.0", "http-port": 9000}, "http", "http://127.0.0.1:9000"),
        ({"http-address": "10.0.0.1"}, "metrics", "http://10.0.0.1:8002"),
        ({"grpc-address": "host", "grpc-port": "7"}, "grpc", "grpc://host:7"),
    ],
)
def test_an_endpoint_is_found_by_the_options_of_the_server(
    options: dict[str, Any], endpoint: Any, url: str
) -> None:
    assert url == get_endpoint(options, endpoint)


def test_loggers_of_others_are_silenced() -> None:
    logging.getLogger("sh.command").setLevel(logging.DEBUG)

    silence_3rd_party_loggers()

    assert logging.WARNING == logging.getLogger("sh.command").level


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as listener:
        listener.bind(("", find_free_port()))


def test_a_script_runs_beside_its_caller_and_its_output_is_kept() -> None:
    code = (
        "import sys; print('begun'); print('wrong', file=sys.stderr); sys.stdin.read(); sys.exit(3)"
    )

    with ScriptThread([sys.executable, "-c", code], name="script") as script:
        script.join(60)

    assert (3, False) == (script.returncode, script.active)
    assert {"begun", "wrong"} == {*script.output.splitlines()}


def test_a_script_ends_with_its_context_and_by_signals() -> None:
    code = "import time; print('begun', flush=True); time.sleep(600)"
    with (
        ScriptThread([sys.executable, "-c", code]) as ended,
        ScriptThread([sys.executable, "-c", code]) as signalled,
    ):
        eventually(lambda: "begun" in ended.output and "begun" in signalled.output, 60)
        assert ended.active
        assert signalled.process is not None
        signalled.process.send_signal(signal.SIGKILL)

    assert (-signal.SIGTERM, -signal.SIGKILL) == (ended.returncode, signalled.returncode)


def test_a_script_that_is_not_there_says_so() -> None:
    with ScriptThread(["/no/such/program"]) as script:
        script.join(60)

    assert script.returncode is None
    assert "/no/such/program" in script.output
