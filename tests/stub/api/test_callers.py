"""The requests on whose behalf a model's code runs, as its calls and its log lines tell of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stub.fakes import FakeLink, body
from zmqtriton_floor import wire
from zmqtriton_stub.api import callers
from zmqtriton_stub.api.callers import NOBODY, Caller, find_caller
from zmqtriton_stub.execution.responses import Pending


@pytest.fixture(autouse=True)
def _nobody_afterwards() -> Iterator[None]:
    token = callers.served.set(())

    yield

    callers.served.reset(token)


def served(
    own_id: int, *, deadline_ns: int = 0, flags: int = 0, is_answered: bool = False
) -> Pending:
    pending = FakeLink().add_request(body(), own_id)
    pending.work = pending.work._replace(deadline_ns=deadline_ns, flags=flags)
    pending.request_id = f"r{own_id}"
    if is_answered:
        pending.fail("over")
    return pending


def serve(*batch: Pending) -> None:
    callers.served.set(batch)


def test_outside_of_execute_nobody_asks() -> None:
    assert NOBODY == find_caller()
    assert [] == callers.request_ids()


def test_a_call_may_last_until_the_last_of_its_requests_deadlines() -> None:
    serve(served(1, deadline_ns=30), served(2, deadline_ns=50), served(3, deadline_ns=40))

    assert Caller(50, 3, 1) == find_caller()


def test_a_call_for_a_request_without_deadline_has_none() -> None:
    serve(served(1, deadline_ns=30), served(2))

    assert Caller(0, 3, 1) == find_caller()


def test_what_is_answered_or_padding_counts_no_more() -> None:
    serve(
        served(1, deadline_ns=90, is_answered=True),
        served(2, deadline_ns=80, flags=wire.PADDING),
        served(3, deadline_ns=30),
    )

    assert Caller(30, 3, 3) == find_caller()


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_call_for_requests_that_are_over_is_nobody_s(is_answered: bool) -> None:
    serve(
        served(1, deadline_ns=90, is_answered=is_answered, flags=0 if is_answered else wire.PADDING)
    )

    assert NOBODY == find_caller()


def test_lines_are_logged_with_the_ids_of_all_but_padding() -> None:
    serve(served(1), served(2, flags=wire.PADDING), served(3, is_answered=True))

    assert ["r1", "r3"] == callers.request_ids()


def test_the_spans_of_traced_requests_are_named() -> None:
    spans = [f"00-{digit * 32}-{digit * 16}-01" for digit in "ab"]
    traced = [served(1), served(2), served(3)]
    for pending, trace in zip(traced, (f"{spans[0]} a=b", "", spans[1]), strict=True):
        pending.work = pending.work._replace(trace=trace)
    serve(*traced)

    assert " ".join(spans) == callers.traceparents()
