"""Instances that are processes, and a server that somebody else has started."""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.waiting import eventually
from zmqtriton.embedded.server import Server
from zmqtriton_extras.pytriton.binding import Binding
from zmqtriton_extras.pytriton.decorators import TritonContext
from zmqtriton_extras.pytriton.exceptions import (
    PyTritonUnrecoverableError,
    PyTritonValidationError,
)
from zmqtriton_extras.pytriton.model_config import ModelConfig, Tensor
from zmqtriton_extras.pytriton.tests.system.served import FLOATS, Served, configured, ones
from zmqtriton_extras.pytriton.triton import RemoteTriton, Triton
from zmqtriton_floor.errors import ZmqTritonError

pytestmark = pytest.mark.system


def _own_pid(requests: list[Any]) -> Any:
    return [{"OUTPUT_1": np.array([[os.getpid()]], np.int64)} for _ in requests]


NUMBER = Tensor(shape=(1,), dtype=np.int64)


def test_instances_are_processes_where_that_is_asked_for(served: Served) -> None:
    served.triton.bind(
        "processes", [_own_pid, _own_pid], inputs=[FLOATS], outputs=[NUMBER], processes=True
    )

    pids = {served.ask("processes", INPUT_1=ones(1, 1))["OUTPUT_1"][0] for _ in range(20)}
    assert os.getpid() not in pids
    (victim, *_) = pids
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: _answers_without(served, victim), within_s=60)
    served.triton.unbind("processes")
    eventually(lambda: not any(map(psutil.pid_exists, pids)), within_s=60)


def test_its_end_is_seen_though_a_fork_holds_what_it_was_started_with(served: Served) -> None:
    served.triton.bind("held", _own_pid, inputs=[FLOATS], outputs=[NUMBER], processes=True)
    (victim,) = served.ask("held", INPUT_1=ones(1, 1))["OUTPUT_1"]
    with ExitStack() as held:
        # as a fork would that another thread made while the instance was started
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):
                held.callback(os.close, os.dup(descriptor))

        os.kill(victim, signal.SIGKILL)

        eventually(lambda: _answers_without(served, victim, model="held"), within_s=60)
    served.triton.unbind("held")


class _Uncollectable:
    """Part of a circle, as a channel of gRPC may be; its end hangs in any process but this one."""

    def __init__(self) -> None:
        self.circle = self
        self.pid = os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.pid:
            time.sleep(600)


def test_garbage_of_the_users_process_is_not_destroyed_in_another(served: Served) -> None:
    gc.disable()
    try:
        _Uncollectable()
        served.triton.bind("own", _own_pid, inputs=[FLOATS], outputs=[NUMBER], processes=True)
    finally:
        gc.enable()

    assert "OUTPUT_1" in served.ask("own", INPUT_1=ones(1, 1))
    served.triton.unbind("own")


def _answers_without(served: Served, victim: int, model: str = "processes") -> bool:
    answers = [served.ask(model, INPUT_1=ones(1, 1)) for _ in range(10)]
    return all(victim not in answer.get("OUTPUT_1", [victim]) for answer in answers)


@pytest.mark.long(
    "extras/pytriton/system/test_processes.py::test_instances_are_processes_where_that_is_asked_for",
    "system/loads/test_loads.py::test_a_hung_execution_is_ended_at_its_bound",
)
def test_a_process_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    def hang(requests: list[Any]) -> Any:
        if requests[0]["INPUT_1"][0, 0] < 0:
            time.sleep(600)
        return _own_pid(requests)

    with Server(tmp_path, log_file=str(tmp_path / "log.txt")) as server:
        binding = Binding(
            "hang",
            hang,
            [FLOATS],
            [NUMBER],
            ModelConfig(),
            model_version=1,
            strict=False,
            processes=True,
        )
        limit = {"max_execution_seconds": "1"}
        binding._config.backend_parameters.update(limit)
        binding.load(server, TritonContext(), print)
        model = server.model("hang")
        with pytest.raises(ZmqTritonError, match="max_execution_seconds"):
            list(model.infer(inputs={"INPUT_1": -ones(1, 1)}))
        eventually(model.is_ready, within_s=60)
        (answer,) = model.infer(inputs={"INPUT_1": ones(1, 1)})
        assert answer.outputs["OUTPUT_1"][0, 0] != os.getpid()
        del answer


@pytest.mark.long(
    "extras/pytriton/system/test_triton.py::test_an_unrecoverable_error_ends_the_server",
    "extras/pytriton/system/test_processes.py::test_instances_are_processes_where_that_is_asked_for",
)
@pytest.mark.row("J09")
def test_an_unrecoverable_error_of_a_process_ends_the_server(tmp_path: Path) -> None:
    def fatal(requests: list[Any]) -> Any:
        raise PyTritonUnrecoverableError("no way on")

    config = configured(tmp_path)
    assert config.http_port is not None
    with Triton(config=config) as triton:
        triton.bind("fatal", fatal, inputs=[FLOATS], outputs=[NUMBER], processes=True)
        assert "no way on" in Served(triton, config.http_port).ask("fatal", INPUT_1=ones(1, 1))[""]
        eventually(lambda: not triton.is_alive(), within_s=60)


@pytest.mark.row("J32")
def test_models_are_bound_into_a_server_of_somebody_else(served: Served, tmp_path: Path) -> None:
    port = served.url.rpartition(":")[2]
    with RemoteTriton(url=f"localhost:{port}") as remote:
        remote.bind(
            "remote",
            lambda requests: [{"OUTPUT_1": r["INPUT_1"] * 5} for r in requests],
            inputs=[FLOATS],
            outputs=[FLOATS],
        )
        assert served.ask("remote", INPUT_1=ones(1, 1)) == {"OUTPUT_1": [5]}
    assert "" in served.ask("remote", INPUT_1=ones(1, 1))
    assert served.triton.is_alive()
    with pytest.raises(PyTritonValidationError, match="on this machine"):
        RemoteTriton(url="elsewhere.example:8000")
