"""Large inputs in clients' shared memory on their way to where stubs map them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.frontends.tensors.test_payload import LARGE, World, run, unchecked
from tests.support.scenarios import scenario
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument, NotFound
from zmqtriton_floor.mappings import REGIONS_FROM
from zmqtriton_floor.wire import AddRegion, Place, Reference, RequestBody, Tensor
from zmqtriton_frontends.inference.client_regions import Regions, RegionSlice
from zmqtriton_frontends.tensors import payload


@pytest.fixture
def can_be_mapped() -> bool:
    return False


@pytest.fixture
def left() -> list[int]:
    """The regions that have left."""
    return []


@pytest.fixture
def regions(client_memory: int, can_be_mapped: bool, left: list[int]) -> Iterator[Regions]:
    """A region behind the first 16 bytes."""
    regions = Regions()
    regions.on_left.append(left.append)
    regions.add(AddRegion(1, "r", 16, (1 << 20) - 16, int(can_be_mapped)), os.dup(client_memory))
    yield regions
    regions.close()


#: For what is lent to stubs.
MAPPED = pytest.mark.parametrize("can_be_mapped", [True])


def filled(regions: Regions, place: RegionSlice, datatype: str = "UINT8") -> list[Any]:
    """Return what a request has for data that lie there."""
    tensor = Tensor("IN", BY_NAME[datatype].number, [place.size], place)
    return [t.data for t in regions.fill(RequestBody("", {}, [], [tensor])).inputs]


def test_strings_are_read_at_once_whatever_their_size(regions: Regions, client_memory: int) -> None:
    os.pwrite(client_memory, LARGE, 16)

    assert [LARGE] == filled(regions, RegionSlice("r", 0, len(LARGE)), "BYTES")


@scenario(run)
async def test_a_region_cut_short_is_an_error_of_the_request_and_leaves_nothing(
    world: World, /, regions: Regions, client_memory: int
) -> None:
    [contents] = filled(regions, RegionSlice("r", 8, len(LARGE)))
    os.ftruncate(client_memory, 100_000)

    with pytest.raises(InvalidArgument, match="smaller than when it was registered"):
        await world.send(contents)

    assert 0 == world.payload.arena.used


@scenario(run)
async def test_a_region_stays_while_room_is_made_for_what_lies_in_it(
    world: World,
    /,
    regions: Regions,
    client_memory: int,
    left: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload, "COPY_BYTES", len(LARGE) // 3)  # it is read in parts
    os.pwrite(client_memory, LARGE, 16)
    [contents] = filled(regions, RegionSlice("r", 0, len(LARGE)))
    sending = asyncio.ensure_future(world.send(contents))
    await asyncio.sleep(0)  # it has asked for a segment

    regions.remove(1)

    assert [] == left
    [array] = world.seen.open([(await sending).inputs[0].data])
    assert LARGE == array.tobytes()
    assert [1] == left


@scenario(run)
async def test_a_region_that_has_left_before_the_request_was_sent_is_not_found(
    world: World, /, regions: Regions
) -> None:
    [contents] = filled(regions, RegionSlice("r", 0, len(LARGE)))
    regions.remove(1)

    with pytest.raises(NotFound, match="Unable to find shared memory region: 'r'"):
        await world.send(contents)

    assert 0 == world.payload.arena.used


# ------------------------------------------------- lent to stubs, which map them


def inputs_of(contents: list[Any]) -> list[Tensor]:
    number = BY_NAME["UINT8"].number
    return [Tensor(f"I{i}", number, [len(data)], data) for i, data in enumerate(contents)]


@MAPPED
@scenario(run)
async def test_a_region_that_may_be_mapped_is_lent_until_the_answer(
    world: World, /, regions: Regions, left: list[int]
) -> None:

    body = await world.send(*filled(regions, RegionSlice("r", 48, len(LARGE))))

    reference = Reference(3, REGIONS_FROM + 1, 1, 64, len(LARGE))
    assert [reference] == [tensor.data for tensor in body.inputs]
    assert 0 == world.payload.arena.used
    regions.remove(1)
    assert [] == left
    world.payload.answered(1)
    assert [1] == left


@MAPPED
@scenario(run)
async def test_what_numpy_would_see_across_words_is_copied(
    world: World, /, regions: Regions
) -> None:
    body = await world.send(*filled(regions, RegionSlice("r", 1, len(LARGE))))

    assert [3] == [tensor.data.owner for tensor in body.inputs]
    assert body.inputs[0].data.segment < REGIONS_FROM


@MAPPED
@scenario(run)
async def test_neighbours_on_one_page_are_one_block(world: World, /, regions: Regions) -> None:
    places = [(48, 100_032), (100_080, 100_032), (400_048, 100_032)]
    slices = [RegionSlice("r", offset, size) for offset, size in places]
    body = await world.send(*[data for place in slices for data in filled(regions, place)])

    assert [1, 1, 3] == [tensor.data.block for tensor in body.inputs]


@MAPPED
@scenario(run)
async def test_a_region_that_is_too_short_by_now_is_not_lent(
    world: World, /, regions: Regions, client_memory: int
) -> None:
    contents = filled(regions, RegionSlice("r", 48, len(LARGE)))
    os.ftruncate(client_memory, 100_000)

    with pytest.raises(InvalidArgument, match="smaller than when it was registered"):
        await world.send(*contents)

    regions.remove(1)
    with pytest.raises(NotFound):
        await world.send(*contents)


@MAPPED
@pytest.mark.parametrize(
    ("places", "lent"),
    [
        ({"A": (500_000, 100_000)}, ["A"]),
        ({"A": (500_000, 100_000), "B": (0, 65_536)}, ["A"]),  # which is small
        ({"A": (200_047, 100_000), "B": (200_048, 100_000)}, ["B"]),  # the input is before it
    ],
)
@scenario(run)
async def test_places_of_large_outputs_are_lent_unless_they_overlap_an_input(
    world: World,
    /,
    places: dict[str, tuple[int, int]],
    lent: list[str],
    regions: Regions,
    client_memory: int,
    left: list[int],
) -> None:
    # the same file by another name
    regions.add(AddRegion(2, "s", 16, 1 << 19, 1), os.dup(client_memory))
    inputs = inputs_of(filled(regions, RegionSlice("s", 48, 200_000)))
    claim = regions.claim({name: RegionSlice("r", *place) for name, place in places.items()})
    placed = await world.payload.place(unchecked(*inputs)._replace(claim=claim))
    world.payload.placed[1] = placed

    expected = [Place(o, 3, REGIONS_FROM + 1, 16 + places[o][0], places[o][1]) for o in lent]
    assert expected == placed.body.places
    regions.remove(1)
    claim.close()
    assert [] == left
    world.payload.answered(1)
    assert [1] == left


@MAPPED
@scenario(run)
async def test_a_request_with_nothing_but_a_place_is_placed_too(
    world: World, /, regions: Regions
) -> None:
    claim = regions.claim({"O": RegionSlice("r", 0, 100_000)})

    placed = world.payload.place_now(unchecked()._replace(claim=claim))

    assert placed is not None
    assert [Place("O", 3, REGIONS_FROM + 1, 16, 100_000)] == placed.body.places
    placed.take_back()
    claim.close()
