"""Clients' memory on GPUs in a frontend, which lends it and touches nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.frontends.tensors.test_payload import World, run, unchecked
from tests.support.scenarios import scenario
from zmqtriton_floor.cache_keys import Keys
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InternalError, InvalidArgument, NotFound
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
from zmqtriton_frontends.inference.admission import Options
from zmqtriton_frontends.inference.client_regions import Regions, RegionSlice, flags_of_inputs

UINT8, STRINGS = BY_NAME["UINT8"].number, BY_NAME["BYTES"].number
SEGMENT = REGIONS_FROM + 1


@pytest.fixture
def regions() -> Iterator[Regions]:
    regions = Regions()
    regions.left = []  # type: ignore[attr-defined]
    regions.on_left = regions.left.append  # type: ignore[attr-defined]
    regions.add(AddRegion(1, "c", 0, 1000, 1, 0), -1)
    yield regions
    regions.close()


def filled(regions: Regions, place: RegionSlice, datatype: int = UINT8) -> RequestBody:
    tensor = Tensor("IN", datatype, [place.size], place)
    return regions.fill(RequestBody("", {}, [], [tensor]))


@pytest.mark.parametrize("datatype", [UINT8, STRINGS])
@scenario(run)
async def test_an_input_is_lent_whatever_its_size_type_and_place(
    world: World, /, regions: Regions, datatype: int
) -> None:
    body = filled(regions, RegionSlice("c", 3, 5), datatype)
    assert UNREAD_STRINGS == flags_of_inputs(body)
    request = unchecked(*body.inputs)

    placed = world.payload.place_now(request)
    assert placed is not None
    world.payload.sent(1, placed)

    assert [Reference(3, SEGMENT, 1, 3, 5)] == [t.data for t in placed.body.inputs]
    regions.remove(1)
    assert [] == regions.left  # type: ignore[attr-defined]
    world.payload.answered(1)
    assert [1] == regions.left  # type: ignore[attr-defined]


def test_an_input_without_bytes_is_no_matter_of_a_gpu(regions: Regions) -> None:
    body = filled(regions, RegionSlice("c", 1000, 0))

    assert 0 == flags_of_inputs(body)
    assert b"" == bytes(body.inputs[0].data)


@scenario(run)
async def test_the_place_of_an_output_is_lent_whatever_its_size(
    world: World, /, regions: Regions
) -> None:
    # even to a request that may be answered before its stub is done
    claim = regions.claim({"O": RegionSlice("c", 990, 4)})
    claim.lends_files = False
    inputs = filled(regions, RegionSlice("c", 0, 1000)).inputs
    request = unchecked(*inputs)._replace(claim=claim)

    placed = world.payload.place_now(request)

    assert placed is not None
    assert [Place("O", 3, SEGMENT, 990, 4)] == placed.body.places
    written = ResponseBody({}, [Tensor("O", UINT8, [4], None)])
    assert [Tensor("O", UINT8, [4], b"")] == claim.store(written).outputs
    placed.take_back()
    claim.give_back()


def test_an_output_that_its_stub_has_not_written_cannot_be_written(regions: Regions) -> None:
    with regions.claim({"O": RegionSlice("c", 0, 4)}) as claim:
        with pytest.raises(InternalError, match="'c' lies on a GPU, where nobody but the model"):
            claim.store(ResponseBody({}, [Tensor("O", UINT8, [4], b"abcd")]))

        empty = Tensor("O", UINT8, [0], b"")
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
        with pytest.raises(InvalidArgument) as refused:
            ask()
        assert text == refused.value.text


def test_a_region_that_is_unknown_has_no_places(regions: Regions) -> None:
    with pytest.raises(NotFound):
        regions.claim({"O": RegionSlice("d", 0, 4)})


@scenario(run)
async def test_what_lies_on_a_gpu_has_no_key(world: World, /, regions: Regions) -> None:
    keys = world.payload.keys = Keys(b"secret")
    inputs = filled(regions, RegionSlice("c", 0, 8)).inputs
    model: Any = SimpleNamespace(is_hashed=True)
    small = Tensor("A", UINT8, [1], b"x")

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
    request = unchecked()._replace(options=Options(deadline_ns=1), copy=copied, cache_key=b"key")

    lending = request.with_claim(claim)

    assert (claim, None, b"") == (lending.claim, lending.copy, lending.cache_key)
    assert not claim.lends_files
    assert [True] == skipped  # which the canary's counts say
    claim.give_back()
