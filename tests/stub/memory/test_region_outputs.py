"""Outputs in regions, and in memory of clients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.floor.test_arena import allocate
from tests.stub.fakes import FakeLink, body
from tests.stub.supervisor import BOOTSTRAP, REGION, FakeSupervisor
from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Arena
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.wire import Place, Reference, Tensor
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import Tensor as PbTensor
from zmqtriton_stub.memory import region_outputs
from zmqtriton_stub.memory.client_memory import ClientMemory
from zmqtriton_stub.memory.tensor_memory import TensorMemory

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


def test_an_output_is_written_to_its_place_and_goes_no_other_way(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(bytes(2 * SIZE))

    assert _output(world) is None
    assert _output(world, PLACE._replace(offset=SIZE), ONES[:7]) is None

    assert ONES.tobytes()[: SIZE - 101] == _at(descriptor)[: SIZE - 101]
    assert ONES[:7].tobytes() == _at(descriptor, SIZE)[:28]
    assert 0 == world.memory.arena.used


def test_an_output_may_be_its_input(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes() + bytes(SIZE))

    assert _output(world, PLACE._replace(offset=SIZE), _input(world)) is None

    assert ONES.tobytes() == _at(descriptor, SIZE)


def test_other_outputs_go_with_the_answer(world: FakeSupervisor) -> None:
    world.lend_region(bytes(2 * SIZE))

    assert type(_output(world, PLACE._replace(output="OTHER"))) is Reference


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
        data = _output(world, place)
        assert ONES.tobytes() == world.read(data)

    if why not in ("gone", "cut short"):
        assert bytes(SIZE) == _at(descriptor)


def test_an_older_kernel_has_memory_made_in_another_way(
    world: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = world.lend_region(b"")
    os.truncate(descriptor, 2 * SIZE)
    _no_populating(monkeypatch)

    assert _output(world) is None

    assert ONES.tobytes() == _at(descriptor)


def _no_populating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_outputs, "_MADV_POPULATE_WRITE", 9999)


def _refuse(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_region_that_was_cut_short_before_is_read_and_not_mapped(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes())
    world.copied.add(REGION)

    array = _input(world)

    assert not _is_mapped(descriptor)
    assert {1.0} == set(array)
    os.ftruncate(descriptor, 0)
    assert {1.0} == set(array)


def test_a_process_that_is_not_the_instances_alone_maps_nothing(world: FakeSupervisor) -> None:
    descriptor = world.lend_region(ONES.tobytes() * 2)
    world.memory.mappings.close()
    world.memory = TensorMemory(world.client, maps_regions=False)
    world.memory.begin(BOOTSTRAP.serial, Memory())

    array = _input(world)

    assert {1.0} == set(array)
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
    assert len(memory._blocks[3]) < 600
