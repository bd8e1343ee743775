"""The last requests to a version, which a real broker has been sent when it is told of its end."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.support.chain import TIMEOUT_S, chain
from zmqtriton_floor import wire

pytestmark = pytest.mark.system

CODE = """
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse(parameters={"n": 1}) for request in requests]
"""


def test_requests_that_were_sent_before_a_version_retires_are_answered_by_it(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        async with chain(tmp_path, CODE, is_decoupled=False) as it:
            it.broker.process.send_signal(signal.SIGSTOP)
            stream = it.gateway.stream(it.request())
            first = asyncio.ensure_future(anext(stream))
            for _ in range(5):  # turns of the loop, of which one sends it
                await asyncio.sleep(0)
            it.broker.send_messages(wire.Retire(4))
            it.broker.process.send_signal(signal.SIGCONT)

            item = await asyncio.wait_for(first, TIMEOUT_S)

            assert item.error is None
            await stream.aclose()
            assert 4 == it.broker.receive_message(wire.Drained).generation

    asyncio.run(check())
