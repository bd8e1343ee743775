"""More requests than a model may have: how many are refused, how, and that it passes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import textwrap
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.faults import overload
from tests.support.clients import infer_inputs
from tests.support.scraping import sum_series
from tests.support.scripted import GATE, generate, string_parameter
from tests.support.server import Copy, Server, tensor
from tests.support.waiting import eventually
from zmqtriton_protos import message

FULL = "Exceeds maximum queue size"
LIMIT = 4


pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=[
            Copy("scripted", "limited", string_parameter("max_requests", str(LIMIT))),
            Copy("scripted", "free"),
            overload.slow_model("asleep", 2),
        ],
        options=["--max-requests=12"],
    ),
]


def _ask(server: Server, model: str, script: str, argument: str = "") -> tuple[int, str, str]:
    """Status, text and Retry-After, of the usual way in."""
    inputs = tensor("SCRIPT", "BYTES", [script]), tensor("ARGUMENT", "BYTES", [argument])
    answer = server.exchange(f"/v2/models/{model}/infer", json.dumps({"inputs": inputs}).encode())
    document = answer.document
    text = document["outputs"][0]["data"][0] if answer.status == 200 else document["error"]
    return answer.status, text, answer.headers.get("Retry-After", "")


def unanswered_requests(server: Server) -> float:
    return sum_series(server, "zmqtriton_unanswered_requests")


class Full:
    """A model that has as many requests as it may, until it is let go."""

    def __init__(self, server: Server, gate: Path) -> None:
        self.gate = gate
        self._threads = ThreadPoolExecutor(LIMIT)
        script = textwrap.dedent(GATE).strip()
        self.admitted: list[Future[tuple[int, str, str]]] = [
            self._threads.submit(_ask, server, "limited", script, str(gate)) for _ in range(LIMIT)
        ]
        try:
            begun = gate.with_name(gate.name + ".begun")
            eventually(begun.exists, 60, "the instance is busy")
            eventually(lambda: unanswered_requests(server) == LIMIT, 60, "it is full")
        except AssertionError:
            self.let_go()
            raise

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._threads.shutdown()

    def let_go(self) -> list[int]:
        self.gate.touch()
        return [future.result()[0] for future in self.admitted]


@pytest.mark.row("L04")
def test_what_is_too_much_is_refused_at_once_and_the_rest_is_answered(
    server: Server, tmp_path: Path
) -> None:
    with Full(server, tmp_path / "gate") as full:
        refused = [_ask(server, "limited", "return [reply('in')]") for _ in range(20)]
        generated = server.exchange(
            "/v2/models/limited/generate", b'{"SCRIPT": "return [reply(1)]"}'
        )

        # on a slow machine it is more than a second
        assert {(503, FULL, True)} == {(code, text, 1 <= int(s) < 10) for code, text, s in refused}
        assert (503, True) == (generated.status, 1 <= int(generated.headers["Retry-After"]) < 10)
        assert (200, "in", "") == _ask(server, "free", "return [reply('in')]")
        assert 200 == server.status("/v2/health/ready")
        assert [200] * LIMIT == full.let_go()
    assert (200, "in", "") == _ask(server, "limited", "return [reply('in')]")


@pytest.mark.row("L04")
def test_over_grpc_clients_are_told_when_to_try_again(server: Server, tmp_path: Path) -> None:
    [tensor] = infer_inputs(grpcclient, SCRIPT=np.array([b"return [reply('in')]"], np.object_))
    with (
        Full(server, tmp_path / "gate") as full,
        grpcclient.InferenceServerClient(server.grpc_address) as client,
    ):
        with pytest.raises(InferenceServerException) as refused:
            client.infer("limited", [tensor])
        trailers = _trailers(server)

        assert ("StatusCode.UNAVAILABLE", FULL) == (refused.value.status(), refused.value.message())
        # a slow machine lets them wait for longer
        assert 1000 <= int(trailers["grpc-retry-pushback-ms"]) < 10_000
        assert [200] * LIMIT == full.let_go()


def _trailers(server: Server) -> dict[str, Any]:
    request = message("inference.ModelInferRequest")(model_name="limited")
    script = request.inputs.add(name="SCRIPT", datatype="BYTES", shape=[1])
    script.contents.bytes_contents.append(b"return [reply('in')]")
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as refused:
            call(request.SerializeToString(), timeout=20)
    return dict(refused.value.trailing_metadata())


def test_the_server_as_a_whole_has_a_bound_too(server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(12) as threads, Full(server, tmp_path / "gate") as full:
        others = [tmp_path / f"other{number}" for number in range(8)]
        script = textwrap.dedent(GATE).strip()
        waiting = [threads.submit(_ask, server, "free", script, str(path)) for path in others]
        try:
            eventually(lambda: unanswered_requests(server) == 12, 60, "the server is full")
            assert _ask(server, "free", "") in [(503, FULL, str(s)) for s in range(1, 10)]
        finally:
            for path in others:
                path.touch()
        assert [200] * LIMIT == full.let_go()
        assert {200} == {future.result()[0] for future in waiting}


def test_a_flood_leaves_the_model_as_busy_as_it_was(server: Server) -> None:
    async def flood() -> tuple[list[overload.Answer], float]:
        with closing(overload.Clients(server, "asleep", 5)) as clients:
            answers = await clients.flood(1000, 0.5)
            return answers, (await clients.request()).status

    answers, status_after = asyncio.run(flood())

    assert {200, 503} == {answer.status for answer in answers}
    assert all(answer.has_retry_after == (answer.status == 503) for answer in answers)
    # Two instances of 5 ms could do 400; a machine that does other things does fewer, but more
    # than the ten that were there first.
    assert 20 < sum(answer.status == 200 for answer in answers)
    assert 200 == status_after
    eventually(lambda: 0 == unanswered_requests(server), 60, "nothing is unanswered")


def test_many_clients_may_come_at_once(server: Server) -> None:
    """More than the queue has room for would be told nothing, and try again after seconds."""
    processes = server.pids()["http"]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    with ExitStack() as connections:
        try:
            for _ in range(300):
                address = ("127.0.0.1", server.http_port)
                connections.enter_context(socket.create_connection(address, timeout=0.9))
        finally:
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    assert (200, "in", "") == _ask(server, "free", "return [reply('in')]")


def test_counts_are_right_after_deaths_and_cancelled_requests(
    server: Server, tmp_path: Path
) -> None:
    with Full(server, tmp_path / "gate") as full:
        server.kill_only("stub", "limited")
        statuses = full.let_go()

    assert {200, 503} >= set(statuses)
    eventually(lambda: unanswered_requests(server) == 0, 60, "nothing is unanswered")
    assert "in" == generate(server, "limited", "return [reply('in')]")
