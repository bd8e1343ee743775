"""Claims of stubs about memory: believed of their own and of what they were given."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import S2, S3, BrokerHarness, F, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_floor.wire import Block, Reference

#: Where an input lies, in the memory of whoever asks.
GIVEN = Reference(F, 1, 7, 8192, 100_000)
OWN = Reference(S, 1, 1, 0, 100_000)
#: Each is another's: one field differs from what was given, or reaches beyond it.
FORGED = {
    "owner": GIVEN._replace(owner=S2),
    "segment": GIVEN._replace(segment=2),
    "block": GIVEN._replace(block=8),
    "before": GIVEN._replace(offset=8191),
    "behind": GIVEN._replace(offset=8193),
    "length": GIVEN._replace(size=100_001),
    "wraps": GIVEN._replace(offset=2**63 - 1, size=2**63 - 1),
}


def _block(reference: Reference) -> Block:
    return Block(*reference[:3])


def _tensor(reference: Any) -> wire.Tensor:
    return wire.Tensor("T", 11, [25_000], reference)


def _body_of(*references: Any) -> bytes:
    return wire.encode_body(wire.RequestBody("", {}, [], list(map(_tensor, references))))


def _answered(*references: Any) -> bytes:
    return wire.encode_body(wire.ResponseBody({}, list(map(_tensor, references))))


@pytest.fixture
def world() -> BrokerHarness:
    """S executes a request with GIVEN; S2 runs another model."""
    world = BrokerHarness.serving(S)
    world.add_generation(2, config={"name": "other"})
    world.add_stub(S2, 2)
    world.infer(F, request(1), body=_body_of(GIVEN))
    return world


def _answer(
    world: BrokerHarness, body: bytes, *blocks: Block, flags: int = wire.FINAL
) -> wire.Reply:
    [work] = world.finish_batch(S, answer=(body, [*blocks]), flags=flags)
    [reply] = world.replies[work.peer, work.id]
    return reply


def _ask(
    world: BrokerHarness, *references: Reference, flags: int = wire.HAS_REFERENCES, own_id: int = 5
) -> bool:
    """Return True if such a question is passed on."""
    row = request(own_id, 0, model="other", version=-1, flags=flags)
    world.infer(S, row, body=_body_of(*references))
    return not world.finals(S, own_id)


@pytest.fixture
def keeping() -> BrokerHarness:
    """S executes a request with GIVEN, whose asker keeps that until it has read the answer."""
    world = BrokerHarness.serving(S)
    world.expect_stub(S2)
    world.infer(F, request(1, flags=wire.KEEPS_INPUTS), body=_body_of(GIVEN))
    return world


@pytest.mark.parametrize("reference", [GIVEN, GIVEN._replace(offset=8200, size=64)])
def test_what_the_asker_keeps_anyway_is_not_leased_to_it(
    keeping: BrokerHarness, reference: Reference
) -> None:
    reply = _answer(keeping, _answered(reference), _block(reference))

    assert wire.FINAL | wire.HAS_REFERENCES | wire.FORWARDED == reply.flags
    assert [] == keeping.core.blocks.leases.release(F, [_block(reference)])


@pytest.mark.parametrize("named", FORGED)
def test_an_asker_that_keeps_its_memory_is_shown_no_other(
    keeping: BrokerHarness, named: str
) -> None:
    forged = FORGED[named]

    reply = _answer(keeping, _answered(forged), _block(forged))

    assert (InternalError.number, wire.FINAL) == (reply.code, reply.flags)


@pytest.mark.parametrize("field", FORGED)
def test_a_response_that_refers_to_what_was_not_given_is_an_error(
    world: BrokerHarness, field: str
) -> None:
    forged = FORGED[field]

    reply = _answer(world, _answered(forged), _block(forged))

    assert (InternalError.number, wire.FINAL) == (reply.code, reply.flags)
    assert "the model referenced shared memory that it has no access to" == reply.text
    assert [b""] == world.reply_bodies[F, 1]
    assert ({}, 0) == (world.leased_blocks, world.core.blocks.leases.count)
    assert 1 == world.core.blocks.forged


def test_a_response_may_not_refer_to_what_it_does_not_name(world: BrokerHarness) -> None:
    assert InternalError.number == _answer(world, _answered(OWN, GIVEN), _block(OWN)).code
    # What is its own nobody reads any more.
    assert {S: [_block(OWN)]} == world.released_blocks


def test_that_its_references_were_checked_no_stub_can_say(world: BrokerHarness) -> None:
    reply = _answer(world, _answered(FORGED["owner"]), flags=wire.FINAL | wire.HAS_REFERENCES)

    assert wire.FINAL == reply.flags


@pytest.mark.parametrize(("offset", "size"), [(1, 100_000), (0, 100_001), (1 << 62, 100_000)])
def test_of_what_is_leased_only_what_was_told_may_be_passed_on(
    world: BrokerHarness, offset: int, size: int
) -> None:
    answered = Reference(S2, 1, 1, 0, 100_000)
    block = _block(answered)
    _ask(world)
    world.finish_batch(S2, answer=(_answered(answered), [block]))

    assert _ask(world, answered._replace(offset=500, size=99_500), own_id=6)
    assert not _ask(world, answered._replace(offset=offset, size=size), own_id=7)

    world.core.blocks.release(S, [block])
    # what nobody holds would only grow
    assert not world.core.blocks.leases._extents
    assert not _ask(world, answered, own_id=8)


@pytest.mark.parametrize("field", FORGED)
def test_a_question_that_refers_to_what_was_not_given_is_refused(
    world: BrokerHarness, field: str
) -> None:
    assert not _ask(world, FORGED[field])

    assert (
        "the model referenced shared memory that it has no access to" == world.finals(S, 5)[0].text
    )
    assert 1 == world.core.blocks.forged


@pytest.mark.parametrize("field", ["owner", "segment", "block"])
def test_what_was_not_given_cannot_be_leased(world: BrokerHarness, field: str) -> None:
    world.core.grant_lease(S, wire.Lease([_block(FORGED[field])]))

    blocks = world.core.blocks
    assert ({}, 0, 1) == (world.core.outbox.leases, blocks.leases.count, blocks.forged)


# ------------------------------------------------------- what no model is accused of
# Memory of the dead, and what an earlier broker has given.


#: A response of S3, which S has kept.
KEPT = Reference(S3, 1, 1, 0, 100_000)
GONE = (Unavailable.number, "the memory of a tensor is gone with the process that owned it")


def test_a_question_about_memory_that_is_gone_is_refused_without_an_accusation(
    world: BrokerHarness,
) -> None:
    world.add_stub(S3, 2)
    world.core.blocks.leases.lease(S, [_block(KEPT)])
    world.kill_peer(S3)
    world.core.blocks.release(S, [_block(KEPT)])  # no other process holds it
    world.tick(0)

    assert not _ask(world, OWN, KEPT)

    [reply] = world.finals(S, 5)
    assert (GONE, 0) == ((reply.code, reply.text), world.core.blocks.forged)


def _follow(*received: tuple[int, int], held: tuple[Block, ...] = ()) -> BrokerHarness:
    """Return the next broker, to which all have reported; S has these requests and leases."""
    world = BrokerHarness.serving(epoch=2)
    world.add_generation(2, config={"name": "other"})
    world.add_stub(S, received=[wire.RequestKey(*key) for key in received])
    world.add_stub(S2, 2)
    world.core.recovery.await_lease_reports()
    for serial, blocks in ((F, ()), (S, held), (S2, ())):
        world.core.recovery.take_held_blocks(serial, wire.HeldBlocks([*blocks], 1))
    assert world.core.blocks.settled_epoch == 2
    return world


def test_an_input_may_be_passed_on_though_its_request_has_not_been_repeated_yet() -> None:
    world = _follow((F, 1))

    assert _ask(world, GIVEN)

    world.infer(F, request(1, flags=wire.RESENT), body=_body_of(GIVEN))
    assert _ask(world, GIVEN, own_id=6)
    assert not _ask(world, FORGED["block"], own_id=7)
    assert 1 == world.core.blocks.forged
