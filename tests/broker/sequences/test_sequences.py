"""Sequences: slots, batches, ends and losses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.sequence_world import (
    BODY,
    IDLE_NS,
    S2,
    F,
    S,
    SequenceHarness,
    must_start,
    sequence_config,
    stateful,
)
from tests.broker.world import request
from zmqtriton.broker.requests.recovery import LEFTOVER_NS
from zmqtriton.broker.sequences.batcher import MAX_CAUSES, LostSequences
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument, Unavailable
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START


# --------------------------------------------------------------- admission
@pytest.fixture
def world() -> SequenceHarness:
    """A model with one slot, and a stub of it."""
    return SequenceHarness(sequence_config())


@pytest.fixture
def wide() -> SequenceHarness:
    """One with four slots."""
    return SequenceHarness(sequence_config(slots=4))


@pytest.fixture
def begun(world: SequenceHarness) -> SequenceHarness:
    """Sequence 5 has begun, and nothing of it is under way."""
    world.send(5, START)
    world.finish_batch(S)
    return world


@pytest.mark.row("E70")
@pytest.mark.parametrize("sequence", [0, ""])
def test_a_request_of_no_sequence_is_refused(world: SequenceHarness, sequence: int | str) -> None:
    own_id = world.send(sequence, START)

    text = "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
    assert (InvalidArgument.number, text) == world.error(own_id)
    assert 0 == world.core.generations.schedulers[1].pending


@pytest.mark.row("E70")
@pytest.mark.parametrize("sequence", [5, "five"])
def test_a_sequence_begins_with_start_and_is_unknown_after_its_end(
    world: SequenceHarness, sequence: int | str
) -> None:
    before = world.send(sequence)
    world.send(sequence, START)
    world.finish_batch(S)
    world.send(sequence, END)
    after_end = world.send(sequence)
    world.finish_batch(S)
    after_answer = world.send(sequence)

    refused = (InvalidArgument.number, must_start(sequence))
    assert [refused] * 3 == [world.error(i) for i in (before, after_end, after_answer)]


@pytest.mark.row("E70")
def test_more_than_one_inference_in_a_request_is_refused(wide: SequenceHarness) -> None:
    own_id = wide.send(5, START, batch_size=2)

    text = "must specify batch-size 1 due to requirements of sequence batcher"
    assert f"inference request to model 'm' {text}" == wide.error(own_id)[1]


@pytest.mark.row("E71")
def test_a_start_amid_a_sequence_goes_on_in_its_slot_with_a_warning(world: SequenceHarness) -> None:
    world.send(5, START)
    world.core.outbox.warnings = []

    requests = [request(98, correlation=5), request(99, correlation=5, flags=START)]
    world.core.infer(F, requests, [BODY, BODY], world.now)

    assert [
        "sequence 5 for model 'm' has a conflict. The previous sequence did not end before this "
        "sequence start. Previous sequence will be terminated early."
    ] == world.core.outbox.warnings
    world.drain_outbox()
    world.finish_batch(S)
    world.finish_batch(S)
    assert [99] == world.executing_ids()


# ------------------------------------------------------------------- slots
def _inputs(world: SequenceHarness, position: int) -> dict[str, bytes]:
    work = world.batched_requests[S][position]
    body = wire.decode_request(world.bodies[work.peer, work.id])
    return {tensor.name: tensor.data for tensor in body.inputs}


@pytest.mark.row("E72")
def test_control_tensors_follow_what_a_request_brings(world: SequenceHarness) -> None:
    world.send(7, START)
    first = wire.decode_request(world.bodies[F, 1])
    world.finish_batch(S)
    world.send(7, END)

    assert [("I", [1, 2]), ("S", [1, 1]), ("R", [1, 1]), ("E", [1, 1]), ("C", [1, 1])] == [
        (tensor.name, tensor.shape) for tensor in first.inputs
    ]
    assert [b"\1\0\0\0", b"\0\0\x80\x3f", b"\0", b"\7" + bytes(7)] == [
        tensor.data for tensor in first.inputs[1:]
    ]
    assert (b"\0\0\0\0", b"\1") == (_inputs(world, 0)["S"], _inputs(world, 0)["E"])


@pytest.mark.row("E72")
def test_sequences_keep_their_places_in_the_batch_and_empty_ones_are_filled(
    wide: SequenceHarness,
) -> None:
    wide.send(7, START)
    for sequence in (8, 9):  # while the instance executes
        wide.send(sequence, START)
    wide.finish_batch(S)
    assert ([2, 3], [0, 2, 3]) == ([i for i in wide.executing_ids() if i], wide.executing_ids())

    wide.finish_batch(S)

    assert [0, 0, wide.send(9)] == wide.executing_ids()
    assert [wire.PADDING] * 2 == [work.flags for work in wide.batched_requests[S][:2]]
    assert {"I": b"", "S": bytes(4), "R": bytes(4), "E": b"\0", "C": bytes(8)} == _inputs(wide, 0)


def test_a_batch_waits_until_enough_slots_are_ready_or_for_its_delay() -> None:
    direct = {"minimum_slot_utilization": 0.5, "max_queue_delay_microseconds": "1000"}
    world = SequenceHarness(sequence_config(slots=4, direct=direct))

    world.send(1, START)
    assert [] == world.executing_ids()
    world.send(2, START)
    assert [1, 2] == world.executing_ids()
    world.finish_batch(S)

    world.send(2)
    assert world.core.due_ns is not None
    world.tick(1_000_000)
    assert [0, 3] == world.executing_ids()


# ----------------------------------------------------------- order, backlog
@pytest.mark.row("E77")
def test_requests_of_a_sequence_are_executed_one_by_one_and_in_order(wide: SequenceHarness) -> None:
    sent = [wide.send(5, START), wide.send(5), wide.send(5), wide.send(5, END)]

    for own_id in sent:
        assert [own_id] == wide.executing_ids()
        wide.finish_batch(S)

    assert [1] * 4 == [len(wide.finals(F, i)) for i in sent]


@pytest.mark.row("E74")
def test_a_sequence_waits_for_a_slot_with_all_that_it_sends(begun: SequenceHarness) -> None:
    first, second = begun.send(6, START), begun.send(6, END)
    assert [] == begun.executing_ids()

    for own_id in (begun.send(5, END), first, second):
        assert [own_id] == begun.executing_ids()
        begun.finish_batch(S)


@pytest.mark.row("E74")
def test_a_sequence_that_is_idle_for_too_long_loses_its_slot(world: SequenceHarness) -> None:
    world.send(5, START)
    waiting = world.send(6, START)
    world.tick(2 * IDLE_NS)  # what is executed is not idle
    world.finish_batch(S)

    world.tick(IDLE_NS - 1)
    assert [] == world.executing_ids()
    world.tick(1)

    assert [waiting] == world.executing_ids()
    assert (InvalidArgument.number, must_start(5)) == world.error(world.send(5))


def test_a_wait_that_is_over_wakes_nobody(world: SequenceHarness) -> None:
    world.send(5, START | END)
    world.send(6, START, timeout_us=1000)
    batcher = world.core.generations.schedulers[1].sequences
    assert batcher is not None
    waiting_until = batcher.due_ns

    world.finish_batch(S)

    assert waiting_until == world.now + 1_000_000
    assert waiting_until != batcher.due_ns


@pytest.mark.row("E74")
def test_a_sequence_without_a_slot_waits_no_longer_than_its_requests_may(
    world: SequenceHarness,
) -> None:
    world.send(5, START)

    first = world.send(6, START)
    second = world.send(6, timeout_us=1000)
    other = world.send(7, START)
    world.tick(1_000_000)

    refused = (Unavailable.number, "timeout of the corresponding sequence has been expired")
    assert [refused] * 2 == [world.error(first), world.error(second)]
    assert (InvalidArgument.number, must_start(6)) == world.error(world.send(6))
    world.finish_batch(S)
    world.tick(IDLE_NS)
    assert [other] == world.executing_ids()


def test_a_sequence_that_has_its_slot_is_not_refused_with_one_that_waited(
    world: SequenceHarness,
) -> None:
    world.send(5, START | END)
    world.send(6, START, timeout_us=2000)
    later, other = world.send(6), world.send(7, START, timeout_us=1000)
    world.finish_batch(S)

    world.tick(3_000_000)  # both times have come; the one that waits is the first of them

    assert Unavailable.number == world.error(other)[0]
    world.finish_batch(S)
    assert [later] == world.executing_ids()


# ---------------------------------------------------------------- cancelled
@pytest.mark.row("E67")
def test_with_a_cancelled_request_all_that_wait_in_its_sequence_are_cancelled(
    world: SequenceHarness,
) -> None:
    world.send(5, START)
    ids = [world.send(5) for _ in range(3)]

    world.cancel(F, ids[1])

    assert ["request was cancelled"] * 3 == [world.error(i)[1] for i in ids]
    world.finish_batch(S)
    assert [] == world.executing_ids()
    code, text = world.error(world.send(5))
    assert (InvalidArgument.number, True) == (code, text.startswith(must_start(5)))
    assert [world.send(5, START)] == world.executing_ids()


def test_after_a_cancelled_successor_the_next_still_waits_for_the_first() -> None:
    world = SequenceHarness(sequence_config(slots=2))
    world.send(5, START | END)
    world.cancel(F, world.send(5, START | END))

    third = world.send(5, START)

    assert [1] == world.executing_ids()
    world.finish_batch(S)
    assert [third] == world.executing_ids()


# --------------------------------------------------------------------- lost
def test_after_a_broker_death_what_is_asked_again_is_refused_with_the_cause() -> None:
    world = SequenceHarness(sequence_config(), epoch=2)

    resent = world.send(5, START | wire.RESENT)
    later = world.send(5)
    new = world.send(6, START)

    assert (Unavailable.number, "the broker died while the sequence was going on") == world.error(
        resent
    )
    assert Unavailable.number == world.error(later)[0]
    assert world.error(later)[1].endswith("the broker died while the sequence was going on")
    assert [new] == world.executing_ids()


def test_a_model_that_is_loaded_long_after_a_broker_death_has_lost_no_sequence() -> None:
    world = SequenceHarness(sequence_config(), epoch=2)
    world.core.peers[F].has_resent = True
    for _ in range(3):
        world.tick(LEFTOVER_NS)

    world.add_generation(2, config=sequence_config())
    world.add_stub(S2, 2)

    assert (InvalidArgument.number, must_start(7)) == world.error(world.send(7, generation=2))


# ------------------------------------------------------------------- oldest
def _oldest(**strategy: Any) -> dict[str, Any]:
    return sequence_config(slots=4, direct=None, oldest={"max_candidate_sequences": 2, **strategy})


@pytest.mark.row("E73")
def test_the_oldest_requests_of_candidates_share_a_batch_without_fillers() -> None:
    world = SequenceHarness(_oldest())
    world.send(1, START)
    second, third = world.send(2, START), world.send(3, START)
    world.finish_batch(S)
    assert [second] == world.executing_ids()  # the third sequence is no candidate

    end = world.send(1, END)
    world.finish_batch(S)
    assert [end] == world.executing_ids()
    world.finish_batch(S)
    assert [third] == world.executing_ids()


@pytest.mark.row("E73")
def test_a_batch_of_the_oldest_waits_for_its_preferred_size() -> None:
    world = SequenceHarness(_oldest(preferred_batch_size=[2], max_queue_delay_microseconds="1000"))

    first = world.send(1, START)
    world.send(1)
    assert [] == world.executing_ids()

    assert [first, world.send(2, START)] == world.executing_ids()
    world.finish_batch(S)
    assert [] == world.executing_ids()
    world.tick(1_000_000)
    assert 1 == len(world.executing_ids())


@pytest.mark.row("E73")
def test_the_oldest_are_answered_in_their_order_whatever_is_asked_for() -> None:
    world = SequenceHarness(_oldest(preserve_ordering=True))
    own_ids = []
    for sequence, flags in ((1, START), (2, START), (1, 0), (2, 0)):
        world.now += 1
        own_ids.append(world.send(sequence, flags))

    for _ in own_ids:
        if world.batched_requests.get(S):
            world.finish_batch(S)

    assert [(F, own_id) for own_id in own_ids] == list(world.replies)


# ------------------------------------------------------------------- states
def _over(world: SequenceHarness, serial: int = S) -> list[int | str]:
    """The sequences that a stub was told are over; takes those words from what it has."""
    works = world.batched_requests.get(serial, [])
    world.batched_requests[serial] = [work for work in works if not work.flags & wire.SEQUENCE_OVER]
    return [work.correlation for work in works if work.flags & wire.SEQUENCE_OVER]


@pytest.mark.row("E75")
def test_a_stub_that_keeps_states_is_told_when_a_sequence_has_ended() -> None:
    world = SequenceHarness(stateful())
    world.send(5, START)
    world.finish_batch(S)
    world.send("five", START | END)
    assert [] == _over(world)
    world.finish_batch(S)

    assert ["five"] == _over(world)
    world.send(5, END)
    world.finish_batch(S)
    assert [5] == _over(world)


@pytest.mark.row("E75")
def test_it_is_told_so_of_those_that_were_idle_or_cancelled_too() -> None:
    world = SequenceHarness(stateful())
    world.send(5, START)
    world.send(6, START)
    waiting = world.send(6)
    world.finish_batch(S)
    world.cancel(F, waiting)
    world.finish_batch(S)
    cancelled = _over(world)

    world.tick(IDLE_NS)

    assert ([6], [5]) == (cancelled, _over(world))


def test_where_there_is_no_sequence_nothing_becomes_due(world: SequenceHarness) -> None:
    scheduler = world.core.generations.schedulers[1]

    assert scheduler.sequences is not None
    assert (0, None) == (scheduler.sequences.due_ns, world.core.due_ns)


# ------------------------------------------------------------------- the last sequences
#: Retired at the end of the server: all models.
ALL = 0


def _said_over(world: SequenceHarness) -> int:
    """Return how often the broker has said that none is open."""
    world.tick(0)
    return world.supervisor_messages.count(wire.Drained(ALL))


@pytest.mark.row("E78")
def test_an_open_sequence_goes_on_until_its_end_has_come(begun: SequenceHarness) -> None:
    begun.retire(ALL)

    assert ([begun.send(5)], 0) == (begun.executing_ids(), _said_over(begun))
    begun.finish_batch(S)

    assert ([begun.send(5, END)], 1) == (begun.executing_ids(), _said_over(begun))
    begun.finish_batch(S)
    assert 1 == _said_over(begun), "it is said once"


@pytest.mark.row("E78")
def test_an_idle_sequence_is_waited_for_no_longer_than_it_may_be_idle(
    begun: SequenceHarness,
) -> None:
    begun.retire(ALL)
    begun.tick(IDLE_NS - 1)
    assert 0 == _said_over(begun)

    begun.tick(1)

    assert 1 == _said_over(begun)


def test_one_that_is_lost_with_its_stub_is_not_waited_for(begun: SequenceHarness) -> None:
    begun.retire(ALL)

    begun.kill_peer(S)

    assert 1 == _said_over(begun)


# ------------------------------------------------------------------- floods
MANY = 12_000


def _flood(world: SequenceHarness, count: int = MANY) -> list[int]:
    return [world.send(number, START) for number in range(1, count + 1)]


def _kept(world: SequenceHarness) -> int:
    """Return what the broker keeps of sequences and requests."""
    sequences = world.core.generations.schedulers[1].sequences
    assert sequences is not None
    # all that would only grow
    waiting = len(sequences._left)
    waiting += len(sequences.assignment._backlog) + len(sequences.assignment._expiries)
    return (
        len(sequences._sequences)
        + len(sequences._idle)
        + waiting
        + len(world.core.peers[F].requests)
    )


@pytest.mark.slow
def test_each_gets_its_slot_when_those_before_it_have_been_idle(wide: SequenceHarness) -> None:
    ids = _flood(wide, 2000)
    answered = 0

    while answered < len(ids):
        began = [work for work in wide.finish_batch(S) if work.id < FIRST_PADDING_ID]
        assert 1 <= len(began) <= 4
        answered += len(began)
        wide.tick(IDLE_NS + 1)

    assert all(not final.code for own_id in ids for final in wide.finals(F, own_id))
    assert 0 == _kept(wide)


@pytest.mark.slow
def test_nothing_is_kept_of_those_whose_clients_leave(wide: SequenceHarness) -> None:
    wide.cancel(F, *_flood(wide))
    wide.finish_batch(S)
    wide.tick(IDLE_NS + 1)

    assert 0 == _kept(wide)
    assert [wide.send(1, START)] == wide.executing_ids()


@pytest.mark.slow
def test_those_that_wait_too_long_are_refused_and_nothing_is_kept(world: SequenceHarness) -> None:
    ids = [world.send(number, START, timeout_us=1000) for number in range(1, MANY + 1)]

    world.tick(2_000_000)

    refused = [own_id for own_id in ids if world.finals(F, own_id)]
    assert MANY - 1 == len(refused)
    assert {Unavailable.number} == {world.error(own_id)[0] for own_id in refused}
    world.finish_batch(S)
    world.tick(IDLE_NS + 1)
    assert 0 == _kept(world)


@pytest.mark.slow
def test_beyond_the_bound_of_the_model_they_are_refused_at_once_and_counted() -> None:
    config = {**sequence_config(), "parameters": {"max_requests": {"string_value": "100"}}}
    world = SequenceHarness(config)

    refused = [own_id for own_id in _flood(world) if world.finals(F, own_id)]
    assert MANY - 100 == len(refused)
    code, text = world.error(refused[0])
    assert (Unavailable.number, True) == (code, text.endswith("Exceeds maximum queue size"))
    [row] = world.statistics()["model_stats"]
    assert MANY - 100 == int(row["inference_stats"]["fail"]["count"])


@pytest.mark.slow
def test_of_those_that_are_lost_only_so_many_are_remembered() -> None:
    world = SequenceHarness(sequence_config(slots=1))
    world.cancel(F, *_flood(world)[1:])

    assert InvalidArgument.number == world.error(world.send(MANY))[0]
    assert "was lost" in world.error(world.send(MANY))[1]
    assert "was lost" not in world.error(world.send(2))[1]


# ------------------------------------------------------------------- reloads
def _is_drained(world: SequenceHarness, generation: int = 1) -> bool:
    return wire.Drained(generation) in world.supervisor_messages


@pytest.fixture
def reloaded() -> SequenceHarness:
    """Sequence 5 has begun at S, and then the model was loaded again, which S2 serves."""
    world = SequenceHarness(sequence_config(slots=2))
    world.send(5, START)
    world.finish_batch(S)
    world.add_generation(2, config=sequence_config(slots=2))
    world.add_stub(S2, generation=2)
    world.retire(1)
    return world


def _send_to_new(world: SequenceHarness, sequence: int, flags: int = 0) -> int:
    return world.send(sequence, flags, generation=2)


@pytest.mark.row("E78")
def test_a_sequence_goes_on_where_it_began_until_it_ends(reloaded: SequenceHarness) -> None:
    assert not _is_drained(reloaded)

    begun = _send_to_new(reloaded, 6, START)
    going_on = _send_to_new(reloaded, 5)
    assert ([going_on], [begun]) == (reloaded.executing_ids(S), reloaded.executing_ids(S2))
    reloaded.finish_batch(S)
    _send_to_new(reloaded, 5, END)
    reloaded.finish_batch(S)

    assert _is_drained(reloaded)
    assert (InvalidArgument.number, must_start(5)) == reloaded.error(_send_to_new(reloaded, 5))


@pytest.mark.row("E78")
def test_what_was_replaced_waits_for_idle_sequences_no_longer_than_they_may_be_idle(
    reloaded: SequenceHarness,
) -> None:
    reloaded.tick(IDLE_NS - 1)
    assert not _is_drained(reloaded)

    reloaded.tick(1)

    assert _is_drained(reloaded)


@pytest.mark.parametrize("is_removed", [False, True])
def test_nor_for_those_of_what_it_had_replaced(reloaded: SequenceHarness, is_removed: bool) -> None:
    reloaded.core.retire(wire.Retire(2))
    if is_removed:
        reloaded.core.remove(wire.RemoveGeneration(2, "unloaded"), reloaded.now)
    reloaded.drain_outbox()

    assert _is_drained(reloaded, 2)
    assert 1 == reloaded.supervisor_messages.count(wire.Drained(1))


# ------------------------------------------------------------------------------ losses
# The sequences that are known to be lost, and for how long.


DEAD, FORGOTTEN = Unavailable("its stub died"), Unavailable("the broker died")


def test_a_lost_sequence_is_known_until_it_is_dropped() -> None:
    lost = LostSequences(100)
    assert lost.find_cause(5, 0) is None

    lost.add(5, DEAD)
    assert (DEAD, None) == (lost.find_cause(5, 10**9), lost.find_cause("5", 0))

    lost.drop(5)
    lost.drop(5)
    assert lost.find_cause(5, 0) is None


def test_the_newest_are_remembered() -> None:
    lost = LostSequences(100)
    for correlation in range(MAX_CAUSES + 1):
        lost.add(correlation, DEAD)

    assert (None, DEAD, DEAD) == tuple(lost.find_cause(one, 0) for one in (0, 1, MAX_CAUSES))


def test_those_of_an_earlier_broker_may_be_any_until_all_clients_were_here_and_idle() -> None:
    lost, recovered_ns = LostSequences(100), 0
    lost.assume_earlier_lost(FORGOTTEN, lambda: recovered_ns)
    lost.add(5, DEAD)
    assert DEAD is lost.find_cause(5, 900)
    assert FORGOTTEN is lost.find_cause(6, 10**9)  # a client may still come that has it

    recovered_ns = 1000
    assert FORGOTTEN is lost.find_cause(7, 1099)
    assert lost.find_cause(8, 1100) is None
    assert FORGOTTEN is lost.find_cause(6, 1100), "what was told once is told again"
