"""Instances that take several batches, and requests that are executed again."""

from __future__ import annotations

from tests.broker.world import S2, BrokerHarness, F, Page, S, request
from zmqtriton_floor import wire

_ITERATIVE = {"name": "m", "sequence_batching": {"iterative_sequence": True}}
_WIDE = {"name": "m", "parameters": {"MAX_INFLIGHT": {"string_value": "3"}}}


# ------------------------------------------------------------------- slots


def test_an_instance_is_given_as_many_batches_as_it_executes_at_once() -> None:
    world = BrokerHarness.serving(config=_WIDE)
    world.add_stub(S, concurrency=3, page=Page())

    world.infer(F, *[request(i) for i in range(1, 6)])
    assert [1, 2, 3] == world.executing(S)

    world.finish_batch(S)
    assert [2, 3, 4] == world.executing(S)


def test_idle_instances_go_before_those_with_room() -> None:
    world = BrokerHarness.serving(config=_WIDE)
    world.add_stub(S, concurrency=3, page=Page())
    world.add_stub(S2, concurrency=3, page=Page())

    world.infer(F, *[request(i) for i in range(1, 8)])

    assert (3, 3) == (len(world.executing(S)), len(world.executing(S2)))


def test_batches_may_end_in_any_order() -> None:
    world = BrokerHarness.serving(config=_WIDE)
    world.add_stub(S, concurrency=3, page=Page())
    world.infer(F, *[request(i) for i in (1, 2, 3)])
    last = world.batched_requests[S].pop()

    outcome = wire.Outcome(F, last.id, 0, "", wire.FINAL)
    results = wire.Results([outcome], [wire.Executed(last.batch, 1, 1, 1)])
    world.core.results(S, results, [b""], world.now)
    world.drain_outbox()
    world.finish_batch(S)
    world.finish_batch(S)

    assert [1, 1, 1] == [len(world.finals(F, i)) for i in (1, 2, 3)]
    assert 0 == world.core.traffic.malformed


def test_what_an_instance_was_in_when_the_broker_died_takes_its_slots() -> None:
    world = BrokerHarness.serving(config=_WIDE)
    world.add_stub(S, concurrency=3, is_executing=2, page=Page())
    world.infer(F, request(1), request(2), request(3))
    assert [1] == world.executing(S)

    for _ in range(2):
        world.core.results(S, wire.Results([], [wire.Executed(77, 1, 1, 1)]), [], world.now)
        world.drain_outbox()

    assert ([1, 2, 3], 0) == (world.executing(S), world.core.traffic.malformed)


# ------------------------------------------------------------ executed again


def _again(world: BrokerHarness, serial: int) -> None:
    """The stub wants what it executes back."""
    work = world.batched_requests[serial].pop(0)
    routes = [wire.RequestKey(work.peer, work.id)]
    results = wire.Results([], [wire.Executed(work.batch, 1, 1, 1)], routes)
    world.core.results(serial, results, [], world.now)
    world.drain_outbox()


def test_a_rescheduled_request_comes_again_without_start_to_the_same_stub() -> None:
    world = BrokerHarness.serving(config=_ITERATIVE)
    world.add_stub(S, page=Page())
    world.add_stub(S2, page=Page())
    world.infer(F, request(1))
    [serial] = [s for s in (S, S2) if world.batched_requests.get(s)]
    [first] = world.batched_requests[serial]

    _again(world, serial)

    [second] = world.batched_requests[serial]
    assert (first.id, first.correlation) == (second.id, second.correlation)
    assert [wire.SEQUENCE_START, 0] == [first.flags, second.flags]


def test_a_slot_is_free_when_its_request_is_answered() -> None:
    world = BrokerHarness.serving(config=_ITERATIVE)
    world.add_stub(S, page=Page())
    world.infer(F, request(1), request(2))

    _again(world, S)
    assert [1] == world.executing(S)
    world.finish_batch(S)

    assert [2] == world.executing(S)


def test_a_cancelled_request_is_not_executed_again_and_its_stub_is_told() -> None:
    world = BrokerHarness.serving(config=_ITERATIVE)
    world.add_stub(S, page=Page())
    world.infer(F, request(1))
    world.cancel(F, 1)

    _again(world, S)

    assert ([], 1) == (world.executing(S), len(world.finals(F, 1)))
    assert [(S, wire.RequestKey(F, 1))] * 2 == world.cancelled_executions
    assert 0 == world.core.generations.schedulers[1].pending


def test_what_was_executed_dies_with_its_stub_also_while_it_waits() -> None:
    world = BrokerHarness.serving(config=_ITERATIVE)
    world.add_stub(S, page=Page())
    world.infer(F, request(1))
    _again(world, S)  # and is sent again, to a stub whose page says that it has not begun it

    world.kill_peer(S)

    [final] = world.finals(F, 1)
    assert final.text.endswith("(killed by SIGKILL)")
    assert 0 == world.core.generations.schedulers[1].pending


def test_where_the_model_is_not_iterative_it_is_not_executed_again() -> None:
    world = BrokerHarness.serving()
    world.add_stub(S, page=Page())
    world.infer(F, request(1))

    _again(world, S)

    assert ([], 1) == (world.executing(S), world.core.traffic.malformed)
