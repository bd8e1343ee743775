"""The memory of tensors: how it grows, and outputs in regions of clients."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.stub.fakes import FakeLink, body
from tests.stub.supervisor import REGION, FakeSupervisor
from tests.support.poison import FILE
from tests.support.segments import allocate
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.arena import IDLE_S, Arena, block_of
from zmqtriton_floor.cache_keys import Keys
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.wire import Place, Reference, Tensor
from zmqtriton_stub import supervisor_client
from zmqtriton_stub.api.bls import prepare
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor as PbTensor
from zmqtriton_stub.memory import region_outputs
from zmqtriton_stub.memory.tensor_memory import ClientMemory

# ----------------------------------------------------------------------- tensor memory
# A stub's side of large tensors, with the test at the other end of the lifeline.


LARGE = np.arange(50_000, dtype=np.float32)


def _row(data: Any) -> Tensor:
    return Tensor("X", 11, [len(data) // 4], data)


def test_memory_that_finds_no_room_is_an_error_and_given_back(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = world.write(LARGE.tobytes())
    real = mmap.mmap

    def no_room(*arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return real(*arguments, **named)  # the supervisor's
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "/a/path")

    monkeypatch.setattr(mmap, "mmap", no_room)

    with pytest.raises(Unavailable, match=r"pool size to \d+ bytes. Cannot allocate memory$"):
        world.memory.place([_row(LARGE.tobytes())])
    with pytest.raises(
        Unavailable, match=r"^a tensor cannot be read: Cannot allocate memory; send"
    ):
        world.memory.open([Tensor("X", 11, [50_000], reference)], is_leased=True)

    monkeypatch.setattr(mmap, "mmap", real)
    eventually(lambda: [1, 2] == world.freed_segments, 60, "the supervisor knows")
    assert [block_of(reference)] == world.released
    world.memory.place([_row(LARGE.tobytes())])
    [row], _ = world.memory.open([Tensor("X", 11, [50_000], reference)], is_leased=True)
    assert LARGE.tobytes() == bytes(row.data)


def test_blocks_that_are_kept_apart_are_used_before_memory_is_called_short(
    world: FakeSupervisor,
) -> None:
    world.memory = world.make_memory(Memory(poison=FILE))
    _, blocks = world.memory.place([_row(bytes(500_000)), _row(bytes(500_000))])
    world.memory.free(blocks[:1])
    world.refusal = "There is none."

    world.memory.place([_row(bytes(500_000))])

    assert 2 == world.memory.arena.used


def test_a_supervisor_that_does_not_answer_is_not_awaited_for_ever(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_client, "_ANSWER_TIMEOUT_S", 0.01)
    monkeypatch.setattr(world.client, "send", Mock())

    with pytest.raises(Unavailable, match="did not answer in time"):
        world.memory.place([_row(LARGE.tobytes())])
    # an answer that is late is nobody's, and what waits for it would only grow
    assert not world.client._waiters


def test_threads_that_need_room_at_once_all_get_it(world: FakeSupervisor) -> None:
    placed: list[Any] = []

    def place(value: int) -> None:
        data = bytes([value]) * 400_000
        for _ in range(5):
            [row], _ = world.memory.place([_row(data)])
            placed.append((data, row.data))

    with ThreadPoolExecutor(6) as threads:
        for value in range(6):
            threads.submit(place, value)

    assert 30 == world.memory.arena.used
    assert all(data == world.read(reference) for data, reference in placed)


def test_inputs_are_views_that_the_model_may_write_to(world: FakeSupervisor) -> None:
    reference = world.write(LARGE.tobytes())

    [row], blocks = world.memory.open([Tensor("X", 11, [50_000], reference)], is_leased=False)
    values = np.frombuffer(row.data, np.float32)
    values[:] = 0

    assert [wire.Block(3, 1, 1)] == blocks
    [again] = world.memory.mappings.open([reference])
    assert LARGE.tobytes() == again.tobytes()
    del row, values, again
    gc.collect()
    assert [] == world.released


def test_no_thread_looks_between_a_lease_and_the_note_of_its_reply(world: FakeSupervisor) -> None:
    reference = world.write(LARGE.tobytes())
    seen: list[Any] = []

    def look() -> None:
        with ThreadPoolExecutor(1) as beside:
            is_free = beside.submit(world.memory.mappings.lock.acquire, False).result(30)
        seen.append((world.memory.held(), is_free))

    _, blocks = world.memory.open(
        [Tensor("X", 11, [50_000], reference)], is_leased=True, on_opened=look
    )

    assert [(blocks, False)] == seen


def _respond(array: Any) -> InferenceResponse:
    return InferenceResponse([PbTensor("OUT", array)])


def test_a_response_that_may_not_be_sent_leaves_nothing(
    world: FakeSupervisor, link: FakeLink
) -> None:
    pending = link.add_request(body())
    pending.send(_respond(LARGE), wire.FINAL)

    with pytest.raises(TritonModelException):
        pending.send(_respond(LARGE), wire.FINAL)

    assert 1 == world.memory.arena.used


def test_outputs_that_nobody_asked_for_take_no_memory(
    world: FakeSupervisor, link: FakeLink
) -> None:
    pending = link.add_request(body(outputs=["OTHER"]))
    pending.outputs = ["OTHER"]

    pending.send(_respond(LARGE), wire.FINAL)

    assert 0 == world.memory.arena.used


def test_what_was_empty_for_a_while_goes_back(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, blocks = world.memory.place([_row(LARGE.tobytes())])
    world.memory.free(blocks)

    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(world.memory.arena, "_clock", lambda: now_s)

    assert IDLE_S == world.memory.trim()
    now_s += 1
    assert IDLE_S - 1 == pytest.approx(world.memory.trim())
    assert world.memory.arena.bytes
    now_s += IDLE_S - 1
    assert world.memory.trim() is None

    assert 0 == world.memory.arena.bytes


def test_memory_in_use_is_looked_at_once_in_a_while(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, blocks = world.memory.place([_row(LARGE.tobytes())])
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(world.memory.arena, "_clock", lambda: now_s)

    assert world.memory.trim() is None  # nothing that has to be done before something comes
    now_s += 1
    world.memory.free(blocks)  # as what has come has made it
    assert IDLE_S - 1 == pytest.approx(world.memory.trim())
    now_s += IDLE_S
    assert IDLE_S == world.memory.trim()


@pytest.mark.parametrize("is_hashed", [False, True])
def test_a_question_has_a_key_and_its_large_data_a_digest_where_the_answer_may_be_cached(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch, is_hashed: bool
) -> None:
    data = bytes(range(256)) * 1000
    keys = world.memory.keys = Keys(b"secret")
    monkeypatch.setattr(world.memory, "is_hashed", lambda model, version: is_hashed)
    asked = wire.RequestBody("", {}, [], [wire.Tensor("A", 2, [len(data)], data)])

    prepared = prepare(wire.Request(0, 0, "m", -1, 0, 0, 0, 0, 1, 0, 0), asked, world.memory)

    placed = wire.decode_request(prepared.body)
    expected = (keys.digest(data), keys.of_placed(placed)) if is_hashed else (b"", b"")
    assert expected == (placed.inputs[0].data.digest, prepared.row.cache_key)


# ---------------------------------------------------------------------- region outputs
# A stub and the regions of clients: what it reads there, and what it writes there itself.
COUNT = 50_000


SIZE = 4 * COUNT


ONES = np.ones(COUNT, np.float32)


#: At no multiple of anything.
PLACE = Place("OUT", 3, REGION, 101, SIZE)


def _input(world: FakeSupervisor) -> Any:
    reference = Reference(3, REGION, 1, 0, SIZE)
    [row], _ = world.memory.open([Tensor("X", 11, [COUNT], reference)], is_leased=False)
    return np.frombuffer(row.data, np.float32)


def _output(world: FakeSupervisor, place: Place = PLACE, array: Any = ONES) -> Any:
    """Answer a request with this place; return the data of the output that is sent."""
    link = FakeLink()
    link.instance.memory = world.memory
    pending = link.add_request(body())
    pending.places = [place]

    pending.send(InferenceResponse([PbTensor("OUT", array)]), wire.FINAL)

    return wire.decode_response(link.messages[-1][1][0], has_places=True).outputs[0].data


def _at(descriptor: int, offset: int = 101) -> bytes:
    return os.pread(descriptor, SIZE, offset)


def _is_mapped(descriptor: int) -> bool:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return str(os.fstat(descriptor).st_ino) in [line.split()[4] for line in lines]


def test_an_input_is_a_view_that_hides_what_the_model_writes(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes())

    array = _input(world)
    os.pwrite(descriptor, (ONES * 2).tobytes(), 0)
    assert {2.0} == set(array)

    array[:] = 3
    assert (ONES * 2).tobytes() == _at(descriptor, 0)
    del array
    assert {2.0} == set(_input(world))


def test_an_output_may_be_its_input(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes() + bytes(SIZE))

    assert _output(world, PLACE._replace(offset=SIZE), _input(world)) is None

    assert ONES.tobytes() == _at(descriptor, SIZE)


@pytest.mark.parametrize("why", ["read only", "copied", "no room", "cut short", "gone", "full"])
def test_what_cannot_be_written_there_goes_with_the_answer(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    place = PLACE._replace(size=SIZE - 1) if why == "no room" else PLACE
    if why != "gone":
        descriptor = world.lend_region(bytes(2 * SIZE), is_read_only=why == "read only")
    if why == "copied":
        world.copied.add(REGION)
    elif why == "full":
        world.memory.free(world.memory.place([Tensor("X", 11, [COUNT], ONES.tobytes())])[1])
        _no_populating(monkeypatch)
        monkeypatch.setattr(os, "posix_fallocate", _refuse)
    elif why == "cut short":
        assert _output(world) is None
        os.ftruncate(descriptor, SIZE)

    for _ in range(2):
        assert ONES.tobytes() == world.read(_output(world, place))

    if why not in ("gone", "cut short"):
        assert bytes(SIZE) == _at(descriptor)


def _no_populating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_outputs, "MADV_POPULATE_WRITE", 9999)


def _refuse(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_process_that_is_not_the_instances_alone_maps_nothing(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes() * 2)
    world.memory.mappings.close()
    world.memory = world.make_memory(maps_regions=False)

    assert {1.0} == set(_input(world))
    assert type(_output(world)) is Reference
    assert not _is_mapped(descriptor)


def test_what_is_unregistered_is_unmapped(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes() * 2)
    array = _input(world)
    assert _output(world, PLACE._replace(offset=SIZE)) is None
    assert _is_mapped(descriptor)

    world.lifeline.send(wire.SegmentOpened(3, REGION, 0))

    def is_dropped() -> bool:
        world.client.receive()
        return not world.memory.mappings.has(3, REGION)

    eventually(is_dropped, 60)

    assert {1.0} == set(array)
    del array
    assert not _is_mapped(descriptor)


def test_a_region_is_none_of_a_frontends_mappings(world: FakeSupervisor) -> None:
    frontend = Mappings(is_private=False)
    descriptor = world.lend_region(ONES.tobytes())

    with pytest.raises(ProtocolError, match="is not sealed"):
        frontend.add(3, REGION, os.dup(descriptor))


# ----------------------------------------------------------------------- client memory
# Memory of an arena on its way to clients.
MIB = 1 << 20


def test_a_peer_is_full_until_it_has_released_enough() -> None:
    arena = Arena(7)
    memory = ClientMemory(arena, 4 * MIB)
    numbers = [allocate(arena, MIB).block.block for _ in range(5)]

    for number in numbers[:3]:
        memory.add(3, [number])
        assert not memory.is_full(3)
    memory.add(3, numbers[3:])
    assert memory.is_full(3)
    assert not memory.is_full(4)
    arena.leases.end(numbers[:2])

    assert not memory.is_full(3)
    arena.leases.end(numbers[2:])
    assert not memory.is_full(3)


def test_what_was_released_long_ago_is_forgotten() -> None:
    arena = Arena(7)
    memory = ClientMemory(arena, 100 * MIB)
    memory.add(3, [allocate(arena, MIB).block.block])

    for _ in range(2000):
        number = allocate(arena, 100_000).block.block
        memory.add(3, [number])
        arena.leases.end([number])

    assert not memory.is_full(3)
    # what was freed would only grow
    assert len(memory._blocks[3]) < 600


def test_memory_on_a_gpu_that_is_refused_says_why(world: FakeSupervisor) -> None:
    world.refusal = "The GPU is full."

    # what memory on a GPU calls, which needs a driver
    assert world.refusal == world.memory._register(world.frontend.segment_request(SIZE))
