"""Many inferences at once: the loop does a few of them, and then everything else."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.scenarios import scenario
from zmqtriton_frontends.process.turns import Turns

pytestmark = pytest.mark.slow

CLIENTS, MOST = 40, 8
TENSOR = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [0.5]}
BODY = json.dumps({"inputs": [TENSOR]}).encode()
LONG = raw_request("POST", "/v2/models/identity/infer", BODY.ljust(10 << 10))
SHORT = raw_request("POST", "/v2/models/identity/infer", BODY)


@pytest.mark.parametrize(("data", "number"), [(LONG, 1), (SHORT * 3, 3)])
@scenario(run_scenario)
async def test_a_turn_of_the_loop_ends_after_some_inferences(
    harness: HttpHarness, /, data: bytes, number: int
) -> None:
    turn, begun = [0], Counter[int]()

    def clock() -> float:
        return 0.002 * len(harness.gateway.requests)  # each takes so long

    async def count_turns() -> None:
        requests = harness.gateway.requests
        while True:
            before = len(requests)
            await asyncio.sleep(0)
            turn[0] += 1
            begun[turn[0]] = len(requests) - before

    later = asyncio.get_running_loop().call_soon
    harness.connections.connections.turns = Turns(later, clock, clock)
    counting = asyncio.create_task(count_turns())
    with ExitStack() as stack:
        port = harness.connections.address[1]
        clients = [
            stack.enter_context(await asyncio.to_thread(connect_narrow, port))
            for _ in range(CLIENTS)
        ]
        await asyncio.sleep(0.1)
        for client in clients:  # while the loop does nothing else
            client.sendall(data)
        while len(harness.gateway.requests) < CLIENTS * number:
            await asyncio.sleep(0.01)
    counting.cancel()
    # what comes as one small request is read as it comes
    assert len(harness.gateway.requests) == CLIENTS * number
    assert len([count for count in begun.values() if count > MOST]) <= (number > 1)
