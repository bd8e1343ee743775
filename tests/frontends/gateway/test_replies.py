from __future__ import annotations

import asyncio

import pytest

from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.gateway.replies import AwaitedReply


def test_a_task_gets_the_response_or_the_error() -> None:
    async def test() -> None:
        discarded: list[bytes] = []
        loop = asyncio.get_running_loop()
        answered, refused = (AwaitedReply(loop, discarded.append) for _ in range(2))

        answered.set_result(b"response")
        refused.set_exception(Unavailable("gone"))

        assert b"response" == await answered.future
        with pytest.raises(Unavailable):
            await refused.future
        assert [] == discarded

    asyncio.run(test())


def test_a_response_that_comes_as_its_task_is_cancelled_is_discarded() -> None:
    async def test() -> None:
        discarded: list[bytes] = []
        loop = asyncio.get_running_loop()
        answered, refused = (AwaitedReply(loop, discarded.append) for _ in range(2))
        answered.future.cancel()
        refused.future.cancel()

        answered.set_result(b"response")
        refused.set_exception(Unavailable("gone"))

        assert [b"response"] == discarded

    asyncio.run(test())
