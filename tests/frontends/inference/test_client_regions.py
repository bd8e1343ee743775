"""Regions of clients, in memory and on GPUs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.frontends.tensors.test_payload import World, run, unchecked
from tests.support.refusals import refusal
from tests.support.scenarios import scenario
from zmqtriton_floor.cache_keys import Keys
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound, ZmqTritonError
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.wire import (
    UNREAD_STRINGS,
    AddRegion,
    Place,
    Reference,
    RequestBody,
    ResponseBody,
    Tensor,
)
from zmqtriton_frontends.inference.admission import SchedulingOptions
from zmqtriton_frontends.inference.client_regions import Regions, RegionSlice, flags_of_inputs

# ---------------------------------------------------------------------- client regions
# Clients' shared memory in a frontend: what is read and written where, and when it is let go.


UINT8 = BY_NAME["UINT8"].number


SIZE = 64


class Memory:
    """A client's memory, and a region of it behind the first 16 bytes."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("client")
        os.pwrite(self.descriptor, bytes(range(200)), 0)
        self.regions = Regions()
        self.left: list[int] = []
        self.regions.on_left.append(self.left.append)
        self.add()

    def add(self, number: int = 1, name: str = "r") -> None:
        self.regions.add(AddRegion(number, name, 16, SIZE), os.dup(self.descriptor))

    def read(self, *places: RegionSlice) -> list[bytes]:
        tensors = [Tensor(f"I{i}", UINT8, [1], place) for i, place in enumerate(places)]
        return [t.data for t in self.regions.fill(RequestBody("", {}, [], tensors)).inputs]

    def write(self, place: RegionSlice, data: bytes) -> ResponseBody:
        with closing(self.regions.claim({"O": place})) as claim:
            return claim.store(ResponseBody({}, [Tensor("O", UINT8, [len(data)], data)]))


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.regions.close()
    os.close(memory.descriptor)


def test_an_input_is_read_from_its_place(memory: Memory) -> None:
    whole, odd, nothing = memory.read(
        RegionSlice("r", 0, SIZE), RegionSlice("r", 3, 5), RegionSlice("r", SIZE, 0)
    )

    assert bytes(range(16, 80)) == whole
    assert bytes(range(19, 24)) == odd
    assert b"" == nothing


def test_an_input_of_its_own_is_left_alone(memory: Memory) -> None:
    body = RequestBody("7", {"a": 1}, ["O"], [Tensor("I", UINT8, [1], b"x")])

    assert body == memory.regions.fill(body)


def test_other_outputs_are_sent(memory: Memory) -> None:
    response = ResponseBody({}, [Tensor("P", UINT8, [1], b"x")])

    with closing(memory.regions.claim({"O": RegionSlice("r", 0, 4)})) as claim:
        assert response == claim.store(response)


@pytest.mark.parametrize(
    ("place", "error", "text"),
    [
        (RegionSlice("q", 0, 1), NotFound, "Unable to find shared memory region: 'q'"),
        (
            RegionSlice("r", SIZE, 1),
            InvalidArgument,
            "Invalid offset for shared memory region: 'r'",
        ),
        (
            RegionSlice("r", 2**64 - 8, 16),
            InvalidArgument,
            "Invalid offset for shared memory region: 'r'",
        ),
        (
            RegionSlice("r", SIZE - 4, 5),
            InvalidArgument,
            "Invalid offset + byte size for shared memory region: 'r'",
        ),
        (
            RegionSlice("r", 1, 2**64 - 1),
            InvalidArgument,
            "Invalid offset + byte size for shared memory region: 'r'",
        ),
    ],
)
def test_a_place_beyond_the_region_is_refused(
    memory: Memory, place: RegionSlice, error: type[ZmqTritonError], text: str
) -> None:
    if place.size < 2**31:
        assert text == refusal(error, memory.read, place)
    assert text == refusal(error, memory.regions.claim, {"O": place})


def test_a_request_cannot_have_any_amount_of_memory_read(memory: Memory) -> None:
    memory.regions.add(AddRegion(2, "big", 0, 2**40), os.dup(memory.descriptor))

    with pytest.raises(InvalidArgument, match="at most 2147483647"):
        memory.read(*(RegionSlice("big", 0, 2**30) for _ in range(2)))


def test_memory_that_its_client_cut_short_is_an_error(memory: Memory) -> None:
    os.ftruncate(memory.descriptor, 20)

    with pytest.raises(InvalidArgument, match="smaller than when it was registered"):
        memory.read(RegionSlice("r", 0, 8))
    with pytest.raises(InvalidArgument, match="smaller than when it was registered"):
        memory.write(RegionSlice("r", 0, 8), b"x" * 8)

    assert 20 == os.fstat(memory.descriptor).st_size


def test_a_removed_region_is_left_at_once_if_nobody_claims_it(memory: Memory) -> None:
    memory.regions.remove(1)

    assert [1] == memory.left
    with pytest.raises(NotFound):
        memory.read(RegionSlice("r", 0, 1))


def test_a_name_may_come_back_while_the_old_region_is_claimed(memory: Memory) -> None:
    with closing(memory.regions.claim({"O": RegionSlice("r", 0, 4)})):
        memory.regions.remove(1)
        memory.add(number=2)

    assert [1] == memory.left
    assert [bytes([16])] == memory.read(RegionSlice("r", 0, 1))


def test_a_region_that_was_never_known_is_left_already(memory: Memory) -> None:
    memory.regions.remove(9)

    assert [9] == memory.left


# ------------------------------------------------------------------------- gpu regions
# Inputs that a stream's outputs are written over.


LARGE = 1 << 17


@pytest.mark.parametrize(
    ("name", "offset", "is_lent"),
    [
        ("r", 0, False),
        ("r", LARGE - 1, False),
        ("r", LARGE, True),
        ("another name", LARGE // 2, False),
        ("another file", 0, True),
    ],
)
def test_an_input_is_lent_unless_responses_are_written_over_it(
    memory: Memory, name: str, offset: int, is_lent: bool
) -> None:
    other = os.memfd_create("other")
    for descriptor in (memory.descriptor, other):
        os.ftruncate(descriptor, 4 * LARGE)
    for number, (label, descriptor) in enumerate(
        [("r", memory.descriptor), ("another name", memory.descriptor), ("another file", other)]
    ):
        message = AddRegion(10 + number, label, 0, 4 * LARGE, can_be_mapped=1)
        memory.regions.add(message, os.dup(descriptor))
    os.close(other)
    tensor = Tensor("I", UINT8, [LARGE], RegionSlice("r", 0, LARGE))
    inputs = memory.regions.fill(RequestBody("", {}, [], [tensor])).inputs

    with closing(memory.regions.claim({"O": RegionSlice(name, offset, LARGE)})) as claim:
        claim.keep_inputs(inputs)

    assert is_lent == (inputs[0].data.lend(5, None) is not None)


# Clients' memory on GPUs in a frontend, which lends it and touches nothing of it.


_UINT8, STRINGS = BY_NAME["UINT8"].number, BY_NAME["BYTES"].number


SEGMENT = REGIONS_FROM + 1


@pytest.fixture
def regions() -> Iterator[Regions]:
    regions = Regions()
    regions.left = []  # type: ignore[attr-defined]
    regions.on_left.append(regions.left.append)  # type: ignore[attr-defined]
    regions.add(AddRegion(1, "c", 0, 1000, 1, 0), -1)
    yield regions
    regions.close()


def filled(regions: Regions, place: RegionSlice, datatype: int = _UINT8) -> RequestBody:
    return regions.fill(RequestBody("", {}, [], [Tensor("IN", datatype, [place.size], place)]))


@pytest.mark.parametrize("datatype", [_UINT8, STRINGS])
@scenario(run)
async def test_an_input_is_lent_whatever_its_size_type_and_place(
    world: World, /, regions: Regions, datatype: int
) -> None:
    body = filled(regions, RegionSlice("c", 3, 5), datatype)
    assert UNREAD_STRINGS == flags_of_inputs(body)

    placed = world.payload.place_now(unchecked(*body.inputs))
    assert placed is not None
    world.payload.placed[1] = placed

    assert [Reference(3, SEGMENT, 1, 3, 5)] == [t.data for t in placed.body.inputs]
    regions.remove(1)
    assert [] == regions.left  # type: ignore[attr-defined]
    world.payload.answered(1)
    assert [1] == regions.left  # type: ignore[attr-defined]


def test_an_input_without_bytes_is_no_matter_of_a_gpu(regions: Regions) -> None:
    body = filled(regions, RegionSlice("c", 1000, 0))

    assert (0, b"") == (flags_of_inputs(body), bytes(body.inputs[0].data))


@scenario(run)
async def test_the_place_of_an_output_is_lent_whatever_its_size(
    world: World, /, regions: Regions
) -> None:
    # even to a request that may be answered before its stub is done
    claim = regions.claim({"O": RegionSlice("c", 990, 4)})
    claim.lends_files = False
    request = unchecked(*filled(regions, RegionSlice("c", 0, 1000)).inputs)._replace(claim=claim)

    placed = world.payload.place_now(request)

    assert placed is not None
    assert [Place("O", 3, SEGMENT, 990, 4)] == placed.body.places
    written = ResponseBody({}, [Tensor("O", _UINT8, [4], None)])
    assert [Tensor("O", _UINT8, [4], b"")] == claim.store(written).outputs
    placed.take_back()
    claim.close()


def test_an_output_that_its_stub_has_not_written_cannot_be_written(regions: Regions) -> None:
    with closing(regions.claim({"O": RegionSlice("c", 0, 4)})) as claim:
        with pytest.raises(InternalError, match="'c' lies on a GPU, where nobody but the model"):
            claim.store(ResponseBody({}, [Tensor("O", _UINT8, [4], b"abcd")]))

        with pytest.raises(InternalError, match="has sent no data for output 'O'"):
            claim.store(ResponseBody({}, [Tensor("O", _UINT8, [4], None)]))

        empty = Tensor("O", _UINT8, [0], b"")
        assert [empty] == claim.store(ResponseBody({}, [empty])).outputs


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (RegionSlice("c", 1000, 1), "Invalid offset for shared memory region: 'c'"),
        (RegionSlice("c", 999, 2), "Invalid offset + byte size for shared memory region: 'c'"),
    ],
)
def test_nothing_beyond_a_region_is_lent(regions: Regions, place: Any, text: str) -> None:
    for ask in (lambda: filled(regions, place), lambda: regions.claim({"O": place})):
        assert text == refusal(InvalidArgument, ask)


@pytest.mark.parametrize(
    ("options", "copy", "is_hashed", "is_lent"),
    [
        (SchedulingOptions(), None, False, True),
        (SchedulingOptions(deadline_ns=1), None, False, False),
        (SchedulingOptions(), object(), False, False),
        (SchedulingOptions(), None, True, False),
    ],
)
def test_files_are_lent_where_nothing_else_may_answer_or_be_answered(
    *, memory: Memory, options: SchedulingOptions, copy: Any, is_hashed: bool, is_lent: bool
) -> None:
    model: Any = SimpleNamespace(is_hashed=is_hashed)
    request = unchecked()._replace(model=model, options=options, copy=copy, cache_key=b"key")

    with closing(memory.regions.claim({"O": RegionSlice("r", 0, 4)})) as claim:
        lending = request.with_claim(claim)

    assert (is_lent, claim if is_lent else None) == (claim.lends_files, lending.claim)
    assert (copy, b"key") == (lending.copy, lending.cache_key)


@scenario(run)
async def test_what_lies_on_a_gpu_has_no_key(world: World, /, regions: Regions) -> None:
    keys = world.payload.keys = Keys(b"secret")
    inputs = filled(regions, RegionSlice("c", 0, 8)).inputs
    model: Any = SimpleNamespace(is_hashed=True)
    small = Tensor("A", _UINT8, [1], b"x")

    request = unchecked(small, *inputs, small)._replace(model=model)
    assert b"" == keys.of(request.body)
    placed = world.payload.place_now(request)

    assert placed is not None
    assert b"" == placed.cache_key
    assert [b"x", Reference(3, SEGMENT, 1, 0, 8), b"x"] == [t.data for t in placed.body.inputs]
    placed.take_back()


def test_the_answer_to_a_request_on_a_gpu_is_nobody_else_s(regions: Regions) -> None:
    claim = regions.claim({"O": RegionSlice("c", 0, 4)})
    skipped: list[bool] = []
    copied: Any = SimpleNamespace(skip=lambda: skipped.append(True))
    request = unchecked()._replace(
        options=SchedulingOptions(deadline_ns=1), copy=copied, cache_key=b"key"
    )

    lending = request.with_claim(claim)

    assert (claim, None, b"") == (lending.claim, lending.copy, lending.cache_key)
    assert not claim.lends_files
    assert [True] == skipped  # which the canary's counts say
    claim.close()
