"""A server that is asked to stop while clients have sequences to go on with."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.scheduling.test_sequences import (
    _END,
    _START,
    _ask,
    _error,
    _input,
    _must_start,
    _vary,
)

pytestmark = pytest.mark.system

_STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"
_ENSEMBLE = """
platform: "ensemble"
max_batch_size: 4
input [ { name: "VALUE" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "SUM" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "long" model_version: -1
  input_map { key: "VALUE" value: "VALUE" } output_map { key: "SUM" value: "SUM" }
} ] }
"""
#: Asks as one sequence or another, with flags; its sum, or the error.
Ask = Callable[[int, int], int | str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "s", models=["sequences", "add_sub"], frontends=("grpc",))
    _vary(server, "hasty", ("microseconds: 5000000", "microseconds: 300000"))
    more_slots = "max_batch_size: 4", "max_batch_size: 8"
    _vary(server, "long", ("microseconds: 5000000", "microseconds: 600000000"), more_slots)
    (server.repository / "around" / "1").mkdir(parents=True)
    (server.repository / "around" / "config.pbtxt").write_text(_ENSEMBLE)
    with server:
        yield server


def _stop(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: "Waiting for in-flight" in server.log_text(), 30, "the stop")
    eventually(lambda: server.status("/v2/health/ready") == 400, 30, "it is not ready")


def _exit_code(server: Server) -> int:
    assert server.process is not None
    return server.process.wait(60)


def _over_http(client: httpclient.InferenceServerClient, model: str = "long") -> Ask:
    def ask(sequence: int, flags: int) -> int | str:
        try:
            return _ask(client, model, sequence, flags).sum
        except InferenceServerException as error:
            return f"{error.status()} {error.message()}"

    return ask


def _plain(client: httpclient.InferenceServerClient) -> str:
    """Return the error of a request to a model without sequences; "" if it is answered."""
    inputs = [httpclient.InferInput(f"INPUT{number}", [1, 16], "FP32") for number in (0, 1)]
    for tensor in inputs:
        tensor.set_data_from_numpy(np.zeros((1, 16), np.float32))
    try:
        client.infer("add_sub", inputs)
    except InferenceServerException as error:
        return f"{error.status()} {error.message()}"
    return ""


def _anew_over_http(server: Server) -> Ask:
    """With a connection for each request."""

    def ask(sequence: int, flags: int) -> int | str:
        with httpclient.InferenceServerClient(server.url.removeprefix("http://")) as client:
            return _over_http(client)(sequence, flags)

    return ask


def _options(sequence: int, flags: int) -> dict[str, Any]:
    ends = {"sequence_start": bool(flags & _START), "sequence_end": bool(flags & _END)}
    return {"model_name": "long", "sequence_id": sequence, **ends}


def _sum(result: Any) -> int:
    return int(result.as_numpy("SUM").ravel()[0])


def _over_grpc(client: grpcclient.InferenceServerClient) -> Ask:
    def ask(sequence: int, flags: int) -> int | str:
        try:
            return _sum(client.infer(inputs=_input(grpcclient, 1), **_options(sequence, flags)))
        except InferenceServerException as error:
            return f"{error.status()} {error.message()}"

    return ask


def _on_a_stream(client: grpcclient.InferenceServerClient) -> Ask:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))

    def ask(sequence: int, flags: int) -> int | str:
        client.async_stream_infer(inputs=_input(grpcclient, 1), **_options(sequence, flags))
        result, error = answers.get(timeout=30)
        return str(error.message()) if error is not None else _sum(result)

    return ask


@pytest.mark.row("E78")
def test_sequences_that_are_open_end_in_order_and_others_are_refused(server: Server) -> None:
    kept = httpclient.InferenceServerClient(server.url.removeprefix("http://"))
    calls = grpcclient.InferenceServerClient(server.grpc_address)
    streams = grpcclient.InferenceServerClient(server.grpc_address)
    with kept, calls, streams:
        clients: list[Ask] = [
            _over_http(kept),
            _anew_over_http(server),
            _over_http(kept, "around"),
            _over_grpc(calls),
            _on_a_stream(streams),
        ]
        assert [1] * 5 == [ask(n, _START) for n, ask in enumerate(clients, start=1)]
        _ask(kept, "hasty", 1, _START)  # and nobody ends it

        _stop(server)

        assert [2] * 5 == [ask(n, 0) for n, ask in enumerate(clients, start=1)]
        refusal = f"503 {_STOPPING}"
        eventually(lambda: clients[0](9, _START | _END) == refusal, 60, "others are refused")
        refusals = [str(ask(9, _START)) for ask in clients]
        assert [refusal] * 3 + [f"StatusCode.UNAVAILABLE {_STOPPING}", _STOPPING] == refusals
        assert "" == _plain(kept), "what needs no sequence is answered"
        assert ("400", _must_start(9, "long")) == _error(kept, "long", 9)
        assert [200, 400] == [
            server.status(path) for path in ("/v2/health/live", "/v2/models/long/ready")
        ]
        assert not calls.is_server_ready()
        said = "Model 'long' (version 1) has 5 in-flight inferences"
        eventually(lambda: said in server.log_text(), 60, "who has them")

        assert [3] * 5 == [ask(n, _END) for n, ask in enumerate(clients, start=1)]
        assert 0 == _exit_code(server)
