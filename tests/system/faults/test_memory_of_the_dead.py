"""A model's process ends while others still read what it has made: they read on.

All ways to read are under way when it ends, in each way in which that can be; later nothing of its
memory is left.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.http as http_client

from tests.support.clients import infer_inputs, infer_message
from tests.support.scraping import read_series, sum_series
from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_protos import message

pytestmark = [
    pytest.mark.system,
    pytest.mark.large_tensors,
    pytest.mark.server(models=["identity_fp32"]),
]
#: Empty segments go back after some seconds.
REST_S = 60.0
#: Memory of the dead was once kept for five seconds, whoever read it.
PAUSE_S = 6.0
COUNT = 750_000
PARTS = 16
_ANY_SIZE = [("grpc.max_receive_message_length", -1)]

_CONFIG = """
backend: "python"
{more}
input [ {{ name: "SEED" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {outputs} ]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""
_OUTPUT = '{{ name: "{}" data_type: TYPE_FP32 dims: [ -1 ] }}'
_STREAMER = f"""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            seed = int(pb_utils.get_input_tensor_by_name(request, "SEED").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range({PARTS}):
                array = np.full({COUNT // PARTS}, seed + number, np.float32)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("MADE", array)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
#: Shows that it is being executed, and waits for leave to go on.
_GATE = """
def pass_gate(name):
    gate = os.path.join("@GATES@", name)
    open(gate + ".begun", "w").close()
    while not os.path.exists(gate):
        time.sleep(0.005)
"""
#: Makes a tensor that is full of the seed.
_MAKER = f"""
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        seed = int(pb_utils.get_input_tensor_by_name(request, "SEED").as_numpy()[0])
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("MADE", np.full({COUNT}, seed, np.float32))]
        )
"""
_ASKER = f"""
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils

{_GATE}

class TritonPythonModel:
    # Answers with what the maker has made, and with what another model makes of that later.
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        made = self._ask("maker", "MADE", pb_utils.get_input_tensor_by_name(request, "SEED"))
        pass_gate("asker")
        passed_on = self._ask("identity_fp32", "OUTPUT0", pb_utils.Tensor("INPUT0", made))
        outputs = [pb_utils.Tensor("MADE", made), pb_utils.Tensor("PASSED", passed_on)]
        return pb_utils.InferenceResponse(outputs)

    def _ask(self, model, output, tensor):
        request = pb_utils.InferenceRequest(
            model_name=model, requested_output_names=[output], inputs=[tensor]
        )
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return response.output_tensors()[0].as_numpy()
"""
_WAITER = f"""
import os
import time

import triton_python_backend_utils as pb_utils

{_GATE}

class TritonPythonModel:
    # Gives back its input.
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        pass_gate("waiter")
        array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("PASSED", array)])
"""
_CHAIN = """
platform: "ensemble"
input [ { name: "SEED" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [
  { name: "MADE" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "PASSED" data_type: TYPE_FP32 dims: [ -1 ] }
]
ensemble_scheduling {
  step [
    {
      model_name: "maker" model_version: -1
      input_map { key: "SEED" value: "SEED" } output_map { key: "MADE" value: "MADE" }
    },
    {
      model_name: "waiter" model_version: -1
      input_map { key: "X" value: "MADE" } output_map { key: "PASSED" value: "PASSED" }
    }
  ]
}
"""


def prepare(server: Server) -> None:
    gates = str(_gates(server))
    made, passed = _OUTPUT.format("MADE"), _OUTPUT.format("PASSED")
    decoupled = "model_transaction_policy { decoupled: true }"
    server.write_model("maker", _CONFIG.format(more="", outputs=made), _MAKER)
    server.write_model("streamer", _CONFIG.format(more=decoupled, outputs=made), _STREAMER)
    server.write_model(
        "asker",
        _CONFIG.format(more="", outputs=f"{made}, {passed}"),
        _ASKER.replace("@GATES@", gates),
    )
    config = _CONFIG.format(more="", outputs=passed)
    config = config.replace(
        '"SEED" data_type: TYPE_INT32 dims: [ 1 ]', '"X" data_type: TYPE_FP32 dims: [ -1 ]'
    )
    server.write_model("waiter", config, _WAITER.replace("@GATES@", gates))
    server.write_model("chain", _CHAIN)


def _gates(server: Server) -> Path:
    gates = server.repository.parent / "gates"
    gates.mkdir(exist_ok=True)
    return gates


@pytest.fixture(autouse=True)
def gates(server: Server) -> Path:
    """Return the directory of the gates, all of which are closed."""
    gates = _gates(server)
    for path in gates.iterdir():
        path.unlink()
    return gates


# --------------------------------------------------------------------- readers


class _HttpClient:
    """A client that asks for tensors full of a seed, with little room for the answer."""

    def __init__(self, server: Server, model: str, seed: int, *outputs: str) -> None:
        self._expected = np.full(COUNT, seed, np.float32).tobytes() * len(outputs)
        names = [http_client.InferRequestedOutput(name, binary_data=True) for name in outputs]
        inputs = infer_inputs(http_client, SEED=np.array([seed], np.int32))
        body, length = http_client.InferenceServerClient.generate_request_body(inputs, names)
        self._connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=240)
        self._connection.connect()
        # so that little of the answer is in the kernel's hands
        self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        headers = {"Inference-Header-Content-Length": str(length)}
        self._connection.request("POST", f"/v2/models/{model}/infer", body, headers)

    def read_head(self) -> None:
        self._response = self._connection.getresponse()

    def finish(self) -> None:
        answer = self._response.read()
        assert answer.endswith(self._expected), (self._response.status, answer[:1000])
        self._connection.close()

    def leave(self) -> None:
        self._response.close()
        self._connection.close()


def _read_slowly(server: Server, seed: int) -> _HttpClient:
    """A client that has read the head of an answer."""
    client = _HttpClient(server, "maker", seed, "MADE")
    client.read_head()
    return client


class _Waiting:
    """A request for a model that waits at its gate."""

    def __init__(self, server: Server, gate: Path, model: str, seed: int, *outputs: str) -> None:
        self._gate = gate
        self._client = _HttpClient(server, model, seed, *outputs)
        eventually(Path(f"{gate}.begun").exists, 60, f"{model} has begun")

    def finish(self) -> None:
        """Let it go on, and check its answer."""
        self._gate.touch()
        self._client.read_head()
        self._client.finish()


class _SlowGrpc:
    """A client that has read the first response of a stream."""

    def __init__(self, server: Server, seed: int) -> None:
        self._seed = seed
        before = _answered(server, "streamer")
        self._channel = grpc.insecure_channel(server.grpc_address, options=_ANY_SIZE)
        call = self._channel.stream_stream(
            "/inference.GRPCInferenceService/ModelStreamInfer",
            response_deserializer=message("inference.ModelStreamInferResponse").FromString,
        )
        request = infer_message("streamer", SEED=np.array([seed], np.int32))
        self._responses: Any = call(iter([request]), timeout=240)
        self._got = [next(self._responses)]
        # the model has sent all of it
        eventually(lambda: _answered(server, "streamer") > before, 60, "the end of the stream")

    def finish(self) -> None:
        self._got += self._responses
        self._channel.close()
        assert [""] * PARTS == [one.error_message for one in self._got]
        for number, response in enumerate(self._got):
            [data] = response.infer_response.raw_output_contents
            expected = np.full(COUNT // PARTS, self._seed + number, np.float32)
            assert expected.tobytes() == data, number


def _answered(server: Server, model: str) -> int:
    return int(server.statistics(model)["inference_count"])


# ------------------------------------------------------------------------ ends


def _reload(server: Server, model: str) -> None:
    code = server.repository / model / "1" / "model.py"
    code.write_text(code.read_text() + f"\n# {time.monotonic_ns()}\n")
    assert not server.control_model("load", model)


def _kill(server: Server, model: str) -> None:
    server.kill_only("stub", model)


def _unload(server: Server, model: str) -> None:
    assert not server.control_model("unload", model)


_ENDS: dict[str, Callable[[Server, str], None]] = {
    "killed": _kill,
    "reloaded": _reload,
    "unloaded": _unload,
}


def _in_use(server: Server) -> float:
    """Leases, and bytes of all arenas."""
    names = ("zmqtriton_leased_blocks", "zmqtriton_shared_memory_bytes")
    return sum(value for key, value in read_series(server).items() if key.startswith(names))


def _end(server: Server, how: str, *models: str) -> None:
    """End the processes of models, and wait until they are dead."""
    processes = [psutil.Process(pid) for model in models for pid in server.stub_pids(model)]
    for model in models:
        _ENDS[how](server, model)
    eventually(lambda: not any(one.is_running() for one in processes), 60, "their ends")


def _read_all(server: Server, gates: Path) -> list[Any]:
    """Return readers of all kinds, all of which have begun."""
    return [
        _Waiting(server, gates / "asker", "asker", 11, "MADE", "PASSED"),
        _Waiting(server, gates / "waiter", "chain", 21, "MADE", "PASSED"),
        _read_slowly(server, 31),
        _SlowGrpc(server, 41),
    ]


def _finish(server: Server, readers: list[Any]) -> None:
    """Let the readers come to their ends, and check that they lack nothing and leave nothing."""
    for reader in readers:
        reader.finish()
    assert "it has no access to" not in server.log_text()
    eventually(lambda: not _in_use(server), REST_S, "everything free")


@pytest.mark.parametrize(
    "how",
    [
        "killed",
        *(
            pytest.param(
                how,
                marks=pytest.mark.long(
                    "system/faults/test_memory_of_the_dead.py::test_all_who_read_what_a_process_has_made_read_on_after_its_end"
                ),
            )
            for how in ("reloaded", "unloaded")
        ),
    ],
)
def test_all_who_read_what_a_process_has_made_read_on_after_its_end(
    server: Server, gates: Path, how: str
) -> None:
    for model in ("maker", "streamer"):
        assert not server.control_model("load", model)
    readers = _read_all(server, gates)

    _end(server, how, "maker", "streamer")
    assert sum_series(server, "zmqtriton_shared_memory_bytes", role="ended") >= 4 * COUNT
    if how == "killed":
        time.sleep(PAUSE_S)  # clients may be slow

    _finish(server, readers)
