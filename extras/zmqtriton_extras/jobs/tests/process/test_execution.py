"""The answer of a route, as a job takes it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zmqtriton_extras.jobs.process import execution
from zmqtriton_extras.jobs.process.execution import Answer, AnswerTooLarge, Reply, judge
from zmqtriton_extras.jobs.process.store import Job

START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream"), (b"content-length", b"7")],
}


async def _fits(size: int) -> str:
    return ""


def _part(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _send(reply: Reply, *events: dict[str, Any]) -> None:
    for event in events:
        await reply.send(event)


def test_its_parts_can_be_read_before_its_end() -> None:
    reply = Reply(_fits)
    asyncio.run(_send(reply, START, _part(b"one "), _part(b"two ")))

    assert reply.read(2, 4) == b"e tw"
    asyncio.run(_send(reply, _part(b"three")))
    assert reply.read(4, 100) == b"two three"
    headers = [("content-type", "text/event-stream")]
    assert Answer(200, headers, b"one two three") == reply.answer()


def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_MAX_BYTES", 8)
    reply = Reply(_fits)
    asyncio.run(_send(reply, START, _part(b"12345678")))

    with pytest.raises(AnswerTooLarge, match="at most 8 bytes"):
        asyncio.run(_send(reply, _part(b"9")))


def test_an_answer_ends_as_soon_as_it_is_known_to_have_no_room() -> None:
    sizes: list[int] = []

    async def fault_of(size: int) -> str:
        sizes.append(size)
        return "no room" if size > 5 << 20 else ""

    reply, part = Reply(fault_of), _part(bytes(1 << 19))
    asyncio.run(_send(reply, START, *[part] * 10))

    with pytest.raises(AnswerTooLarge, match="no room") as raised:
        asyncio.run(_send(reply, *[part] * 10))

    assert raised.value.status == 507
    assert sizes == [1 << 20, 2 << 20, 4 << 20, 8 << 20]


def test_a_long_error_is_not_read_but_cut() -> None:
    short = Answer(500, [], b'{"error": "short"}')
    long = Answer(500, [], b'{"error": "%s"}' % (b"x" * 70_000))

    fields: dict[str, Any] = dict.fromkeys(Job._fields, 0)
    job = Job(**fields)

    assert judge(job, short, False).reason == "short"
    reason = judge(job, long, False).reason or ""
    assert (len(reason), reason.startswith('{"error": "xxx')) == (500, True)
