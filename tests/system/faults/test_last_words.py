"""Messages of stubs that have died are delivered, however late the broker comes to read them."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = [pytest.mark.system, pytest.mark.as_nobody]

#: Begins, waits for the word, answers, and dies when the answer has been sent: when each of its
#: threads has been found asleep ten times in a row, and none that wants to go on, however long the
#: machine keeps it waiting.
_LAST = """
import os
import pathlib
import threading
import time

import triton_python_backend_utils as pb_utils

def is_asleep(task):
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "S"

def die():
    own, looks = str(threading.get_native_id()), 0
    while looks < 10:
        time.sleep(0.02)
        others = [t for t in pathlib.Path("/proc/self/task").iterdir() if t.name != own]
        looks = looks + 1 if all(map(is_asleep, others)) else 0
    os._exit(3)

class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "DIRECTORY")
        directory = pathlib.Path(tensor.as_numpy().ravel()[0].decode())
        (directory / f"begun-{os.getpid()}").touch()
        while not (directory / "answer").exists():
            time.sleep(0.002)
        threading.Thread(target=die).start()
        return [pb_utils.InferenceResponse(output_tensors=[tensor])]
"""
_CONFIG = """
backend: "python"
input [ { name: "DIRECTORY" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "DIRECTORY" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { count: 4 kind: KIND_CPU } ]
"""


def _ask(server: Server) -> list[str]:
    """Return what the model answers."""
    tensor = {"name": "DIRECTORY", "datatype": "BYTES", "shape": [1], "data": [str(server.scratch)]}
    status, answer = server.request_json("/v2/models/last/infer", {"inputs": [tensor]})
    assert 200 == status, answer
    data: list[str] = answer["outputs"][0]["data"]
    return data


def test_what_stubs_sent_while_the_broker_slept_is_delivered(shared: SharedServer) -> None:
    server = shared
    (server.repository / "last" / "1").mkdir(parents=True)
    (server.repository / "last" / "config.pbtxt").write_text(_CONFIG)
    (server.repository / "last" / "1" / "model.py").write_text(_LAST)
    server.load("last")
    with ThreadPoolExecutor(4) as clients:
        [broker] = server.pids()["broker"]
        stubs = set(server.stub_pids("last"))
        answers = [clients.submit(_ask, server) for _ in stubs]
        eventually(lambda: len([*server.scratch.glob("begun-*")]) == len(stubs), 30, "executions")

        os.kill(broker, signal.SIGSTOP)
        try:
            (server.scratch / "answer").touch()
            eventually(lambda: not stubs & set(server.stub_pids("last")), 30, "deaths of the stubs")
        finally:
            os.kill(broker, signal.SIGCONT)

        assert [[str(server.scratch)]] * 4 == [answer.result(60) for answer in answers]
        assert [broker] == server.pids()["broker"]
