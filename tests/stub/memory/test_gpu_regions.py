"""Clients' memory on GPUs in a stub, with files in its place, in one process."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from tests.support.host_gpu import HostGpu, numbers
from tests.support.refusals import refusal
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Arena
from zmqtriton_floor.datatypes import BY_NAME, BYTES
from zmqtriton_floor.errors import InternalError, InvalidArgument, ProtocolError, Unsupported
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.gpu_memory import Borrowed, OnGpus

FP32 = BY_NAME["FP32"].number
ARRAY = np.arange(12, dtype=np.float32)
SIZE = ARRAY.nbytes
OWNER, REGION = 3, REGIONS_FROM + 1


class World:
    """A client with memory on a GPU, and a stub that has been lent it."""

    def __init__(self, driver: HostGpu) -> None:
        self.driver = driver
        self.address = driver.allocate(0, 4096)
        driver.from_host(0, self.address, ARRAY.tobytes())
        self.handle = b"0\0" + driver.raw_handle(self.address)
        self.released: list[wire.Block] = []
        self.gpus = OnGpus(Arena(9), lambda made: "", self.released.extend)
        self.gpus.borrowed.add_region(OWNER, REGION, self.handle, 4096)

    def open(self, offset: int = 0, datatype: int = FP32, *, takes_gpu: bool = True) -> Any:
        row = wire.Tensor("X", datatype, [12], wire.Reference(OWNER, REGION, 1, offset, SIZE))
        [opened] = self.gpus.open([row], is_leased=False, takes_gpu=takes_gpu)
        return opened.data

    def write(self, data: Any, offset: int = 1024, room: int = SIZE) -> bool:
        writable = self.gpus.writable(OWNER, REGION)
        assert isinstance(writable, Borrowed)
        return writable.write(wire.Place("OUT", OWNER, REGION, offset, room), data)

    def read(self, offset: int) -> Any:
        span = gpu.DeviceSpan(0, self.address + offset, SIZE, None)
        return np.frombuffer(gpu.downloaded(span), np.float32)


@pytest.fixture
def world(driver: HostGpu) -> World:
    return World(driver)


def test_an_input_is_the_memory_of_its_client(world: World) -> None:
    numbers(world.open(), np.float32)[0] = 7

    assert (7, 1) == (world.read(0)[0], world.driver.opens)


def test_an_input_that_no_kernel_could_read_in_whole_elements_is_copied(world: World) -> None:
    world.driver.from_host(0, world.address + 2, ARRAY.tobytes())

    span = world.open(offset=2)

    assert ARRAY.tolist() == numbers(span, np.float32).tolist()
    numbers(span, np.float32)[0] = 7
    assert 0 == world.read(2)[0]


@pytest.mark.parametrize(("datatype", "takes_gpu"), [(FP32, False), (BYTES, True)])
def test_what_a_model_cannot_read_there_comes_to_the_cpu(
    world: World, datatype: int, takes_gpu: bool
) -> None:
    data = world.open(datatype=datatype, takes_gpu=takes_gpu)

    assert (memoryview, ARRAY.tobytes()) == (type(data), bytes(data))


def test_an_input_that_a_model_keeps_is_leased_to_nobody(world: World) -> None:
    kept = world.open()

    assert [] == world.gpus.borrowed.leave([wire.Block(OWNER, REGION, 1)])

    world.gpus.borrowed.remove(OWNER, REGION)
    assert ARRAY.tolist() == numbers(kept, np.float32).tolist()
    assert 1 == len(world.driver.opened)
    del kept
    gc.collect()
    assert ({}, []) == (world.driver.opened, world.released)


def test_an_output_is_written_from_the_cpu_and_from_a_gpu(world: World) -> None:
    assert world.write((ARRAY + 1).tobytes())
    assert world.write(gpu.uploaded(0, (ARRAY + 2).tobytes()), offset=2048)
    assert world.write(b"", offset=4096, room=0)

    assert (ARRAY + 1).tolist() == world.read(1024).tolist()
    assert (ARRAY + 2).tolist() == world.read(2048).tolist()


def test_an_output_beyond_its_place_is_told_how_much_it_needs(world: World) -> None:
    assert (
        "shared memory size specified with the request for output 'OUT' (4 bytes) should be at "
        "least 48 bytes to hold the results"
        == refusal(InternalError, lambda: world.write(ARRAY.tobytes(), room=4))
    )
    for offset in (4096 - SIZE + 4, -4, 1 << 40):
        with pytest.raises(ProtocolError):
            world.write(ARRAY.tobytes(), offset=offset)
    assert 0 == world.read(1024).sum()


def test_a_region_that_is_gone_is_written_no_more(world: World) -> None:
    writable = world.gpus.writable(OWNER, REGION)
    assert writable is not None

    world.gpus.borrowed.remove(OWNER, REGION)

    with pytest.raises(ProtocolError):
        writable.write(wire.Place("OUT", OWNER, REGION, 0, SIZE), ARRAY.tobytes())
    assert world.gpus.writable(OWNER, REGION) is None
    assert {} == world.driver.opened


def test_a_region_that_is_not_what_its_client_said_is_not_opened(world: World) -> None:
    borrowed = world.gpus.borrowed

    with pytest.raises(InvalidArgument, match="failed to open CUDA IPC handle: no such memory"):
        borrowed.add_region(OWNER, REGION + 1, b"0\0" + b"x" * 64, 8)
    with pytest.raises(
        InvalidArgument, match="has 4096 bytes: register it with these, not with 4097"
    ):
        borrowed.add_region(OWNER, REGION + 1, world.handle, 4097)

    assert not borrowed.has(OWNER, REGION + 1)
    assert 1 == len(world.driver.opened)


def test_a_stub_without_a_driver_says_that_it_cannot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(gpu, "_driver", None)
    monkeypatch.setattr(gpu, "_why_not", "")

    with pytest.raises(Unsupported, match="memory of GPUs can only be used where cupy finds one"):
        world.gpus.borrowed.add_region(OWNER, REGION + 1, world.handle, 8)
