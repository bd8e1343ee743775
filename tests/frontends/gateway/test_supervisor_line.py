"""A frontend's end of its lifeline."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_frontends.gateway.supervisor_line import SupervisorLine


def test_messages_are_passed_on_and_the_end_after_them() -> None:
    heard: list[Any] = []
    threads = set(threading.enumerate())

    async def call(verb: str, arguments: dict[str, Any]) -> Any:
        return None

    async def test() -> None:
        ours, theirs = pair()
        supervisor, ended = Lifeline(ours), asyncio.Event()
        line = SupervisorLine(
            Lifeline(theirs), lambda message, descriptors: heard.append(message), ended.set
        )
        supervisor.send(wire.Sync(1))
        line.begin(asyncio.get_running_loop())
        assert [wire.Sync(1)] == heard, "what had come before"
        assert not ended.is_set()

        line.watch_loop(call)
        supervisor.send(wire.Sync(2))
        supervisor.close()
        await asyncio.wait_for(ended.wait(), 30)
        line.close()

    asyncio.run(test())

    assert [wire.Sync(1), wire.Sync(2)] == heard
    eventually(lambda: threads >= set(threading.enumerate()), 30, "nobody watches its loop")
