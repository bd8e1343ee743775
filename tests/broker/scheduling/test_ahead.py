"""When an instance that still executes is sent its next batch."""

from __future__ import annotations

import pytest

from tests.broker.world import Page
from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.broker.scheduling.ahead import SendingAhead
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton_floor.wire import Request

MS = 1_000_000
#: When the executions begin.
BEGIN = 10 * MS
_GENERATION = Generation(1, "m", 1, "{}")


class World:
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
    assert most == World(mean_ns=mean_ns).send_all()


@pytest.mark.parametrize("is_batching", [False, True])
@pytest.mark.parametrize(
    "settings", [{"mean_ns": 0}, {"mean_ns": 2 * MS + 1}, {"count": 2}, {"has_queue_rules": True}]
)
def test_nothing_is_sent_ahead(settings: dict[str, int], is_batching: bool) -> None:
    """Before the first execution, if executions are long, with rules, or with two instances."""
    world = World(**settings, is_batching=is_batching)  # type: ignore[arg-type]

    assert 0 == world.target(now_ns=BEGIN + 9 * MS)
    assert 0 == world.ahead.due_ns


def test_one_batch_of_a_batcher_is_sent_ahead() -> None:
    world = World(mean_ns=MS // 10, is_batching=True)

    assert 1 == world.send_all()


def test_a_batch_grows_in_the_queue_until_the_execution_is_about_to_end() -> None:
    world = World(is_batching=True)

    assert 0 == world.target()
    due_ns = world.ahead.due_ns
    assert BEGIN < due_ns < BEGIN + MS
    assert 0 == world.target(now_ns=due_ns - 1)
    assert 1 == world.target(now_ns=due_ns)
    assert 0 == world.ahead.due_ns


def test_the_execution_that_counts_is_the_last_one_begun() -> None:
    world = World(is_batching=True)
    (instance,) = world.instances.values()
    world.dispatch(instance)
    instance.finish_batch(1, BEGIN + 5 * MS)

    assert 0 == world.target(now_ns=BEGIN + 5 * MS)
    assert 1 == world.target(now_ns=BEGIN + 6 * MS)


def test_a_batch_much_smaller_than_the_executing_one_stays_in_the_queue() -> None:
    world = World(mean_ns=MS // 10, executing=7, is_batching=True)

    assert 0 == world.target(waiting=3)
    assert 0 == world.ahead.due_ns, "a request may come, or the execution may end"
    assert 1 == world.target(waiting=4)
