"""The heap of timers: soonest first, and no memory for what is over."""

from __future__ import annotations

import pytest

from zmqtriton.broker.requests.inflight import Batch, InflightRequest, QueuePlace
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import Instance
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton.broker.timers import Timers
from zmqtriton_floor.wire import Request

pytestmark = pytest.mark.slow

_GENERATION = BrokerGeneration(1, "m", 1, "{}")


def _request(number: int) -> InflightRequest:
    return InflightRequest(1, Request(number, 1, "", -1, 0, 0, 0, 0, 0, 0, 0), b"", _GENERATION, 0)


def test_timers_come_due_in_the_order_of_their_times() -> None:
    timers = Timers()
    late, soon = _request(1), _request(2)
    timers.start(20, request=late)
    timers.start(10, request=soon)

    assert 10 == timers.next_due_ns()
    assert timers.pop_due(9) is None
    due = [timers.pop_due(20), timers.pop_due(20), timers.pop_due(20)]
    assert [soon, late] == [timer.request for timer in due if timer]


def test_what_is_answered_never_comes_due() -> None:
    timers = Timers()
    request = _request(1)
    timers.start(10, request=request)

    request.answer()

    assert timers.next_due_ns() is None
    assert timers.pop_due(99) is None


def test_answered_requests_do_not_pile_up_until_their_time() -> None:
    timers = Timers()

    for number in range(100_000):
        request = _request(number)
        timers.start(10**18, request=request)
        request.answer()

    assert len(timers.timed) <= 2048


class _Queue(QueuePlace):
    def leave(self, request: InflightRequest) -> None:
        raise AssertionError("a timer takes nobody out")


def test_a_queue_timer_ends_with_the_wait_in_the_queue() -> None:
    timers, request = Timers(), _request(1)
    request.place = _Queue()
    timers.start(10, request=request, in_queue=True)
    timers.start(20, request=request)
    assert 10 == timers.next_due_ns()

    request.is_late = True
    assert 20 == timers.next_due_ns(), "its deadline counts on"

    request.is_late, request.place = False, None
    timers.start(10, request=request, in_queue=True)
    assert 20 == timers.next_due_ns()


def test_a_batch_timer_ends_with_the_batch() -> None:
    timers, instance = Timers(), Instance(7, "m_0", 1)
    instance.arrive()
    instance.dispatch(Batch(5, [], 0))
    timers.start(10, instance=instance, batch=4)
    timers.start(20, instance=instance, batch=5)

    assert 20 == timers.next_due_ns()
    instance.finish_batch(5, 15)
    assert timers.next_due_ns() is None


def test_of_the_timers_of_a_queue_the_newest_counts() -> None:
    timers, scheduler = Timers(), Scheduler(_GENERATION)
    for at_ns in (30, 20):
        scheduler.timer_ns = at_ns
        timers.start(at_ns, scheduler=scheduler)

    due = timers.pop_due(99)

    assert due is not None
    assert (20, scheduler) == (due.at_ns, due.scheduler)
    assert timers.pop_due(99) is None


def test_timers_of_one_moment_keep_their_order() -> None:
    timers, requests = Timers(), [_request(number) for number in range(20)]
    for request in requests:
        timers.start(10, request=request)

    assert requests == [timer.request for timer in [timers.pop_due(10) for _ in requests] if timer]


def test_what_is_still_due_is_kept_when_the_rest_is_cleaned_up() -> None:
    timers, kept = Timers(), [_request(number) for number in range(700)]
    for number, request in enumerate(kept):
        timers.start(1000 - number, request=request)
        answered = _request(10_000 + number)
        timers.start(5, request=answered)
        answered.answer()

    assert len(timers.timed) < 1400
    due = [timers.pop_due(1000) for _ in range(701)]
    assert [*reversed(kept), None] == [timer.request if timer else None for timer in due]
