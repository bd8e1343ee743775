"""Clients that leave amid large answers: what was made for them goes with them."""

from __future__ import annotations

import asyncio
import gc
import json
import tracemalloc
from contextlib import ExitStack

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.text_models import response, text_model
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.waiting import value_at_rest
from zmqtriton_frontends.gateway.streams import StreamItem

pytestmark = pytest.mark.slow

MIB = 1 << 20
SIZE, CLIENTS = 2 * MIB, 8
LARGE = StreamItem(response(text_output=[b"x" * SIZE]), None, False)
CHAT = {"model": "text", "messages": [{"role": "user", "content": "x"}]}
COMPLETION = {"model": "text", "prompt": "x", "stream": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", COMPLETION),
        ("/v1/chat/completions", CHAT),
        ("/v2/models/text/generate_stream", {"text_input": "x"}),
        ("/v2/models/text/generate", {"text_input": "x"}),
    ],
)
@pytest.mark.extra("openai")
def test_nothing_of_an_answer_waits_for_the_garbage_collection(
    path: str, body: dict[str, object]
) -> None:
    ask = raw_request("POST", path, json.dumps(body).encode())

    async def scenario(harness: HttpHarness) -> None:
        harness.gateway.catalogue.apply(text_model())
        streams, budget = harness.gateway.fake_streams, harness.connections.ledger.budget
        with ExitStack() as stack:
            for _ in range(CLIENTS):
                client = stack.enter_context(connect_narrow(harness.connections.address[1]))
                client.sendall(ask)
            while len(streams.started) < CLIENTS:
                await asyncio.sleep(0.01)
            for request_id in streams.started:
                for _ in range(1 if path.endswith("generate") else 2):
                    streams.put(request_id, LARGE)
            while tracemalloc.get_traced_memory()[0] <= CLIENTS * SIZE:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(
                value_at_rest, lambda: tracemalloc.get_traced_memory()[0] // MIB
            )
        while len(streams.cancelled) < CLIENTS or budget.held:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

        # modules that were imported meanwhile are some of it
        assert tracemalloc.get_traced_memory()[0] < 3 * SIZE

    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        run_scenario(scenario, allow_openai=path.startswith("/v1/"))
    finally:
        tracemalloc.stop()
        gc.enable()
