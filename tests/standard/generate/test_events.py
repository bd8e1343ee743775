from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.frontends.http_api.fakes import FakeGateway, room_for_all
from tests.support.scenarios import scenario
from tests.support.streams import failure, final, item
from zmqtriton_floor.errors import NotFound, Unavailable
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.process.turns import Cost, TaskTurn, Turns
from zmqtriton_standard.generate.request import read
from zmqtriton_standard.generate.response import Events, Writer


def follow(
    test: Callable[[Events, FakeGateway], Coroutine[Any, Any, None]],
    write: Callable[[Any], Awaitable[bytes]] | None = None,
) -> FakeGateway:
    """Runs the test on the events of a request with the id "a", the first one being `first`."""

    async def run() -> FakeGateway:
        gateway = FakeGateway()
        model = gateway.catalogue.find("decoupled")
        body = read({"id": "a", "INPUT0": 1}, model.signature.inputs)
        request = admission.prepare(gateway.catalogue, model, body, admission.SchedulingOptions())
        items, turn = (
            gateway.stream(request),
            TaskTurn(Turns(asyncio.get_running_loop().call_soon), Cost()),
        )
        events = Events(b"first", items, write or Writer(model, "a", room_for_all).event, turn=turn)
        try:
            await asyncio.wait_for(test(events, gateway), 10)
        finally:
            await events.close()
        return gateway

    return asyncio.run(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def event(fields: str) -> bytes:
    text = f'data: {{{fields},"id":"a","model_name":"decoupled","model_version":"1"}}\n\n'
    return text.encode()


@scenario(follow)
async def test_events_that_are_ready_go_out_together(
    events: Events, gateway: FakeGateway, /
) -> None:
    await anext(events)
    gateway.fake_streams.put("a", item(b"x"), item(b"y"))
    await settle()

    assert await anext(events) == event('"TEXT":"x"') + event('"TEXT":"y"')


@scenario(follow)
async def test_a_slow_stream_is_sent_event_by_event(
    events: Events, gateway: FakeGateway, /
) -> None:
    await anext(events)
    for text in ("x", "y"):
        waiting = asyncio.ensure_future(anext(events))
        await settle()
        assert not waiting.done()

        gateway.fake_streams.put("a", item(text.encode()))

        assert await waiting == event(f'"TEXT":"{text}"')


@scenario(follow)
async def test_an_error_is_an_event_and_ends_nothing_unless_it_is_final(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", failure(NotFound("lost")), item(b"x", is_final=True))

    body = b"".join([chunk async for chunk in events])

    assert body == b'firstdata: {"error":"lost"}\n\n' + event('"TEXT":"x"')


@scenario(follow)
async def test_the_event_of_a_server_that_cannot_answer_now_says_when_to_ask_again(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", failure(Unavailable("stops"), is_final=True))

    body = b"".join([chunk async for chunk in events])

    assert body == b'firstdata: {"error":"stops"}\nretry: 1000\n\n'


@scenario(follow)
async def test_no_more_is_taken_while_the_connection_does_not_take_chunks(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", *(item(b"%d" % n) for n in range(1000)), final())
    await settle()

    assert gateway.fake_streams.consumed["a"] < 300
    body = b"".join([chunk async for chunk in events])
    assert body == b"first" + b"".join(event(f'"TEXT":"{n}"') for n in range(1000))


@scenario(follow)
async def test_a_stream_that_has_used_its_turn_up_lets_others_work_after_each_event(
    events: Events, gateway: FakeGateway, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskTurn, "is_over", True)
    gateway.fake_streams.put("a", *(item(b"x") for _ in range(100)))
    await settle()

    assert 0 < gateway.fake_streams.consumed["a"] <= 10


@scenario(follow)
async def test_large_events_are_taken_in_smaller_numbers(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", *(item(b"x" * 300_000) for _ in range(20)))
    await settle()

    assert gateway.fake_streams.consumed["a"] < 6


@scenario(follow)
async def test_an_event_that_takes_long_keeps_its_place(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", item(b"x" * (2 << 20)), item(b"y", is_final=True))

    body = b"".join([chunk async for chunk in events])

    assert body == b"first" + event(f'"TEXT":"{"x" * (2 << 20)}"') + event('"TEXT":"y"')


@scenario(follow)
async def test_who_leaves_while_an_event_is_written_cancels_the_request(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", item(b"x" * (2 << 20)))
    while not gateway.fake_streams.consumed.get("a"):
        await asyncio.sleep(0)

    await events.close()

    assert gateway.fake_streams.cancelled == ["a"]


@scenario(follow)
async def test_closing_cancels_the_request(events: Events, gateway: FakeGateway, /) -> None:
    gateway.fake_streams.put("a", item(b"x"))
    await settle()

    await events.close()

    assert gateway.fake_streams.cancelled == ["a"]


def test_a_fault_of_ours_is_told_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def write(_: Any) -> bytes:
        raise ZeroDivisionError

    async def test(events: Events, gateway: FakeGateway) -> None:
        gateway.fake_streams.put("a", item(b"x"))

        chunks = [chunk async for chunk in events]

        assert b"".join(chunks) == b'firstdata: {"error":"internal error"}\n\n'

    follow(test, write)
    assert "ZeroDivisionError" in caplog.text
