"""The process of tokens, as frontends meet it at its socket."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from zmqtriton_extras.openai.token_metrics.process import TokenMetrics
from zmqtriton_extras.openai.token_metrics.step import HELLO, Exchange

USED_UP = json.dumps(["chat", "1", 100, 20, None, None, "desk", 60]).encode() + b"\n"


def play(path: Path, scene: Any) -> None:
    async def all_of_it() -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.setblocking(False)
        service = TokenMetrics(listener)
        await service.open()
        try:
            await asyncio.wait_for(scene(service), 60)
        finally:
            await service.close()

    asyncio.run(all_of_it())


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def test_all_frontends_are_told_of_a_token_that_is_used_up(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def scene(service: TokenMetrics) -> None:
        one, other = [await asyncio.open_unix_connection(path) for _ in range(2)]
        other[1].write(HELLO)
        one[1].write(HELLO + USED_UP)
        news = [json.loads(await reader.readline()) for reader, _ in (one, other)]
        late = await asyncio.open_unix_connection(path)
        late[1].write(HELLO)
        news.append(json.loads(await late[0].readline()))

        assert {("desk", 60)} == {(name, limit) for name, limit, _ in news}
        assert not service.end_idle()
        for _, writer in (one, other, late):
            await close(writer)
        while not service.end_idle():
            await asyncio.sleep(0.01)

    play(path, scene)


def test_a_debt_that_a_frontend_knows_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def scene(service: TokenMetrics) -> None:
        one, other = [await asyncio.open_unix_connection(path) for _ in range(2)]
        other[1].write(HELLO)
        one[1].write(HELLO + b'["night", 60, 12.5]\n["desk", 60, -20.0]\n')

        for reader, _ in (one, other):
            rows: list[Any] = [["night", 60, 12.5]]
            while rows[-1][0] == "night":
                rows.append(json.loads(await reader.readline()))
            assert rows[-1][:2] == ["desk", 60]
            assert -20 <= rows[-1][2] < 0
        for _, writer in (one, other):
            await close(writer)
        while not service.end_idle():
            await asyncio.sleep(0.01)

    play(path, scene)


def test_malformed_counts_end_their_connection_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def scene(service: TokenMetrics) -> None:
        for line in (b"{}x\n", b"[1]\n", b"3\n"):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(line)
            assert await reader.read() == b""
            await close(writer)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"sums\n")
        assert await reader.read() == b"{}"
        await close(writer)

    play(path, scene)


@pytest.mark.slow
def test_a_frontend_hears_its_lines_and_connects_again_after_a_replacement(tmp_path: Path) -> None:
    path = tmp_path / "s"
    heard: list[bytes] = []

    async def until(condition: Any) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    async def hear(_: TokenMetrics) -> None:
        assert exchange.has_room(0)
        exchange.send(USED_UP)
        await until(lambda: heard)
        heard.clear()

    exchange = Exchange(str(path), heard.append)
    play(path, hear)
    path.unlink(missing_ok=True)  # newer Pythons have removed it

    async def again(_: TokenMetrics) -> None:
        await until(lambda: exchange.has_room(0))
        await hear(_)
        exchange.close()

    play(path, again)
