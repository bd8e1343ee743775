"""Large answers of OpenAI's API that are read late: what is made for them has room before."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.text_models import response, text_model
from tests.support.raw_http import connect_narrow, raw_request, read_some
from tests.support.scenarios import scenario
from tests.support.waiting import value_at_rest
from zmqtriton_frontends.gateway.streams import StreamItem

pytestmark = pytest.mark.slow

MIB = 1 << 20
LIMIT, SIZE, CLIENTS = 32 * MIB, 4 * MIB, 12
LARGE = StreamItem(response(text_output=[b"x" * SIZE]), None, False)
END = StreamItem(None, None, True)


ECHOED = StreamItem(response(text_output=[b"-"] * 16), None, False)


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("is_echoed", [False, True])
@scenario(run_scenario, allow_openai=True, ledger_bytes=LIMIT)
async def test_large_answers_have_room_before_they_are_made(
    harness: HttpHarness, /, is_streamed: bool, is_echoed: bool
) -> None:
    """Ask for large texts of the model, or for a prompt that is repeated for each text."""
    fields = {"prompt": "x" * (SIZE // 16), "n": 16, "echo": True} if is_echoed else {"prompt": "y"}
    body = json.dumps({"model": "text", "stream": is_streamed, **fields}).encode()
    ask = raw_request("POST", "/v1/completions", body, Connection="close")

    # all are read at once: those that have room are not always those that came first
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(CLIENTS))
    harness.gateway.catalogue.apply(text_model(inputs=(("text_input", "STRING"), ("n", "INT32"))))
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
            streams.put(request_id, ECHOED if is_echoed else LARGE)

        held = await asyncio.to_thread(value_at_rest, lambda: budget.held)

        assert 3 * SIZE <= held <= LIMIT
        for request_id in streams.started:
            streams.put(request_id, END)
        texts = await asyncio.gather(*(asyncio.to_thread(_read, one) for one in clients))
        assert all(text.startswith(b"HTTP/1.1 200") for text in texts)
        assert all(SIZE <= text.count(b"x") < SIZE + 1000 for text in texts)


@scenario(run_scenario, allow_openai=True, ledger_bytes=LIMIT)
async def test_what_is_made_while_a_client_reads_keeps_its_room(harness: HttpHarness, /) -> None:
    body = json.dumps({"model": "text", "prompt": "x", "stream": True}).encode()

    harness.gateway.catalogue.apply(text_model())
    streams, budget = harness.gateway.fake_streams, harness.connections.ledger.budget
    with connect_narrow(harness.connections.address[1]) as client:
        client.sendall(raw_request("POST", "/v1/completions", body, Connection="close"))
        while not streams.started:
            await asyncio.sleep(0.01)
        for item in (LARGE, LARGE, END):
            streams.put(streams.started[0], item)
        before = await asyncio.to_thread(value_at_rest, lambda: budget.held)
        await asyncio.to_thread(read_some, client, SIZE * 3 // 4)

        # the first one is there until all of it was read
        assert before >= 2 * SIZE
        assert await asyncio.to_thread(value_at_rest, lambda: budget.held) >= 2 * SIZE
        await asyncio.to_thread(_read, client)
    while budget.held:
        await asyncio.sleep(0.01)


def _read(client: object) -> bytes:
    """Return all until the end."""
    received = b""
    while part := client.recv(MIB):  # type: ignore[attr-defined]
        received += part
    return received
