"""Large responses are read in a thread where that takes long: others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.frontends.http_api.text_models import response, text_model
from tests.support.raw_http import connect_narrow, raw_request
from zmqtriton_extras.openai.call_text import CallText
from zmqtriton_frontends.gateway.streams import StreamItem

SIZE = 128 << 10
END = StreamItem(None, None, True)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_calls_are_looked_for_in_a_thread(
    is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def spy(self: CallText, text: str) -> Any:
        threads.append(threading.current_thread())
        return [text]

    monkeypatch.setattr(CallText, "feed", spy)
    tool = {"type": "function", "function": {"name": "f"}}
    body: dict[str, Any] = {"model": "text", "stream": is_streamed, "tools": [tool]}
    body["messages"] = [{"role": "user", "content": "a"}]
    request = raw_request("POST", "/v1/chat/completions", json.dumps(body).encode())

    async def scenario(harness: HttpHarness) -> None:
        harness.gateway.catalogue.update(
            text_model(
                inputs=(("text_input", "STRING"), ("tools", "STRING")),
                parameters={"openai_tool_call_parser": "hermes"},
            )
        )
        streams = harness.gateway.fake_streams
        with connect_narrow(harness.connections.address[1]) as client:
            client.sendall(request)
            while not streams.started:
                await asyncio.sleep(0.01)
            for text in (b"x" * 100, b"x" * SIZE):
                streams.put(
                    streams.started[0], StreamItem(response(text_output=[text]), None, False)
                )
            streams.put(streams.started[0], END)
            while len(threads) < 2:
                await asyncio.sleep(0.01)

    run_scenario(scenario, allow_openai=True)

    assert [one is threading.main_thread() for one in threads[:2]] == [True, False]
