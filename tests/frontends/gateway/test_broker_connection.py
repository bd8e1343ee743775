"""A frontend's connection to the broker, on a loop; the test stands for the broker."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.routers import FakeRouter
from zmqtriton_frontends.gateway import broker_connection
from zmqtriton_frontends.gateway.broker_connection import BrokerConnection

PATIENCE_S = 60


def run(
    directory: Path,
    test: Callable[[FakeRouter, BrokerConnection, list[Any]], Coroutine[Any, Any, None]],
) -> None:
    """With a line, and a list of what has come, in which None is the end."""

    async def with_line() -> None:
        router = FakeRouter(f"ipc://{directory}/r")
        seen: list[Any] = []
        loop = asyncio.get_running_loop()
        line = BrokerConnection(
            loop, f"ipc://{directory}/r", seen.append, lambda: seen.append(None)
        )
        try:
            await test(router, line, seen)
        finally:
            line.close()
            router.close()

    asyncio.run(with_line())


async def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0)


def test_what_the_kernel_does_not_take_leaves_when_there_is_room(tmp_path: Path) -> None:
    async def test(router: FakeRouter, line: BrokerConnection, seen: list[Any]) -> None:
        sent = [[b"%d" % number, bytes(50_000)] for number in range(200)]
        for message in sent:
            line.put(message)
        line.flush()

        heard: list[list[bytes]] = []
        while len(heard) < len(sent):
            await until(lambda: router.poll(0))
            heard.append(router.receive()[1:])

        assert sent == heard
        line.put([b"last"])
        line.flush()
        await until(lambda: router.poll(0))
        assert [b"last"] == router.receive()[1:]

    run(tmp_path, test)


def test_a_broker_that_has_died_is_not_listened_to_any_more(tmp_path: Path) -> None:
    async def test(router: FakeRouter, line: BrokerConnection, seen: list[Any]) -> None:
        line.put([b"hello"])
        line.flush()
        await until(lambda: router.poll(0))
        identity, _ = router.receive()
        router.send([identity, b"last words"])
        router.close()

        await until(lambda: None in seen)
        for _ in range(100):
            await asyncio.sleep(0)

        assert [[b"last words"], None] == seen

    run(tmp_path, test)


def test_others_have_turns_between_messages_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(router: FakeRouter, line: BrokerConnection, seen: list[Any]) -> None:
        line.put([b"hello"])
        line.flush()
        await until(lambda: router.poll(0))
        identity, _ = router.receive()
        seconds = itertools.count()
        monkeypatch.setattr(broker_connection, "monotonic", lambda: next(seconds))
        turns: list[int] = []

        def count_turns(number: int) -> None:
            turns.append(len(seen))
            if len(seen) < 20:
                asyncio.get_running_loop().call_soon(count_turns, number + 1)

        for number in range(20):
            router.send([identity, b"%d" % number])
        await until(lambda: seen)
        count_turns(0)
        await until(lambda: len(seen) == 20)

        assert [[b"%d" % number] for number in range(20)] == seen
        assert len({*turns}) > 10

    run(tmp_path, test)


def test_what_is_left_of_a_message_comes_before_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        router = FakeRouter(f"ipc://{tmp_path}/r")
        seen: list[bytes] = []

        def in_steps(frames: list[bytes]) -> Any:
            for frame in frames:
                seen.append(frame)
                yield

        loop = asyncio.get_running_loop()
        line = BrokerConnection(loop, f"ipc://{tmp_path}/r", in_steps, lambda: None)
        line.put([b"hello"])
        line.flush()
        await until(lambda: router.poll(0))
        identity, _ = router.receive()
        seconds = itertools.count()
        monkeypatch.setattr(broker_connection, "monotonic", lambda: next(seconds))

        router.send([identity, b"1", b"2", b"3"])
        router.send([identity, b"4", b"5"])
        await until(lambda: seen)
        assert len(seen) < 5
        line.read()  # all that is here

        await until(lambda: len(seen) == 5)
        assert [b"1", b"2", b"3", b"4", b"5"] == seen
        line.close()
        router.close()
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(test())
