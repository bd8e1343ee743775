"""Records of requests on their way from a frontend, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontends.fake_gateway import version_info
from tests.support.scenarios import scenario
from zmqtriton.sdk.lines.line import MAX_BYTES, Line
from zmqtriton_extras.capture import rates
from zmqtriton_extras.capture.frames import END, LENGTHS, REQUEST, RESPONSE, Frame, decode
from zmqtriton_extras.capture.step import Capture
from zmqtriton_floor.wire import RequestBody, ResponseBody, Tensor
from zmqtriton_frontends.entrance.ask import Ask, Content
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.request_trace import Observer


class World:
    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.line = Line(str(path))
        self.capture = Capture(rates.parse("*"), self.line)
        self._catalogue = Catalogue()
        self._catalogue.update(version_info("m"))

    def checked(self) -> CheckedRequest:
        body = RequestBody("7", {}, [], [Tensor("INPUT0", 11, [1], b"abcd")])
        return prepare(self._catalogue, self._catalogue.find("m"), body, SchedulingOptions())

    def begin(self, checked: CheckedRequest | None = None) -> Observer | None:
        checked = checked or self.checked()
        ask = Ask(("m", ""), lambda _: Content(checked.body), begun_ns=1)
        return self.capture(ask, checked).observer

    def end_process(self) -> None:
        """End the connection, as the death of the process of captures does."""
        receiver, _ = self._listener.accept()
        receiver.close()

    async def received(self, kind: int, count: int) -> list[Frame]:
        """Return the frames up to so many of a kind."""
        loop, data, frames = asyncio.get_running_loop(), b"", list[Frame]()
        receiver, _ = self._listener.accept()
        with receiver:
            receiver.setblocking(False)
            while sum(frame.kind == kind for frame in frames) < count:
                data += await asyncio.wait_for(loop.sock_recv(receiver, 1 << 16), 60)
                while len(data) >= LENGTHS.size and len(data) >= (size := _size_of(data)):
                    begin = LENGTHS.size + LENGTHS.unpack_from(data)[0]
                    frames += decode(data[LENGTHS.size : begin], data[begin:size])
                    data = data[size:]
        return frames

    def close(self) -> None:
        self._listener.close()


def _size_of(data: bytes) -> int:
    return LENGTHS.size + sum(LENGTHS.unpack_from(data))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "s")
    yield world
    world.close()


@scenario(asyncio.run)
async def test_a_request_that_had_no_room_is_told_of_once(world: World) -> None:
    checked = world.checked()
    large = checked.body._replace(inputs=[Tensor("INPUT0", 11, [1], bytes(MAX_BYTES + 1))])
    before = [world.begin(), world.begin()]
    assert world.begin(checked._replace(body=large)) is None
    for record in (*before, world.begin()):
        assert record is not None
        record.end("HTTP_SEND")

    frames = await world.received(END, 3)
    told = [frame.details["dropped"] for frame in frames if frame.kind == REQUEST]
    assert told == [{}, {}, {"m": 1}]


@pytest.mark.slow
@scenario(asyncio.run)
async def test_a_request_whose_process_has_ended_is_counted(world: World) -> None:
    records = [world.begin(), world.begin()]
    world.end_process()
    for record in records:
        assert record is not None
        record.end("HTTP_SEND")
    without_room = 0
    while (later := world.begin()) is None or world.line.connection == 1:
        without_room += later is None
        await asyncio.sleep(0.01)
    later.end("HTTP_SEND")

    [request] = [f for f in await world.received(END, 1) if f.kind == REQUEST]
    assert request.details["dropped"]["m"] - without_room == 2


@scenario(asyncio.run)
async def test_a_stream_of_empty_responses_is_sent_before_its_end(world: World) -> None:
    record = world.begin()
    assert record is not None
    for _ in range(1000):
        record.take(ResponseBody({}, []))

    frames = await world.received(RESPONSE, 900)
    assert frames[0].kind == REQUEST


@scenario(asyncio.run)
async def test_an_output_in_a_clients_memory_is_not_captured(world: World) -> None:
    record = world.begin()
    assert record is not None
    there, here = Tensor("OUT0", 11, [2], b""), Tensor("OUT1", 11, [0], b"")
    record.take(ResponseBody({}, [there, here]))
    record.end("GRPC_SEND")

    [response] = [one for one in await world.received(END, 1) if one.kind == RESPONSE]
    assert [None if t.data is None else bytes(t.data) for t in response.tensors] == [None, b""]
