"""Large answers of OpenAI's API that are read late: what is made for them has room before."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.openai.models import response, text_model
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.waiting import value_at_rest
from zmqtriton_frontends.gateway.streams import StreamItem

MIB = 1 << 20
LIMIT, SIZE, CLIENTS = 32 * MIB, 4 * MIB, 12
LARGE = StreamItem(response(text_output=[b"x" * SIZE]), None, False)
END = StreamItem(None, None, True)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_large_answers_have_room_before_they_are_made(is_streamed: bool) -> None:
    body = json.dumps({"model": "text", "prompt": "x", "stream": is_streamed}).encode()
    ask = raw_request("POST", "/v1/completions", body, Connection="close")

    async def scenario(harness: HttpHarness) -> None:
        harness.gateway.catalogue.hear(text_model())
        streams, budget = harness.gateway.fake_streams, harness.connections.ledger.budget
        with ExitStack() as stack:
            clients = []
            for _ in range(CLIENTS):
                client = stack.enter_context(connect_narrow(harness.connections.address[1]))
                client.sendall(ask)
                clients.append(client)
            while len(streams.started) < CLIENTS:
                await asyncio.sleep(0.01)
            for request_id in streams.started:
                streams.put(request_id, LARGE)

            held = await asyncio.to_thread(value_at_rest, lambda: budget.held)

            assert 3 * SIZE <= held <= LIMIT
            for request_id in streams.started:
                streams.put(request_id, END)
            texts = await asyncio.gather(*(asyncio.to_thread(_read, one) for one in clients))
            assert all(text.startswith(b"HTTP/1.1 200") for text in texts)
            assert all(SIZE <= text.count(b"x") < SIZE + 100 for text in texts)

    run_scenario(scenario, allow_openai=True, ledger_bytes=LIMIT)


def _read(client: object) -> bytes:
    """Return all until the end."""
    received = b""
    while part := client.recv(MIB):  # type: ignore[attr-defined]
        received += part
    return received
