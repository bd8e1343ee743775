"""The heap of timers: soonest first, and no memory for what is over."""

from __future__ import annotations

from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling.generation import Generation
from zmqtriton.broker.timers import Timers
from zmqtriton_floor.wire import Request

_GENERATION = Generation(1, "m", 1, "{}")


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
