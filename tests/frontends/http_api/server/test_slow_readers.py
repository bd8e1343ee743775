"""A reader of events that is slow and steady: what it reads lets its model go on."""

from __future__ import annotations

import asyncio

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.raw_http import connect_narrow, raw_request, read_some
from tests.support.streams import item
from tests.support.waiting import value_at_rest

ASK = raw_request("POST", "/v2/models/decoupled/generate_stream", b'{"INPUT0": 1, "id": "slow"}')
SIZE = 4096
#: Far less than what the kernel would keep, and is rid of before it takes more.
STEP_BYTES = 256 << 10


def test_a_little_that_is_read_of_a_flood_lets_the_model_go_on() -> None:
    async def scenario(harness: HttpHarness) -> None:
        streams = harness.gateway.fake_streams
        streams.put("slow", *(item(b"x" * SIZE) for _ in range(4000)))

        def consumed() -> int:
            return streams.consumed.get("slow", 0)

        with connect_narrow(harness.connections.address[1]) as client:
            client.sendall(ASK)
            for _ in range(3):
                before = await asyncio.to_thread(value_at_rest, consumed)
                await asyncio.to_thread(read_some, client, STEP_BYTES)
                after = await asyncio.to_thread(value_at_rest, consumed)

                assert before < after < before + 2 * STEP_BYTES // SIZE

    run_scenario(scenario)
