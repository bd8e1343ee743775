"""Models that ask others, in a real server: their order of loading and of ending."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.stamps import control_model, index_entry
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system

#: Waits for a word, then asks the other model.
_CALLER = """
import pathlib, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        folder = pathlib.Path({folder!r})
        (folder / "asked").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "X")
        answer = pb_utils.InferenceRequest(
            model_name="callee", requested_output_names=["Y"], inputs=[tensor]
        ).exec()
        if answer.has_error():
            raise answer.error()
        return [pb_utils.InferenceResponse(answer.output_tensors())]
"""
_CALLEE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "X")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor.as_numpy())])]
"""
_CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
_NAMES = 'parameters { key: "BLS_MODELS" value { string_value: "callee" } }\n'


@pytest.fixture
def server(shared: SharedServer) -> Server:
    for name, source in (("caller", _CALLER), ("callee", _CALLEE)):
        folder = shared.repository / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(source.replace("{folder!r}", repr(str(shared.scratch))))
        (folder.parent / "config.pbtxt").write_text(_CONFIG + (_NAMES if name == "caller" else ""))
    return shared


def _infer(server: Server) -> list[int]:
    tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [7]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(f"{server.url}/v2/models/caller/infer", body, 60) as answer:
        data: list[int] = json.loads(answer.read())["outputs"][0]["data"]
    return data


def _begin(server: Server, clients: ThreadPoolExecutor) -> Future[list[int]]:
    (server.scratch / "go").unlink(missing_ok=True)
    (server.scratch / "asked").unlink(missing_ok=True)
    answering = clients.submit(_infer, server)
    eventually(lambda: (server.scratch / "asked").exists(), 30, "it is being executed")
    return answering


@pytest.mark.row("F12", "F14")
def test_what_a_caller_still_has_is_answered_before_whom_it_asks_goes(server: Server) -> None:
    assert (200, "") == control_model(server, "load", "caller")
    last = "successfully loaded 'caller'"
    log = eventually(lambda: text if last in (text := server.log_text()) else "", 60)
    loaded = [log.find(f"successfully loaded '{name}'") for name in ("callee", "caller")]
    assert -1 < loaded[0] < loaded[1], "it was brought along, and came first"

    with ThreadPoolExecutor(1) as clients:
        answering = _begin(server, clients)
        _unload_with_dependents(server)
        assert 400 == server.status("/v2/models/callee/ready")
        states = [index_entry(server, name)["state"] for name in ("caller", "callee")]
        assert ["UNLOADING"] * 2 == states
        with pytest.raises(urllib.error.HTTPError, match="Not Found") as refused:
            _infer(server)
        refused.value.close()
        (server.scratch / "go").touch()
        assert [7] == answering.result(60)

        log = eventually(lambda: _told_of_both(server), 30, "both have ended")
        ended = [log.find(f"successfully unloaded '{name}'") for name in ("caller", "callee")]
        assert ended[0] < ended[1]
        for name in ("caller", "callee"):
            entry = index_entry(server, name)
            assert ("UNAVAILABLE", "unloaded") == (entry["state"], entry["reason"])


def _unload_with_dependents(server: Server) -> None:
    body = json.dumps({"parameters": {"unload_dependents": True}}).encode()
    url = f"{server.url}/v2/repository/models/callee/unload"
    with urllib.request.urlopen(url, body, 60) as answer:
        assert 200 == answer.status


def _told_of_both(server: Server) -> str:
    log = server.log_text()
    return log if log.count("successfully unloaded") == 2 else ""
