"""Which instance gets a batch: the first idle one, one ahead, one of a version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import BrokerHarness, F, Page, request
from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.generations import GenerationRegistry
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.placement import Placement, SendingAhead
from zmqtriton_floor import wire
from zmqtriton_floor.routing import ALL
from zmqtriton_floor.wire import Request

# --------------------------------------------------------------------------- placement
# The choice of the instance of a model that gets the next batch.


MS = 1_000_000


class World:
    """A placement and its instances."""

    def __init__(self, count: int, **settings: bool) -> None:
        self.instances: dict[int, Instance] = {}
        self.ahead = SendingAhead(is_batching=False, has_queue_rules=False)
        self.placement = Placement(
            self.instances,
            ahead=self.ahead,
            has_concurrent_batches=settings.get("has_concurrent_batches", False),
            notes_idle=settings.get("notes_idle", True),
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


def test_those_that_execute_sequences_are_chosen_by_their_batcher() -> None:
    world = World(1, notes_idle=False)

    assert 0 == world.take()
    world.instances[1].dispatch(Batch(1, [], 1))
    world.finish(1, 9 * MS)
    assert 0 == world.take()


# ------------------------------------------------------------------------------- ahead
# When an instance that still executes is sent its next batch.


#: When the executions begin.
BEGIN = 10 * MS


_GENERATION = BrokerGeneration(1, "m", 1, "{}")


class AheadWorld:
    """The instances of one model, all of them executing."""

    def __init__(
        self, count: int = 1, *, mean_ns: int = MS, executing: int = 1, **settings: bool
    ) -> None:
        names = ("is_batching", "has_queue_rules")
        self.ahead = SendingAhead(**{name: settings.get(name, False) for name in names})
        self.ahead.mean_ns = mean_ns
        self.instances: dict[int, Instance] = {}
        self._number = 0
        for serial in range(1, count + 1):
            instance = self.instances[serial] = Instance(serial, f"m_{serial}", 1, Page())
            instance.arrive()
            self.dispatch(instance, executing)

    def dispatch(self, instance: Instance, requests: int = 1) -> None:
        self._number += 1
        rows = [
            Request(100 * self._number + number, 1, "", -1, 0, 0, 0, 0, 0, 0, 0)
            for number in range(requests)
        ]
        batch = [InflightRequest(1, row, b"", _GENERATION, 0) for row in rows]
        instance.dispatch(Batch(self._number, batch, BEGIN))

    def target(self, waiting: int = 1, now_ns: int = BEGIN) -> int:
        """Return the serial of the instance that may be sent a batch, 0 for none."""
        instance = self.ahead.target(self.instances, waiting, now_ns)
        return 0 if instance is None else instance.serial

    def send_all(self) -> int:
        """Send batches of one request ahead; return how many there were room for."""
        count = 0
        while self.target():
            self.dispatch(self.instances[1])
            count += 1
        return count


@pytest.mark.parametrize(
    ("mean_ns", "most"),
    [(MS, 2), (2 * MS, 1), (2 * MS + 1, 0), (700_000, 2), (1, 15), (MS // 2, 4)],
)
def test_up_to_two_milliseconds_are_sent_ahead(mean_ns: int, most: int) -> None:
    assert most == AheadWorld(mean_ns=mean_ns).send_all()


@pytest.mark.parametrize("is_batching", [False, True])
@pytest.mark.parametrize(
    "settings", [{"mean_ns": 0}, {"mean_ns": 2 * MS + 1}, {"count": 2}, {"has_queue_rules": True}]
)
def test_nothing_is_sent_ahead(settings: dict[str, int], is_batching: bool) -> None:
    """Before the first execution, if executions are long, with rules, or with two instances."""
    world = AheadWorld(**settings, is_batching=is_batching)  # type: ignore[arg-type]

    assert (0, 0) == (world.target(now_ns=BEGIN + 9 * MS), world.ahead.due_ns)


def test_one_batch_of_a_batcher_is_sent_ahead() -> None:
    assert 1 == AheadWorld(mean_ns=MS // 10, is_batching=True).send_all()


def test_a_batch_grows_in_the_queue_until_the_execution_is_about_to_end() -> None:
    world = AheadWorld(is_batching=True)

    assert 0 == world.target()
    due_ns = world.ahead.due_ns
    assert BEGIN < due_ns < BEGIN + MS
    assert (0, 1) == (world.target(now_ns=due_ns - 1), world.target(now_ns=due_ns))
    assert 0 == world.ahead.due_ns


def test_the_execution_that_counts_is_the_last_one_begun() -> None:
    world = AheadWorld(is_batching=True)
    (instance,) = world.instances.values()
    world.dispatch(instance)
    instance.finish_batch(1, BEGIN + 5 * MS)

    assert (0, 1) == (world.target(now_ns=BEGIN + 5 * MS), world.target(now_ns=BEGIN + 6 * MS))


def test_a_batch_much_smaller_than_the_executing_one_stays_in_the_queue() -> None:
    world = AheadWorld(mean_ns=MS // 10, executing=7, is_batching=True)

    assert 0 == world.target(waiting=3)
    assert 0 == world.ahead.due_ns, "a request may come, or the execution may end"
    assert 1 == world.target(waiting=4)


# ---------------------------------------------------------------------- divided models
# Models whose requests are divided between two versions: models' requests, steps and sequences.


OVER = wire.TrafficSplit("m", 0, 0, 0)


def registry(config: str = "{}") -> GenerationRegistry:
    generations = GenerationRegistry()
    for number in (1, 2):
        generations.add_or_update(wire.AddGeneration(10 * number, "m", number, config))
    return generations


def split(weight: int) -> wire.TrafficSplit:
    return wire.TrafficSplit("m", 1, 2, weight)


def number_for(
    generations: GenerationRegistry, version: int = -1, correlation: wire.Correlation = 0
) -> int:
    return generations.find(wire.Request(1, 0, "m", version, 0, 0, 0, 0, 0, 0, correlation)).number


def test_what_is_read_of_a_divided_model_is_the_stable_version() -> None:
    generations = registry()
    generations.divide(split(ALL))

    newest = generations.newest("m", -1)

    assert newest is not None
    assert 10 == newest.number


def uncopied(generations: GenerationRegistry) -> list[int]:
    trials = (generation.statistics.trial for generation in generations.by_number.values())
    return [trial.uncopied for trial in trials if trial is not None]


def test_a_request_of_a_model_that_a_canary_would_get_a_copy_of_is_counted() -> None:
    generations = registry()
    generations.divide(wire.TrafficSplit("m", 1, 2, 0, "", "", ALL))

    number_for(generations)
    number_for(generations, 1)
    generations.newest("m", -1)
    assert [1, 0] == uncopied(generations)

    generations.divide(wire.TrafficSplit("m", 1, 2, ALL, "", "", ALL))
    number_for(generations)
    generations.divide(split(0))
    number_for(generations)
    assert [1, 0] == uncopied(generations)
    generations.divide(OVER)
    assert [] == uncopied(generations)


def two_versions(*configs: dict[str, Any]) -> BrokerHarness:
    """Generations 1 and 2, of the versions 1 and 2, with the stubs 5 and 6."""
    world = BrokerHarness()
    world.add_frontend(F)
    for number, config in enumerate(configs, 1):
        world.add_generation(number, number, {"name": "m", **config})
        world.add_stub(4 + number, number)
    return world


# ------------------------------------------------------------------- sequences


@pytest.fixture
def world() -> BrokerHarness:
    """Generation 1 of version 1 and generation 2 of version 2, each with a stub."""
    sequences: dict[str, Any] = {"sequence_batching": {"direct": {}}}
    world = two_versions(sequences, sequences)
    world.core.generations.divide(split(0))
    return world


@pytest.fixture
def begun(world: BrokerHarness) -> BrokerHarness:
    """Sequence 7 has begun at version 1."""
    ask(world, 1, generation=1, flags=wire.SEQUENCE_START)
    world.finish_batch(5)
    return world


def ask(world: BrokerHarness, own_id: int, generation: int, flags: int = 0) -> None:
    world.infer(F, request(own_id)._replace(generation=generation, correlation=7, flags=flags))


@pytest.mark.row("L16")
def test_a_sequence_goes_on_where_it_began_though_the_share_has_changed(
    begun: BrokerHarness,
) -> None:

    begun.core.generations.divide(split(ALL))

    ask(begun, 2, generation=2)

    assert ([2], []) == (begun.executing(5), begun.executing(6))


def test_a_sequence_that_is_started_anew_is_over_in_the_other_version(
    begun: BrokerHarness,
) -> None:

    ask(begun, 2, generation=2, flags=wire.SEQUENCE_START | wire.SEQUENCE_END)
    begun.finish_batch(6)
    ask(begun, 3, generation=2)

    assert [] == begun.executing(5)
    assert [
        "inference request for sequence 7 to model 'm' must specify the START flag on the first"
    ] == [reply.text.partition(" request of")[0] for reply in begun.finals(F, 3)]
