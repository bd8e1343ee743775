"""The socket for what stubs publish, with the test as a stub."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.waiting import eventually
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.process import zmq_sockets
from zmqtriton_frontends.gateway import publishers
from zmqtriton_frontends.gateway.publishers import Publishers

OWN, STUB = 5, 7
RESULTS = endpoints.topic(OWN) + wire.encode(wire.Results([], []))


def test_others_have_turns_between_messages_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishers, "ROUND_S", -1.0)  # over with the first
    turns: list[int] = []

    async def check(context: Any) -> None:
        stub = zmq_sockets.open_publisher(context, endpoints.stream_address(str(tmp_path), STUB))
        taken: list[Any] = []
        reader = Publishers(lambda message, bodies: taken.append(message))
        reader.begin(asyncio.get_running_loop(), OWN, str(tmp_path))
        reader.follow(STUB)
        eventually(lambda: zmq_sockets.has_input(stub), 60, "the subscription")
        zmq_sockets.receive(stub)
        for _ in range(20):
            zmq_sockets.send(stub, [RESULTS])
        time.sleep(0.2)  # by then all are there, in most cases

        while len(taken) < 20:
            await asyncio.sleep(0)
            turns.append(len(taken))
        reader.close()
        stub.close(0)

    with zmq.Context() as context:
        asyncio.run(asyncio.wait_for(check(context), 20))
        zmq.Context.instance().term()

    assert len({*turns}) > 10
