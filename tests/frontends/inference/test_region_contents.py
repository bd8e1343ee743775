"""Large inputs in clients' shared memory on their way to where stubs map them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.frontends.tensors.test_payload import LARGE, World, run
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument, NotFound
from zmqtriton_floor.wire import AddRegion, RequestBody, Tensor
from zmqtriton_frontends.inference.client_regions import Regions, RegionSlice


@contextmanager
def client_region() -> Iterator[tuple[Regions, int]]:
    """A region behind the first 16 bytes of a client's memory, and that memory."""
    descriptor = os.memfd_create("client")
    os.truncate(descriptor, 1 << 20)
    regions = Regions()
    regions.add(AddRegion(1, "r", 16, (1 << 20) - 16), os.dup(descriptor))
    try:
        yield regions, descriptor
    finally:
        regions.close()
        os.close(descriptor)


def filled(regions: Regions, place: RegionSlice, datatype: str = "UINT8") -> list[Any]:
    """Return what a request has for data that lie there."""
    tensor = Tensor("IN", BY_NAME[datatype].number, [place.size], place)
    return [t.data for t in regions.fill(RequestBody("", {}, [], [tensor])).inputs]


def test_strings_are_read_at_once_whatever_their_size() -> None:
    with client_region() as (regions, descriptor):
        os.pwrite(descriptor, LARGE, 16)

        assert [LARGE] == filled(regions, RegionSlice("r", 0, len(LARGE)), "BYTES")


def test_what_lies_in_a_region_is_read_straight_to_its_place() -> None:
    async def test(world: World) -> None:
        with client_region() as (regions, descriptor):
            os.pwrite(descriptor, LARGE, 24)

            [contents] = filled(regions, RegionSlice("r", 8, len(LARGE)))
            body = await world.send(contents)

            [array] = world.seen.open([body.inputs[0].data])
            assert LARGE == array.tobytes()

    run(test)


def test_a_region_cut_short_is_an_error_of_the_request_and_leaves_nothing() -> None:
    async def test(world: World) -> None:
        with client_region() as (regions, descriptor):
            [contents] = filled(regions, RegionSlice("r", 8, len(LARGE)))
            os.ftruncate(descriptor, 100_000)

            with pytest.raises(InvalidArgument, match="smaller than when it was registered"):
                await world.send(contents)

            assert 0 == world.payload.arena.used

    run(test)


def test_a_region_stays_while_room_is_made_for_what_lies_in_it() -> None:
    async def test(world: World) -> None:
        with client_region() as (regions, descriptor):
            os.pwrite(descriptor, LARGE, 16)
            left: list[int] = []
            regions.on_left = left.append
            [contents] = filled(regions, RegionSlice("r", 0, len(LARGE)))
            sending = asyncio.ensure_future(world.send(contents))
            await asyncio.sleep(0)  # it has asked for a segment

            regions.remove(1)

            assert [] == left
            [array] = world.seen.open([(await sending).inputs[0].data])
            assert LARGE == array.tobytes()
            assert [1] == left

    run(test)


def test_a_region_that_has_left_before_the_request_was_sent_is_not_found() -> None:
    async def test(world: World) -> None:
        with client_region() as (regions, _):
            [contents] = filled(regions, RegionSlice("r", 0, len(LARGE)))
            regions.remove(1)

            with pytest.raises(NotFound, match="Unable to find shared memory region: 'r'"):
                await world.send(contents)

            assert 0 == world.payload.arena.used

    run(test)
