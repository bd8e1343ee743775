"""Connections of a real loop and real sockets, but with a clock that the test turns."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from tests.frontends.http_api.connection_harness import ConnectionHarness
from tests.support.certificates import Authority
from tests.support.scenarios import scenario
from zmqtriton_floor.settings.frontends import Tls
from zmqtriton_frontends.http_api.asgi.request import CONNECTION
from zmqtriton_frontends.http_api.server.asgi_exchange import Upgraded
from zmqtriton_frontends.http_api.server.channel import Channel
from zmqtriton_frontends.http_api.server.connection import (
    HEADERS_WITHIN_S,
    SILENT_S,
)
from zmqtriton_frontends.http_api.server.service import PlainRequest
from zmqtriton_frontends.process.client_progress import MIN_BYTES, STALL_S
from zmqtriton_frontends.process.handshakes import Handshakes
from zmqtriton_frontends.process.turns import Cost

pytestmark = pytest.mark.slow

Scenario = Callable[["ConnectionHarness"], Awaitable[None]]
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


run = asyncio.run


@pytest.fixture(params=[asyncio.run, uvloop.run])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plays the scenario on a loop of each kind."""
    monkeypatch.setattr(sys.modules[__name__], "run", request.param)


def play(scenario: Scenario) -> None:
    async def all_of_it() -> None:
        async with ConnectionHarness().serve() as party:
            await asyncio.wait_for(scenario(party), 20)

    run(all_of_it())


@scenario(play)
async def test_a_probe_is_answered_at_once_where_others_wait_for_their_turns(
    party: ConnectionHarness, /
) -> None:
    turns = party.connections.turns
    turns.is_crowded = True  # and no round comes

    for path in (b"/", b"/v2/health/live"):
        await party.connect((POST % 4).replace(b"/", path, 1) + path[:1] + path[-3:])
    assert [b"/ive"] == party.bodies

    turns.is_crowded = False
    turns.wait(Cost(), lambda _until: None)


@scenario(play)
async def test_headers_that_trickle_end_the_connection(party: ConnectionHarness, /) -> None:
    reader, writer = await party.connect(b"GET / HT")
    party.advance(HEADERS_WITHIN_S - 1)
    writer.write(b"TP/1.1\r\nHo")
    await party.run_loop()
    party.advance(2)

    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


@scenario(play)
async def test_a_connection_on_which_nothing_came_yet_may_wait(party: ConnectionHarness, /) -> None:
    reader, writer = await party.connect()
    party.advance(HEADERS_WITHIN_S + 1)
    writer.write(POST % 2 + b"ab")

    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


@scenario(play)
async def test_a_connection_on_which_nothing_ever_comes_is_closed(
    party: ConnectionHarness, /
) -> None:
    reader, _ = await party.connect()
    party.advance(SILENT_S - 1)
    assert not reader.at_eof()
    party.advance(2)

    assert b"" == await reader.read()


@scenario(play)
async def test_where_there_are_too_many_the_oldest_idle_one_has_to_go(
    party: ConnectionHarness, /
) -> None:
    party.connections.room.limit = 2
    _, busy = await party.connect(POST % 100_000 + b"x")
    party.advance(1)
    reader, _ = await party.connect()
    party.advance(1)

    other_reader, _ = await party.connect(POST % 2 + b"ab")

    assert (await other_reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert b"" == await reader.read()
    assert not busy.is_closing()


class Held:
    """An application that answers when the test says so."""

    def __init__(self, party: ConnectionHarness) -> None:
        self.may_answer = asyncio.Event()
        self.is_cancelled = False
        self._answer = party.application
        party.application = self.serve  # type: ignore[method-assign]

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        await self._answer(scope, receive, send)


class Upgrading:
    """An application that lets a request have the connection for another protocol."""

    def __init__(self, party: ConnectionHarness) -> None:
        self.may_upgrade = asyncio.Event()
        self.may_upgrade.set()
        self.upgraded: Any = None
        self.read: list[bytes] = []
        self._answer = party.application
        party.application = self.serve  # type: ignore[method-assign]

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await self._answer(scope, receive, send)
            return
        await self.may_upgrade.wait()
        self.upgraded = scope[CONNECTION].upgrade([(b"upgrade", b"other")])
        try:
            while data := await self.upgraded.read():
                self.read.append(data)
        finally:
            self.upgraded.close()


@pytest.mark.parametrize("has_asked", [False, True])
@scenario(play)
async def test_who_has_only_shaken_hands_makes_room_before_who_is_served(
    party: ConnectionHarness, /, has_asked: bool
) -> None:
    application = Upgrading(party)
    party.connections.room.limit = 2
    served_reader, _ = await party.connect(POST % 2 + b"ab")
    party.advance(1)
    reader, _ = await party.connect(GET)
    assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
    party.advance(1)
    if has_asked:
        application.upgraded.rest(False)
        application.upgraded.rest(True)

    await party.connect(POST % 2 + b"ab")

    assert (await served_reader.readline()).startswith(b"HTTP/1.1 200 ")
    await asyncio.wait_for((served_reader if has_asked else reader).read(), 20)
    assert 2 == len(party.connections.room)


@pytest.mark.usefixtures("each_loop")
@scenario(play)
async def test_who_sends_no_more_has_left_another_protocol_too(party: ConnectionHarness, /) -> None:
    application = Upgrading(party)
    application.may_upgrade.clear()
    reader, writer = await party.connect(GET)
    writer.write_eof()
    await party.run_loop()

    application.may_upgrade.set()

    assert b"HTTP/1.1 101 " in await reader.read()
    assert [] == application.read


def test_an_answer_that_is_ready_when_its_client_goes_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(party: ConnectionHarness) -> None:
        answer, has_answered = party.application, asyncio.Event()

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            [connection] = party.connections.room
            connection.channel.abort()
            connection.connection_lost(None)
            await answer(scope, receive, send)
            has_answered.set()

        party.application = serve  # type: ignore[method-assign]
        await party.connect(POST % 2 + b"ab")
        await has_answered.wait()
        await asyncio.sleep(0)

    play(scenario)
    assert "left without an answer" not in caplog.text


@pytest.mark.usefixtures("each_loop")
def test_a_client_that_closes_its_half_and_is_gone_leaves_no_error_behind() -> None:
    errors: list[dict[str, Any]] = []

    async def scenario(party: ConnectionHarness) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        Held(party)
        await party.connect(POST % 2 + b"ab")
        [connection] = party.connections.room
        connection.channel.half_close()
        connection.channel.abort()
        await asyncio.sleep(0.1)  # longer than it takes to look

    play(scenario)
    assert not errors


@pytest.mark.usefixtures("each_loop")
@pytest.mark.parametrize("requests", [1, 2])
@scenario(play)
async def test_a_client_that_has_closed_its_half_is_answered(
    party: ConnectionHarness, /, requests: int
) -> None:
    held = Held(party)
    reader, writer = await party.connect(requests * (POST % 2 + b"ab"))
    writer.write_eof()
    await asyncio.sleep(0.2)  # longer than a reset takes
    party.advance(1)

    held.may_answer.set()

    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
    assert requests == answer.count(b"HTTP/1.1 200 ")
    assert [b"ab"] * requests == party.bodies


@pytest.mark.usefixtures("each_loop")
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@scenario(play)
async def test_a_client_that_has_left_has_its_request_ended(
    party: ConnectionHarness, /, version: bytes
) -> None:
    held = Held(party)
    _, writer = await party.connect((POST % 2 + b"ab").replace(b"1.1", version))

    writer.close()

    while not held.is_cancelled or party.connections.room:
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("each_loop")
@scenario(play)
async def test_while_none_is_idle_others_wait_until_one_has_gone(
    party: ConnectionHarness, /
) -> None:
    party.connections.room.limit = 2
    # one more than there may be is taken before nothing is accepted any more
    busy = [await party.connect(POST % 100_000 + b"x") for _ in range(3)]
    reader, _ = await party.connect(POST % 2 + b"ab")
    answer = asyncio.ensure_future(reader.readline())
    await party.run_loop()
    assert not answer.done()

    for _, writer in busy[:2]:
        writer.close()

    assert (await answer).startswith(b"HTTP/1.1 200 ")


@scenario(play)
async def test_while_all_are_busy_others_wait_until_one_has_become_idle(
    party: ConnectionHarness, /
) -> None:
    party.connections.room.limit = 1
    busy = [await party.connect(POST % 3 + b"x") for _ in range(2)]
    reader, _ = await party.connect(POST % 2 + b"ab")
    for _, writer in busy:
        writer.write(b"yz")
    await party.run_loop()

    for _ in busy:
        party.advance(1)
        await party.run_loop()

    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("trickle", [0, MIN_BYTES - 2])
@scenario(play)
async def test_a_body_that_stalls_ends_the_request_and_is_never_executed(
    party: ConnectionHarness, /, trickle: int
) -> None:
    reader, writer = await party.connect(POST % 100_000 + b"x")
    party.advance(1)
    writer.write(bytes(trickle))
    await party.run_loop()
    party.advance(STALL_S + 1)

    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    assert party.bodies == []


@scenario(play)
async def test_who_stalls_and_stays_is_told_once_and_then_cut_off(
    party: ConnectionHarness, /
) -> None:
    reader, _ = await party.connect(POST % 100_000 + b"x")
    party.advance(1)
    for _ in range(5):
        party.advance(STALL_S + 1)
        await party.run_loop()

    assert 1 == (await reader.read()).count(b"HTTP/1.1 408 ")
    assert not party.connections.room


@scenario(play)
async def test_a_connection_that_cannot_be_checked_is_closed_and_no_other(
    party: ConnectionHarness, /, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, _ = await party.connect()
    other_reader, other = await party.connect()
    monkeypatch.setattr(next(iter(party.connections.room)), "check", lambda now: 1 / 0)

    party.advance(1)

    assert b"" == await reader.read()
    other.write(POST % 2 + b"ab")
    assert (await other_reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert "could not be checked" in caplog.text


@scenario(play)
async def test_a_slow_body_that_moves_is_waited_for(party: ConnectionHarness, /) -> None:
    reader, writer = await party.connect(POST % (3 * MIN_BYTES))
    for _ in range(3):
        party.advance(STALL_S - 1)
        writer.write(bytes(MIN_BYTES))
        await party.run_loop()

    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert party.bodies == [bytes(3 * MIN_BYTES)]


@pytest.mark.parametrize(
    ("bytes_a_time", "is_waited_for"), [(300 << 10, True), (100 << 10, False), (0, False)]
)
@scenario(play)
async def test_who_reads_slowly_is_waited_for_and_who_hardly_reads_is_left(
    party: ConnectionHarness, /, bytes_a_time: int, is_waited_for: bool
) -> None:
    party.answer_bytes = 8 << 20
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(party.address)
    client.setblocking(False)
    await loop.sock_sendall(client, POST % 2 + b"ab")
    for _ in range(5):
        left = bytes_a_time
        while left:
            left -= len(await loop.sock_recv(client, left))
        await party.run_loop()
        party.advance(STALL_S - 1)
    await party.run_loop()

    assert is_waited_for == (not party.are_idle)
    client.close()


@scenario(uvloop.run)
async def test_who_reads_an_encrypted_answer_is_waited_for_and_who_does_not_is_left(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    handshakes = Handshakes(Tls(str(cert), str(key)), "http", "http/1.1", PlainRequest)

    async def scenario(party: ConnectionHarness) -> None:
        party.answer_bytes = 64 << 20
        context = ssl.create_default_context(cafile=str(authority.cert))
        reader, writer = await asyncio.open_connection(*party.address, ssl=context, limit=1 << 16)
        writer.write(POST % 2 + b"ab")
        while not party.bodies:
            await party.run_loop()
        for _ in range(5):
            party.advance(STALL_S - 1)
            await reader.readexactly(4 << 20)
            await party.run_loop()
            assert not party.are_idle

        party.advance(1)
        party.advance(STALL_S + 1)
        await party.run_loop()

        assert party.are_idle
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await reader.readexactly(64 << 20)
        writer.close()

    async with ConnectionHarness().serve(handshakes) as party:
        await asyncio.wait_for(scenario(party), 20)


@scenario(play)
async def test_a_request_that_waits_for_its_model_is_not_idle_and_may_take_its_time(
    party: ConnectionHarness, /
) -> None:
    held = Held(party)
    reader, _ = await party.connect(POST % 2 + b"ab")
    assert not party.are_idle
    for _ in range(10):
        party.advance(STALL_S)
    held.may_answer.set()

    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    await party.run_loop()
    assert party.are_idle


@pytest.mark.row("C01")
@scenario(play)
async def test_a_request_that_comes_while_the_process_leaves_is_the_last_of_its_connection(
    party: ConnectionHarness, /
) -> None:
    reader, writer = await party.connect(POST % 2 + b"ab")
    first = await reader.readuntil(b"\r\n\r\n\0\0")
    party.connections.is_leaving = True
    writer.write((POST % 2 + b"cd") * 2)

    last = await reader.read()

    assert b"Connection: close" not in first
    assert last.startswith(b"HTTP/1.1 200 ")
    assert (1, party.bodies) == (last.count(b"\r\nConnection: close\r\n"), [b"ab", b"cd"])


@scenario(play)
async def test_a_server_that_drains_no_more_keeps_its_connections(
    party: ConnectionHarness, /
) -> None:
    party.connections.is_leaving = True
    party.connections.is_leaving = False

    reader, _ = await party.connect(POST % 2 + b"ab")

    assert b"Connection: close" not in await reader.readuntil(b"\r\n\r\n\0\0")


@scenario(play)
async def test_at_the_end_a_connection_is_closed_when_it_has_been_idle_for_a_while(
    party: ConnectionHarness, /
) -> None:
    busy, busy_writer = await party.connect(POST % 2 + b"a")
    idle, _ = await party.connect(POST % 2 + b"ab")
    half, _ = await party.connect(POST[:9])
    await idle.readuntil(b"\r\n\r\n\0\0")
    party.connections.end(is_followed=False)

    party.connections.end_still(1.0)
    await party.run_loop()
    assert 3 == len(party.connections.room)
    party.now += 2.0
    party.connections.end_still(1.0)

    assert [b"", b""] == [await idle.read(), await half.read()]
    busy_writer.write(b"b")
    assert b"\r\nConnection: close\r\n" in await busy.read()
    assert party.bodies == [b"ab", b"ab"]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_is_sent_on_a_taken_over_connection_that_is_lost_goes_nowhere(run: Any) -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, sock=ours
            )
            upgraded = Upgraded(SimpleNamespace(rest=None), Channel(transport, None))
            transport.abort()
            await asyncio.sleep(0.01)

            await upgraded.write([b"too late"])

    run(scenario())
