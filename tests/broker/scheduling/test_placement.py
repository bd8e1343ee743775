"""The choice of the instance of a model that gets the next batch."""

from __future__ import annotations

from weakref import WeakSet

from tests.broker.world import BrokerHarness, Page, S
from zmqtriton.broker.requests.inflight import Batch
from zmqtriton.broker.scheduling.ahead import SendingAhead
from zmqtriton.broker.scheduling.instances import Instance, RateLimiterMember
from zmqtriton.broker.scheduling.placement import Placement
from zmqtriton.config.resources import ResourceNeed
from zmqtriton_floor import wire

MS = 1_000_000


class World:
    """A placement and its instances."""

    def __init__(self, count: int, **settings: bool) -> None:
        self.instances: dict[int, Instance] = {}
        self.ahead = SendingAhead(is_batching=False, has_queue_rules=False)
        names = ("has_concurrent_batches", "has_sequences")
        self.placement = Placement(
            self.instances, ahead=self.ahead, **{name: settings.get(name, False) for name in names}
        )
        for serial in range(1, count + 1):
            instance = self.instances[serial] = Instance(serial, f"m_{serial}", 1, Page())
            instance.arrive(2 if settings.get("has_concurrent_batches") else 1)
            self.placement.become_idle(instance)
        self._number = 0

    def take(self) -> int:
        """Give the next batch; return the serial of its instance, 0 for none."""
        instance = self.placement.take_instance(1, 0)
        if instance is None:
            return 0
        self._number += 1
        instance.dispatch(Batch(self._number, [], 1))
        return instance.serial

    def finish(self, serial: int, execution_ns: int) -> None:
        instance = self.instances[serial]
        instance.finish_batch(next(iter(instance.batches)), 2)
        self.placement.finish_batch(instance, execution_ns)


def test_the_one_that_became_idle_last_goes_first() -> None:
    world = World(3)
    assert [3, 2, 1, 0] == [world.take() for _ in range(4)]

    world.finish(2, 9 * MS)
    world.finish(3, 9 * MS)

    assert [3, 2, 0] == [world.take() for _ in range(3)]


def test_instances_that_are_replaced_leave_nothing_though_none_was_ever_needed() -> None:
    broker = BrokerHarness.serving(S)
    pages = WeakSet[Page]()
    for serial in range(100, 300):
        page = Page()
        pages.add(page)
        broker.add_stub(serial, page=page)
        broker.core.retire(wire.Retire(1, serial))
        broker.kill_peer(serial)
    del page

    assert 0 == len(pages)


def test_one_that_has_gone_meanwhile_is_passed_over() -> None:
    world = World(2)
    world.instances[2].stop_giving()

    assert [1, 0] == [world.take() for _ in range(2)]


def test_one_for_which_there_is_no_batch_is_asked_again() -> None:
    world = World(1)
    instance = world.placement.take_instance(1, 0)
    assert instance is not None
    assert 0 == world.take()

    world.placement.give_back(instance)

    assert 1 == world.take()
    world.placement.give_back(instance)
    assert 0 == world.take(), "it executes something already"


def test_the_average_follows_by_an_eighth() -> None:
    world = World(1)
    world.take()
    world.finish(1, MS)
    world.take()
    world.finish(1, 9 * MS)
    assert 2 * MS == world.ahead.mean_ns

    world.take()
    world.finish(1, 0)
    assert 1_750_000 == world.ahead.mean_ns


def test_among_concurrent_ones_the_freest_goes_first() -> None:
    world = World(2, has_concurrent_batches=True)

    assert [2, 1] == [world.take() for _ in range(2)]
    assert {1, 2} == {world.take() for _ in range(2)}
    assert 0 == world.take()
    world.finish(1, 9 * MS)
    assert 1 == world.take()


def test_those_that_share_resources_are_chosen_by_their_turns() -> None:
    world = World(2)
    for instance in world.instances.values():
        instance.membership = RateLimiterMember(ResourceNeed({}, 1), lambda need: [], 0)
    world.placement.limit()

    membership = world.instances[1].membership
    assert membership is not None
    membership.is_its_turn = True

    assert [1, 0] == [world.take() for _ in range(2)]
    world.finish(1, 9 * MS)
    membership.is_its_turn = False
    assert 0 == world.take(), "it waits for its next turn"


def test_those_that_execute_sequences_are_chosen_by_their_batcher() -> None:
    world = World(1, has_sequences=True)

    assert 0 == world.take()
    instance = world.instances[1]
    instance.dispatch(Batch(1, [], 1))
    world.finish(1, 9 * MS)
    assert 0 == world.take()
