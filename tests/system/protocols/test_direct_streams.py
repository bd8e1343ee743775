"""Streams through a real broker and a real stub to a gateway in the test: which way they come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.chain import ProcessChain, chain
from tests.support.scenarios import scenario
from zmqtriton_frontends.gateway.streams import StreamItem

pytestmark = [pytest.mark.system, pytest.mark.large_tensors, pytest.mark.as_nobody]

#: Sends `count` responses, each by a thread of its request's own; logs when it is cancelled.
COUNTING = """
    import json, threading, time
    class TritonPythonModel:
        def execute(self, requests):
            for request in requests:
                asked = json.loads(request.parameters())
                sender = request.get_response_sender()
                threading.Thread(target=self.answer, args=(sender, asked), daemon=True).start()
        def answer(self, sender, asked):
            for number in range(asked["count"]):
                if sender.is_cancelled():
                    pb_utils.Logger.log_info("cancelled")
                    break
                sender.send(pb_utils.InferenceResponse(parameters={"n": number}))
                time.sleep(asked.get("pause_ms", 0) / 1000)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


async def read(it: ProcessChain, count: int) -> list[StreamItem]:
    return [item async for item in it.gateway.stream(it.request(count=count))]


def numbers(items: list[StreamItem]) -> list[int]:
    return [item.body.parameters["n"] for item in items if item.body is not None]


@pytest.mark.long(
    "stub/execution/test_streams.py::test_a_frontend_that_subscribes_gets_its_responses_past_the_broker",
    "system/protocols/test_streams.py::test_many_streams_of_events_are_complete_and_in_order",
)
@scenario(asyncio.run)
async def test_all_but_the_first_stream_and_the_ends_come_past_the_broker(tmp_path: Path) -> None:
    async with chain(tmp_path, COUNTING) as it:
        first = await read(it, 500)
        streams = it.gateway.streams
        assert 500 == streams.direct + streams.brokered
        while not streams.direct:  # until the stub has heard of the gateway
            await read(it, 1)
        before = streams.brokered

        many = await asyncio.gather(*[read(it, 1000) for _ in range(8)])

        assert [*range(500)] == numbers(first)
        assert [[*range(1000)]] * 8 == [numbers(items) for items in many]
        assert [StreamItem(None, None, True)] * 8 == [items[-1] for items in many]
        assert before == streams.brokered
        assert (0, 0) == (streams.publishers.malformed, it.gateway.malformed)
        assert 0 == it.gateway.in_flight
