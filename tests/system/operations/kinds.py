"""One request of each kind that a server takes, whatever switches it has."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from websockets.sync.client import connect

from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ask, ended
from zmqtriton_extras.jobs.tests.batches.requests import begin, line

#: The models that the requests are for, beside the one with routes.
MODELS = ["add_sub", "tokens", "parrot"]
ROUTED = "routed"
_CONFIG = 'backend: "python"\ninput [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
_CONFIG += 'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
_CODE = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x + x)])
"""
_ROUTES = """
import numpy as np
from zmqtriton.routes import route


@route("GET /twice")
async def twice(request, infer):
    return (await infer({"X": np.float32([2])}))["Y"].tolist()
"""
_VALUES = [1.0] * 16
_INFERENCE = {"inputs": [tensor(name, "FP32", _VALUES, [1, 16]) for name in ("INPUT0", "INPUT1")]}


def add_models(server: Server) -> None:
    """Add the model with routes; call this before the start."""
    (server.write_model(ROUTED, _CONFIG, _CODE) / "1" / "routes.py").write_text(_ROUTES)


def plain(server: Server) -> None:
    status, document = server.request_json("/v2/models/add_sub/infer", _INFERENCE)
    assert (200, [2.0] * 16) == (status, document["outputs"][0]["data"])


def grpc(server: Server) -> None:
    with open_client(server, "grpc") as client:
        ones = np.ones((1, 16), np.float32)
        inputs = infer_inputs(module_of(client), INPUT0=ones, INPUT1=ones)
        result = client.infer("add_sub", inputs, client_timeout=60)
    assert 2.0 == result.as_numpy("OUTPUT0")[0][0]


def stream(server: Server) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with open_client(server, "grpc") as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        count = np.array([3], np.int32)
        client.async_stream_infer("tokens", infer_inputs(module_of(client), COUNT=count))
        texts = [answers.get(timeout=60).as_numpy("TOKEN")[0] for _ in range(3)]
        client.stop_stream()
    assert 3 == len(texts)


def generate(server: Server) -> None:
    text = {"text_input": "a b", "stream": False, "sampling_parameters": "{}"}
    status, document = server.request_json("/v2/models/parrot/generate", text)
    assert (200, True) == (status, "text_output" in document), document


def route(server: Server) -> None:
    def twice() -> list[float] | None:
        reply = ask(server, f"/models/{ROUTED}/twice")
        return reply.document if reply.status == 200 else None

    assert [4.0] == eventually(twice, 60, "routes are loaded")


def job(server: Server) -> None:
    headers = {"Prefer": "respond-async", "Content-Type": "application/json"}
    reply = ask(server, "/v2/models/add_sub/infer", json.dumps(_INFERENCE).encode(), headers)
    assert 202 == reply.status, reply
    assert "succeeded" == ended(server, reply.document["id"])["state"]


def batch(server: Server) -> None:
    own_id = begin(server, line("one"))

    def end() -> Any:
        document = ask(server, f"/v1/batches/{own_id}").document
        return document if document["status"] in ("completed", "failed", "expired") else None

    counts = eventually(end, 60, "the batch has ended")["request_counts"]
    assert (1, 0) == (counts["completed"], counts["failed"])


def web_socket(server: Server) -> None:
    place = f"ws://127.0.0.1:{server.http_port}/v2/models/add_sub/stream"
    with connect(place, open_timeout=60) as client:
        client.send(json.dumps(_INFERENCE))
        document = json.loads(client.recv(timeout=60))
    assert [2.0] * 16 == document["outputs"][0]["data"]


def metrics(server: Server) -> None:
    assert "nv_inference_request_success" in server.metrics_text()


_OVER_HTTP = {"plain": plain, "generate": generate, "WebSocket": web_socket}
_OVER_GRPC = {"gRPC": grpc, "stream": stream}


def kinds_of(words: Sequence[str]) -> dict[str, Callable[[Server], None]]:
    """Return the kinds of requests that a server with these words takes."""
    kinds: dict[str, Callable[[Server], None]] = {}
    has_http = "--allow-http=false" not in words
    if has_http:
        kinds |= _OVER_HTTP
    if "--allow-grpc=false" not in words:
        kinds |= _OVER_GRPC
    if has_http and "--routes" in words:
        kinds["route"] = route
    if has_http and "--jobs" in words:
        kinds["job"] = job
        if "--allow-openai" in words:
            kinds["batch"] = batch
    if "--allow-metrics=false" not in words:
        kinds["metrics"] = metrics
    return kinds
