"""An answer in the memory of its own request, which is kept without a lease until it is read."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from tests.frontends.tensors.test_payload import LARGE, World, run
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.wire import Reference, ResponseBody, Tensor, decode_response


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Keep what is in a cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _place(world: World, own_id: int) -> Reference:
    [tensor] = (await world.send(LARGE, own_id=own_id)).inputs
    reference: Reference = tensor.data
    return reference


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
    assert 0 == world.payload.arena.used
    assert [] == world.released


@scenario(run)
async def test_an_answer_that_nobody_wants_keeps_nothing(world: World, /) -> None:
    await _place(world, 7)

    kept = world.payload.keep(7)
    assert 1 == world.payload.arena.used
    del kept

    assert 0 == world.payload.arena.used
    assert world.payload.keep(7) is None


@scenario(run)
async def test_an_answer_in_the_memory_of_another_request_is_an_error(world: World, /) -> None:
    first, _ = await _place(world, 7), await _place(world, 8)

    with pytest.raises(ProtocolError, match="not its request's"):
        world.payload.open_now(_response(first), world.payload.keep(8))

    assert 1 == world.payload.arena.used
    assert [] == world.released


@scenario(run)
async def test_the_next_broker_hears_nothing_of_it_and_frees_nothing(world: World, /) -> None:
    answer = _response(await _place(world, 7))
    response = world.payload.open_now(answer, world.payload.keep(7))

    [held] = world.payload.change_broker([])
    world.payload.arena.leases.end_doubted()

    assert [] == held.blocks
    assert 1 == world.payload.arena.used
    del response
    assert 0 == world.payload.arena.used


@scenario(run)
async def test_an_answer_for_which_there_is_no_room_keeps_nothing(world: World, /) -> None:
    reference = await _place(world, 7)
    world.payload.mappings.remove(3, reference.segment)
    answer = world.payload.open(_response(reference), world.payload.keep(7))
    opening = asyncio.ensure_future(answer)

    await world.find_no_room(opening)

    # The error is there still, and knows the frames of all that failed.
    assert "a tensor cannot be read: Cannot allocate memory" == str(opening.exception())
    assert 0 == world.payload.arena.used
    assert [] == world.released


@scenario(run)
async def test_the_error_of_a_response_without_room_stays_for_nobody(
    world: World, /, no_collections: None
) -> None:
    response = decode_response(world.respond(LARGE))
    opening = asyncio.ensure_future(world.payload.open(response))

    await world.find_no_room(opening)
    error = opening.exception()
    assert isinstance(error, Unavailable)
    seen = weakref.ref(error)
    del opening, error
    await asyncio.sleep(0)

    assert seen() is None
