"""The frontend's side of large tensors, with the test in the place of supervisor, broker, stub."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.poison import FILE
from tests.support.scenarios import scenario
from tests.support.segments import segment
from tests.support.server import ROOT
from tests.support.waiting import loop_turns
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Arena
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.signature import Admission
from zmqtriton_floor.wire import Reference, RequestBody, ResponseBody, Tensor, decode_response
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions
from zmqtriton_frontends.tensors import segments
from zmqtriton_frontends.tensors.payload import COPY_BYTES, Payload
from zmqtriton_frontends.tensors.references import has_references

LARGE = os.urandom(200_000)


def unchecked(*inputs: Tensor) -> CheckedRequest:
    nothing: Any = None  # what is of no importance here
    return CheckedRequest(
        nothing, RequestBody("", {}, [], list(inputs)), Admission(0, 0), SchedulingOptions(), {}
    )


class World:
    """Answers as the supervisor does, a turn of the loop later; owns a stub's arena."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.released: list[wire.Block] = []
        self.refusal = ""
        self.is_silent = False
        #: What other processes see of this frontend's arena.
        self.seen = Mappings(is_private=False)
        self.stub = Arena(9)
        self.stub_segments: dict[int, int] = {}
        self.payload = Payload(3, Memory(), self.hear, self.release)

    def hear(self, message: Any) -> None:
        self.messages.append(message)
        if not self.is_silent:
            asyncio.get_running_loop().call_soon(self.answer, message)

    def answer(self, message: Any) -> None:
        if isinstance(message, wire.CreateSegment):
            if self.refusal:
                self.payload.segments.receive(
                    wire.SegmentCreated(message.segment, Unavailable.number, self.refusal), []
                )
                return
            descriptor = segment(message.size)
            for mappings in (self.seen, self.payload.mappings):
                mappings.add(3, message.segment, os.dup(descriptor))
            self.payload.segments.receive(wire.SegmentCreated(message.segment, 0, ""), [descriptor])
        elif isinstance(message, wire.OpenSegment):
            held = self.stub_segments.get(message.segment)
            reply = wire.SegmentOpened(*message, 0 if held is None else os.fstat(held).st_size)
            self.payload.segments.receive(reply, [] if held is None else [os.dup(held)])
        elif isinstance(message, wire.FreeSegment):
            self.seen.remove(3, message.segment)

    def release(self, message: wire.Release) -> None:
        self.released += message.blocks

    async def see_released(self, count: int) -> list[wire.Block]:
        """Return what has been released when it is so much."""
        deadline = time.monotonic() + 30
        while len(self.released) < count and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        assert count == len(self.released)
        return self.released

    def respond(self, *tensors: bytes) -> bytes:
        """The body of a response of the stub's."""
        outputs = []
        for data in tensors:
            allocation = self.stub.allocate(len(data))
            if allocation is None:
                request = self.stub.segment_request(len(data))
                descriptor = self.stub_segments[request.segment] = segment(request.size)
                self.stub.add(request, os.dup(descriptor))
                allocation = self.stub.allocate(len(data))
                assert allocation is not None
            allocation.view[:] = data
            outputs.append(Tensor("OUT", 2, [len(data)], allocation.reference))
        return wire.encode_body(ResponseBody({}, outputs))

    async def send(self, *tensors: Any, own_id: int = 1) -> RequestBody:
        """The body that leaves the frontend."""
        inputs = [Tensor(f"IN{i}", 2, [len(data)], data) for i, data in enumerate(tensors)]
        placed = await self.payload.place(unchecked(*inputs))
        self.payload.placed[own_id] = placed
        return wire.decode_request(wire.encode_body(placed.body))

    async def find_no_room(self, opening: asyncio.Future[Any]) -> None:
        """Let the segment that a response needs be one that cannot be mapped here."""
        self.is_silent = True
        while not (self.messages and type(self.messages[-1]) is wire.OpenSegment):
            await asyncio.sleep(0)
        size = 2 * len(LARGE)
        descriptor = segment(size)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mmap, "mmap", no_room)
            reply = wire.SegmentOpened(*self.messages[-1], size)
            self.payload.segments.receive(reply, [descriptor])
        await asyncio.wait([opening])

    def close(self) -> None:
        self.payload.close()
        self.payload.mappings.close()
        self.seen.close()
        for descriptor in self.stub_segments.values():
            os.close(descriptor)


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def within() -> None:
        world = World()
        try:
            await test(world)
        finally:
            world.close()

    asyncio.run(within())


@scenario(run)
async def test_a_request_s_large_tensors_are_references_until_it_is_answered(
    world: World, /
) -> None:
    body = await world.send(b"small", LARGE, memoryview(LARGE)[:100_000], own_id=7)

    small, large, part = (tensor.data for tensor in body.inputs)
    assert b"small" == small
    arrays = world.seen.open([large, part])
    assert [LARGE, LARGE[:100_000]] == [array.tobytes() for array in arrays]
    assert 2 == world.payload.arena.used

    world.payload.answered(7)
    assert 0 == world.payload.arena.used


@scenario(run)
async def test_where_memory_has_to_be_made_first_nothing_is_sent_at_once(world: World, /) -> None:
    await world.send(LARGE, own_id=1)
    fits = unchecked(Tensor("IN", 2, [1], LARGE))
    too_much = unchecked(Tensor("A", 2, [1], LARGE), Tensor("B", 2, [1], bytes(5_000_000)))

    assert world.payload.place_now(too_much) is None
    assert 1 == world.payload.arena.used
    placed = world.payload.place_now(fits)
    assert placed is not None
    world.payload.placed[2] = placed

    assert Reference is type(placed.body.inputs[0].data)
    assert 2 == world.payload.arena.used
    world.payload.answered(2)
    assert 1 == world.payload.arena.used


@scenario(run)
async def test_memory_is_made_once_more_where_a_thread_has_taken_it(world: World, /) -> None:
    arena = world.payload.arena
    add = arena.add
    taken: list[Any] = []

    def taking(made: Any, descriptor: int) -> None:
        add(made, descriptor)
        if not taken:
            thread = threading.Thread(target=lambda: taken.append(arena.allocate(made.size)))
            thread.start()
            thread.join()

    arena.add = taking  # type: ignore[method-assign]
    room = await world.payload.segments.allocate(100_000)

    assert taken[0] is not None
    assert room.reference.segment != taken[0].reference.segment


@scenario(run)
async def test_others_have_their_turn_while_a_large_tensor_is_placed(world: World, /) -> None:
    data = os.urandom(2 * COPY_BYTES + 1000)

    assert world.payload.place_now(unchecked(Tensor("IN0", 2, [len(data)], data))) is None
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    sending = asyncio.ensure_future(world.send(data))
    while not world.payload.arena.bytes:
        await asyncio.sleep(0)
    counting = asyncio.ensure_future(count())
    body = await sending
    counting.cancel()

    [tensor] = body.inputs
    assert data == bytes(world.seen.open([tensor.data])[0])
    assert turns >= 2


def send_a_large_tensor(world: World) -> Awaitable[Any]:
    return world.send(bytes(3 * COPY_BYTES))


def gather_a_large_body(world: World) -> Awaitable[Any]:
    return world.payload.gather([bytes(2 * COPY_BYTES), bytes(COPY_BYTES)], 3 * COPY_BYTES, 33)


@pytest.mark.parametrize(
    ("begin", "keeps_segment"), [(send_a_large_tensor, True), (gather_a_large_body, False)]
)
@scenario(run)
async def test_a_client_that_leaves_while_its_data_are_placed_leaks_nothing(
    world: World, /, begin: Callable[[World], Awaitable[Any]], keeps_segment: bool
) -> None:
    placing = asyncio.ensure_future(begin(world))
    while not world.payload.arena.used:
        await asyncio.sleep(0)
    placing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await placing

    assert (0, keeps_segment) == (world.payload.arena.used, world.payload.arena.bytes > 0)


@scenario(run)
async def test_the_copy_of_a_gathered_body_has_room_before_it_is_made(world: World, /) -> None:
    held: list[int] = []

    def refuse(size: int) -> None:
        raise Unavailable("no room")

    pieces = [bytearray(LARGE), bytearray(LARGE)]
    with await world.payload.gather(pieces, 2 * len(LARGE), 33, held.append) as whole:
        assert LARGE * 2 == bytes(whole)
    assert ([2 * len(LARGE), -4 * len(LARGE)], []) == (held, pieces)
    held.clear()
    with await world.payload.gather([b"ab"], 2, 0, held.append):
        assert not sum(held)
    with pytest.raises(Unavailable, match="no room"):
        await world.payload.gather([bytearray(LARGE)], len(LARGE), 0, refuse)

    world.refusal = "There is none."
    held.clear()
    with await world.payload.gather([bytes(3 * COPY_BYTES)], 3 * COPY_BYTES, 0, held.append):
        assert [3 * COPY_BYTES, -3 * COPY_BYTES] == held


@scenario(run)
async def test_pieces_of_a_body_are_dropped_while_others_are_gathered(world: World, /) -> None:
    pieces: list[bytes] = [bytes(2 * COPY_BYTES), bytes(COPY_BYTES)]
    sizes = []

    gathering = asyncio.ensure_future(world.payload.gather(pieces, 3 * COPY_BYTES, 33))
    while not gathering.done():
        await asyncio.sleep(0)
        sizes.append([*map(len, pieces)])

    assert [0, COPY_BYTES] in sizes
    gathering.result().free()


@pytest.mark.parametrize("faults", [[], ["unwritable"]])
@scenario(run)
async def test_a_segment_that_cannot_be_used_is_given_back(
    world: World, /, faults: list[str]
) -> None:
    world.is_silent = True
    sending = asyncio.ensure_future(world.send(LARGE))
    while not world.messages:
        await asyncio.sleep(0)
    request = world.messages.pop()

    descriptors = [os.open("/dev/null", os.O_RDONLY)] if faults else []
    world.payload.segments.receive(wire.SegmentCreated(request.segment, 0, ""), descriptors)

    with pytest.raises(Unavailable, match="Failed to increase the shared memory pool size"):
        await sending
    assert [wire.FreeSegment(request.segment)] == world.messages


@scenario(run)
async def test_a_response_that_finds_no_room_is_an_error_and_released(world: World, /) -> None:
    opening = asyncio.ensure_future(world.payload.open(wire.decode_response(world.respond(LARGE))))

    await world.find_no_room(opening)

    with pytest.raises(
        Unavailable, match=r"^a tensor cannot be read: Cannot allocate memory; send"
    ):
        await opening
    await world.see_released(1)


def no_room(*arguments: Any) -> Any:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "/a/path")


@scenario(run)
async def test_short_memory_is_an_error_of_the_request(world: World, /) -> None:
    await world.send(LARGE, own_id=1)
    world.refusal = "The budget is spent."

    with pytest.raises(Unavailable, match="Failed to increase the shared memory pool size"):
        await world.send(LARGE, bytes(5_000_000), own_id=2)

    assert 1 == world.payload.arena.used


@scenario(run)
async def test_blocks_that_are_kept_apart_are_used_before_memory_is_called_short(
    world: World, /
) -> None:
    world.payload = Payload(3, Memory(poison=FILE), world.hear, world.release)
    for own_id in (1, 2):
        await world.send(bytes(500_000), own_id=own_id)
    world.payload.answered(1)
    world.refusal = "There is none."

    await world.send(bytes(500_000), own_id=3)

    assert 2 == world.payload.arena.used


@scenario(run)
async def test_empty_segments_are_given_back_before_memory_is_called_short(world: World, /) -> None:
    await world.send(bytes(20_000_000), own_id=1)
    world.payload.answered(1)
    world.refusal = "There is none."

    with pytest.raises(Unavailable):
        await world.send(bytes(50_000_000), own_id=2)

    assert wire.FreeSegment(1) in world.messages
    assert 0 == world.payload.arena.bytes


@scenario(run)
async def test_a_supervisor_that_does_not_answer_is_not_awaited_for_ever(
    world: World, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_ANSWER_TIMEOUT_S", 0.01)

    world.is_silent = True
    with pytest.raises(Unavailable, match="did not answer in time"):
        await world.send(LARGE)

    # Too late: it goes straight back.
    late = world.messages[0]
    world.answer(late)
    assert wire.FreeSegment(late.segment) == world.messages[-1]
    assert 0 == world.payload.arena.bytes


@scenario(run)
async def test_many_who_need_room_at_once_do_not_each_get_a_segment(world: World, /) -> None:
    await asyncio.gather(*(world.send(LARGE, own_id=i) for i in range(1, 5)))

    assert 1 == len([m for m in world.messages if isinstance(m, wire.CreateSegment)])
    assert 4 == world.payload.arena.used


@scenario(run)
async def test_a_gathered_body_is_not_copied_again(world: World, /) -> None:
    header, pieces = b"{}" + b" " * 31, [b"{}" + b" " * 20, b" " * 11 + LARGE[:7], LARGE[7:]]
    with await world.payload.gather(pieces, 33 + len(LARGE), 33) as whole:
        assert header + LARGE == bytes(whole)
        assert 1 == world.payload.arena.used
        body = await world.send(whole[33:100_033], whole[100_033:])
        assert 1 == world.payload.arena.used

    first, second = (tensor.data for tensor in body.inputs)
    assert first.block == second.block
    assert 0 == first.offset % 64  # numpy and what is behind it wants that
    arrays = world.seen.open([first, second])
    assert [LARGE[:100_000], LARGE[100_000:]] == [array.tobytes() for array in arrays]
    world.payload.answered(1)
    assert 0 == world.payload.arena.used


@scenario(run)
async def test_a_gathered_body_that_became_no_request_is_freed(world: World, /) -> None:
    gathered = await world.payload.gather([LARGE], len(LARGE), 0)
    with pytest.raises(ZeroDivisionError), gathered:
        raise ZeroDivisionError
    assert 0 == world.payload.arena.used

    world.refusal = "There is none."
    with await world.payload.gather([LARGE] * 50, 50 * len(LARGE), 0) as whole:
        assert LARGE * 50 == whole
    with await world.payload.gather([b"a", b"b"], 2, 0) as whole:
        assert b"ab" == whole


@scenario(run)
async def test_a_response_is_read_where_it_lies_and_released_when_nobody_reads_it(
    world: World, /
) -> None:
    body = wire.decode_response(world.respond(LARGE, LARGE[:20_000]))
    assert has_references(body)
    small = Tensor("OUT", 2, [1], b"a")

    response = await world.payload.open(body._replace(outputs=[small, *body.outputs]))

    assert [b"a", LARGE, LARGE[:20_000]] == [bytes(t.data) for t in response.outputs]
    rest = response.outputs[1].data[5:9]
    del response
    assert [body.outputs[1].data.block] == [block.block for block in (await world.see_released(1))]
    del rest
    assert {9} == {block.owner for block in await world.see_released(2)}


@scenario(run)
async def test_a_segment_is_asked_for_once_by_all_who_need_it(world: World, /) -> None:
    bodies = [wire.decode_response(world.respond(LARGE)) for _ in range(4)]

    await asyncio.gather(*(world.payload.open(body) for body in bodies))

    assert [wire.OpenSegment(9, 1)] == world.messages


@scenario(run)
async def test_a_response_whose_memory_is_gone_is_an_error_and_released(world: World, /) -> None:
    body = wire.decode_response(world.respond(LARGE))
    os.close(world.stub_segments.pop(1))

    with pytest.raises(Unavailable, match="is gone"):
        await world.payload.open(body)

    await world.see_released(1)


@pytest.mark.parametrize("change", [{"size": 2**40}, {"offset": 2**62}])
@scenario(run)
async def test_a_response_that_points_beyond_its_segment_is_an_error(
    world: World, /, change: dict[str, int]
) -> None:
    wrong = wire.decode_response(world.respond(LARGE)).outputs[0].data._replace(**change)

    with pytest.raises(ProtocolError):
        await world.payload.open(ResponseBody({}, [Tensor("OUT", 2, [1], wrong)]))

    await world.see_released(1)


@scenario(run)
async def test_a_response_that_nobody_wants_is_released(world: World, /) -> None:
    world.payload.discard(world.respond(LARGE, LARGE))
    world.payload.discard(b"")
    # its stub has written one of its outputs to a region itself
    response = wire.decode_response(world.respond(LARGE))
    written = Tensor("WRITTEN", 2, [1], None)
    world.payload.discard(wire.encode_body(response._replace(outputs=[written, *response.outputs])))
    await world.see_released(3)


@scenario(run)
async def test_a_release_travels_with_the_next_message(world: World, /) -> None:
    blocks = [wire.Block(9, 1, number) for number in (1, 2)]

    # as when an array is collected
    world.payload.mappings._on_release(blocks)
    assert [blocks] == world.payload.releases.take()
    assert [] == world.payload.releases.take()
    await asyncio.sleep(0.02)
    assert [] == world.released


@scenario(run)
async def test_many_releases_do_not_wait_for_a_message(world: World, /) -> None:
    for number in range(9):
        # as when an array is collected
        world.payload.mappings._on_release([wire.Block(9, 1, number)])

    await loop_turns(3)  # and no time

    assert 9 == len(world.released)


@scenario(run)
async def test_an_unsealed_segment_is_not_mapped(world: World, /) -> None:
    body = wire.decode_response(world.respond(LARGE))
    os.close(world.stub_segments[1])
    world.stub_segments[1] = os.memfd_create("bad", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(world.stub_segments[1], 1 << 20)

    with pytest.raises(Unavailable):
        await world.payload.open(body)

    assert 1 == world.payload.segments.malformed


#: Opens a response in a process that has not imported numpy yet, and prints which threads did.
_FIRST_RESPONSE = """
import asyncio, sys, threading

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Finder())
from tests.frontends.tensors.test_payload import LARGE, World, run
from zmqtriton_frontends.tensors.references import read_response, PlacedBody

async def test(world):
    response = await world.payload.open(read_response(PlacedBody(world.respond(LARGE))))
    assert response.outputs[0].data == LARGE
    del response

run(test)
"""


@pytest.mark.slow
def test_the_first_large_response_does_not_keep_the_loop_for_an_import() -> None:
    command = [sys.executable, "-c", _FIRST_RESPONSE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert "False" == done.stdout.strip()


# ------------------------------------------------------------------- blocks that are kept


async def _place(world: World, own_id: int) -> Reference:
    [tensor] = (await world.send(LARGE, own_id=own_id)).inputs
    return tensor.data


def _response(*references: Reference) -> ResponseBody:
    return ResponseBody({}, [Tensor("OUT", 2, [one.size], one) for one in references])


@scenario(run)
async def test_a_request_s_memory_stays_until_nobody_reads_the_answer_in_it(
    world: World, /
) -> None:
    reference = await _place(world, 7)
    answer = _response(reference, reference._replace(size=100))

    response = world.payload.open_now(answer, world.payload.keep(7))

    assert response is not None
    whole, part = (tensor.data for tensor in response.outputs)
    del response
    assert (LARGE, LARGE[:100]) == (bytes(whole), bytes(part))
    del whole
    assert 1 == world.payload.arena.used
    del part
    assert (0, []) == (world.payload.arena.used, world.released)


@scenario(run)
async def test_an_answer_in_the_memory_of_another_request_is_an_error(world: World, /) -> None:
    first, _ = await _place(world, 7), await _place(world, 8)

    with pytest.raises(ProtocolError, match="not its request's"):
        world.payload.open_now(_response(first), world.payload.keep(8))

    assert (1, []) == (world.payload.arena.used, world.released)


@scenario(run)
async def test_the_next_broker_hears_nothing_of_it_and_frees_only_what_nobody_has(
    world: World, /
) -> None:
    response = world.payload.open_now(_response(await _place(world, 7)), world.payload.keep(7))
    lost = await world.payload.segments.allocate(100_000)
    world.payload.arena.leases.send([lost.reference.block])

    [held] = world.payload.change_broker([])
    world.payload.arena.leases.end_doubted()

    assert ([], 1) == (held.blocks, world.payload.arena.used)
    del response
    assert 0 == world.payload.arena.used


@scenario(run)
async def test_an_answer_for_which_there_is_no_room_keeps_nothing(world: World, /) -> None:
    reference = await _place(world, 7)
    world.payload.mappings.remove(3, reference.segment)
    opening = asyncio.ensure_future(world.payload.open(_response(reference), world.payload.keep(7)))

    await world.find_no_room(opening)

    # The error is there still, and knows the frames of all that failed.
    assert "a tensor cannot be read: Cannot allocate memory; send" in str(opening.exception())
    assert (0, []) == (world.payload.arena.used, world.released)


@pytest.mark.usefixtures("no_garbage_collection")
@scenario(run)
async def test_the_error_of_a_response_without_room_stays_for_nobody(world: World, /) -> None:
    opening = asyncio.ensure_future(world.payload.open(decode_response(world.respond(LARGE))))

    await world.find_no_room(opening)
    error = opening.exception()
    assert isinstance(error, Unavailable)
    seen = weakref.ref(error)
    del opening, error
    await asyncio.sleep(0)

    assert seen() is None
