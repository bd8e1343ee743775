"""A plan whose requests cannot be sent, or get odd answers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.ctl.inferring.answering import answering
from zmqtriton_addons.tools.benching import worker
from zmqtriton_addons.tools.benching.worker import PlanRun


async def _run(asked: dict[str, Any]) -> dict[str, Any]:
    return await PlanRun(asked, asyncio.Event()).run()


def plan(address: str, **more: Any) -> dict[str, Any]:
    of_one = {"concurrency": 1, "rate": 0.0, "seconds": 0.2, "timeout_s": 30.0, "request": ""}
    return {"kind": "http", "address": address, "has_tls": False, **of_one, **more}


def test_what_ends_a_client_is_a_failure() -> None:
    report = asyncio.run(_run(plan("127.0.0.1:99999", concurrency=2)))

    ((text, count),) = report["failures"].items()
    assert 2 == count
    assert "port must be 0-65535" in text


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "has no Content-Length"),
        (b"Content-Length: 9\r\n\r\n{}", "the server has closed the connection"),
    ],
)
def test_an_answer_that_cannot_be_followed_is_a_failure(head: bytes, reason: str) -> None:
    request = base64.b64encode(b"POST / HTTP/1.1\r\n\r\n").decode()
    with answering(b"HTTP/1.1 200 OK\r\n" + head) as url:
        address = url.partition("://")[2]
        report = asyncio.run(_run(plan(address, request=request)))

    assert [] == report["latencies"]
    assert any(reason in text for text in report["failures"])


class AnsweredAtOnce:
    """A connection whose answers always wait when the loop comes to its client."""

    def __init__(self, count_to: int, has_stopped: asyncio.Event) -> None:
        self._count_to = count_to
        self._has_stopped = has_stopped
        self.count = 0

    async def ask(self) -> list[float]:
        self.count += 1
        if self.count == self._count_to:
            self._has_stopped.set()
        for _ in range(self.count % 4):
            await asyncio.sleep(0)
        return []


@pytest.mark.parametrize("count_to", range(1, 9))
def test_a_client_that_is_answered_as_it_is_stopped_has_ended(
    count_to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_stopped = asyncio.Event()
    connection = AnsweredAtOnce(count_to, has_stopped)

    @contextlib.asynccontextmanager
    async def make_connections(_: dict[str, Any]) -> AsyncIterator[list[Any]]:
        yield [connection]

    monkeypatch.setattr(worker, "make_connections", make_connections)
    asyncio.run(PlanRun(plan("", seconds=20.0), has_stopped).run())

    assert connection.count <= count_to + 4
