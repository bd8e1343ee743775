"""The figures of local services, which are asked at once for the page."""

from __future__ import annotations

import asyncio

from zmqtriton_floor.errors import Unavailable
from zmqtriton_standard.metrics import services


def test_all_are_asked_before_one_has_answered() -> None:
    calls: list[str] = []

    async def one() -> str:
        calls.append("one")
        while len(calls) < 2:
            await asyncio.sleep(0)
        return "1\n"

    assert "1\n1\n" == asyncio.run(services.render([one, one]))


def test_who_does_not_answer_is_left_out() -> None:
    async def fail(error: Exception) -> str:
        raise error

    async def here() -> str:
        return "1\n"

    assert "1\n" == asyncio.run(
        services.render(
            [lambda: fail(ConnectionRefusedError()), lambda: fail(Unavailable("away")), here]
        )
    )
