"""Large answers in a conversation at /v1/realtime: they have room, and give it back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.text_models import response, text_model
from tests.support.raw_http import connect_narrow, raw_request
from tests.support.scenarios import scenario
from zmqtriton_extras.web_sockets.frames import CLOSE, TEXT
from zmqtriton_extras.web_sockets.tests.conversations import client_frame
from zmqtriton_frontends.gateway.streams import StreamItem

pytestmark = pytest.mark.slow

MIB = 1 << 20
SIZE = 2 * MIB
LARGE = StreamItem(response(text_output=[b"x" * SIZE]), None, False)
END = StreamItem(None, None, True)
HANDSHAKE = raw_request(
    "GET",
    "/v1/realtime?model=text",
    Upgrade="websocket",
    Connection="Upgrade",
    Sec_WebSocket_Version="13",
    Sec_WebSocket_Key="dGhlIHNhbXBsZSBub25jZQ==",
)


def sent(**event: Any) -> bytes:
    return client_frame(TEXT, json.dumps(event).encode())


@scenario(run_scenario, allow_openai=True, ledger_bytes=64 * MIB)
async def test_a_long_answer_has_room_and_gives_it_back(harness: HttpHarness, /) -> None:
    item = {"role": "user", "content": [{"type": "input_text", "text": "y" * SIZE}]}
    events = sent(type="conversation.item.create", item=item) + sent(type="response.create")

    harness.gateway.catalogue.apply(text_model())
    streams, answers = harness.gateway.fake_streams, harness.connections.ledger.answers
    with connect_narrow(harness.connections.address[1]) as client:
        await asyncio.to_thread(client.sendall, HANDSHAKE + events)
        received = bytearray()
        reading = asyncio.ensure_future(asyncio.to_thread(_read, client, received))
        while not streams.started:
            await asyncio.sleep(0.01)
        for part in (LARGE, LARGE, END):
            streams.put(streams.started[0], part)
        # the end repeats all of the text, five times: each has room when it is made
        while b'"response.done"' not in received:
            await asyncio.sleep(0.01)

        # the room of answers is free again while the conversation goes on
        while answers.held:
            await asyncio.sleep(0.01)
        client.sendall(client_frame(CLOSE, (1000).to_bytes(2, "big")))
        await reading
    while harness.connections.connections.room:
        await asyncio.sleep(0.01)


def _read(client: Any, received: bytearray) -> None:
    """Read all until the end."""
    while part := client.recv(MIB):
        received += part
