"""Requests of clients with tokens, as the broker gets them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from zmqtriton_floor.access.token_file import Grant
from zmqtriton_floor.signature import Admission
from zmqtriton_floor.wire import Call, RequestBody
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.inference.admission import CheckedRequest, Options


def grant(name: str, **limits: Any) -> Grant:
    return Grant(name, b"", frozenset({"infer"}), **limits)


def checked(priority: int = 0, levels: int = 0, default: int = 0) -> CheckedRequest:
    batching = {"priority_levels": str(levels), "default_priority_level": str(default)}
    model: Any = SimpleNamespace(config={"dynamic_batching": batching} if levels else {})
    return CheckedRequest(model, RequestBody("", {}, [], []), Admission(0, 0), Options(0, priority))


def test_the_broker_is_told_of_a_token_once_and_the_next_one_of_all() -> None:
    calls: list[Call] = []
    marks = TokenMarks(calls.append)
    first, changed = grant("a", requests_per_second=2.5), grant("a", concurrency=3)

    numbers = [
        marks.mark(checked(), one).options.token for one in (first, first, grant("b"), changed)
    ]

    assert [1, 1, 2, 3] == numbers
    assert calls == [*marks.for_next_broker()]
    rows = [json.loads(call.arguments) for call in calls]
    assert [("a", 2.5, 0), ("b", 0, 0), ("a", 0, 3)] == [
        (row["name"], row["requests_per_second"], row["concurrency"]) for row in rows
    ]


@pytest.mark.parametrize(
    ("priority", "levels", "default", "sent"),
    [
        (1, 5, 4, 3),
        (4, 5, 4, 4),
        (0, 5, 1, 3),
        (0, 5, 4, 4),
        (1, 2, 1, 2),
        (0, 0, 0, 0),
    ],
)
def test_no_request_comes_before_the_highest_priority_of_its_token(
    priority: int, levels: int, default: int, sent: int
) -> None:
    marks = TokenMarks(lambda call: None)

    marked = marks.mark(checked(priority, levels, default), grant("a", highest_priority=3))

    assert sent == marked.options.priority


def test_without_a_limit_the_priority_is_the_client_s() -> None:
    marked = TokenMarks(lambda call: None).mark(checked(1, 5, 4), grant("a"))

    assert 1 == marked.options.priority
