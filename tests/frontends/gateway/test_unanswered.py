"""Requests on their way to the broker: tokens, what is unanswered, and files of loads."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from tests.frontends.http_api.fakes import FakeGateway
from tests.support.waiting import eventually
from zmqtriton_floor import endpoints, staging, wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.process import zmq_sockets
from zmqtriton_floor.signature import Admission
from zmqtriton_floor.token_file import Grant
from zmqtriton_floor.wire import Call, RequestBody
from zmqtriton_frontends.gateway import publishers
from zmqtriton_frontends.gateway.broker_link import resend_messages
from zmqtriton_frontends.gateway.loads import load
from zmqtriton_frontends.gateway.publishers import Publishers
from zmqtriton_frontends.gateway.token_marks import TokenMarks
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions

# -------------------------------------------------------------------------- unanswered


def row(own_id: int, flags: int = 0) -> wire.Request:
    return wire.Request(own_id, 1, "", -1, flags, 0, 0, 0, 0, 0, 0)


#: Requests that were sent, which of them were cancelled or answered, and what new brokers hear.
LEFT: dict[str, tuple[list[wire.Request], list[int], list[int], list[Any]]] = {
    "in order and marked": (
        [row(1), row(2), row(3)],
        [],
        [2],
        [(wire.Infer([row(1, wire.RESENT), row(3, wire.RESENT)]), [b"1", b"3"])],
    ),
    "with its other flags": (
        [row(1, wire.SEQUENCE_START)],
        [],
        [],
        [(wire.Infer([row(1, wire.SEQUENCE_START | wire.RESENT)]), [b"1"])],
    ),
    # 7 was never sent
    "and then cancelled": (
        [row(1), row(2)],
        [2, 7],
        [],
        [
            (wire.Infer([row(1, wire.RESENT), row(2, wire.RESENT)]), [b"1", b"2"]),
            (wire.Cancel([2]), []),
        ],
    ),
    "or forgotten": ([row(1)], [1], [1], []),
}


@pytest.mark.parametrize(("sent", "cancelled", "answered", "again"), LEFT.values(), ids=LEFT)
def test_what_was_not_answered_is_asked_again(
    sent: list[wire.Request], cancelled: list[int], answered: list[int], again: list[Any]
) -> None:
    unanswered = {one.id: (one, b"%d" % one.id) for one in sent if one.id not in answered}

    assert again == list(resend_messages(unanswered, cancelled.__contains__))


# ------------------------------------------------------------------------- token marks
# Requests of clients with tokens, as the broker gets them.


def grant(name: str, **limits: Any) -> Grant:
    return Grant(name, b"", frozenset({"infer"}), **limits)


def checked(priority: int = 0, levels: int = 0, default: int = 0) -> CheckedRequest:
    batching = {"priority_levels": str(levels), "default_priority_level": str(default)}
    model: Any = SimpleNamespace(config={"dynamic_batching": batching} if levels else {})
    return CheckedRequest(
        model, RequestBody("", {}, [], []), Admission(0, 0), SchedulingOptions(0, priority)
    )


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
    ("priority", "levels", "default", "limits", "sent"),
    [
        (1, 5, 4, {"highest_priority": 3}, 3),
        (4, 5, 4, {"highest_priority": 3}, 4),
        (0, 5, 1, {"highest_priority": 3}, 3),
        (0, 5, 4, {"highest_priority": 3}, 4),
        (1, 2, 1, {"highest_priority": 3}, 2),
        (0, 0, 0, {"highest_priority": 3}, 0),
        (1, 5, 4, {}, 1),
    ],
)
def test_no_request_comes_before_the_highest_priority_of_its_token(
    priority: int, levels: int, default: int, limits: dict[str, int], sent: int
) -> None:
    marks = TokenMarks(lambda call: None)

    marked = marks.mark(checked(priority, levels, default), grant("a", **limits))

    assert sent == marked.options.priority


# -------------------------------------------------------------------------- publishers
# The socket for what stubs publish, with the test as a stub.


OWN, STUB = 5, 7


RESULTS = endpoints.topic(OWN) + wire.encode(wire.Results([], []))


def test_others_have_turns_between_messages_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishers, "_READ_S", -1.0)  # over with the first
    turns: list[int] = []

    async def check(context: Any) -> None:
        stub = zmq_sockets.open_publisher(context, endpoints.stream_address(str(tmp_path), STUB))
        taken: list[Any] = []
        loop = asyncio.get_running_loop()
        reader = Publishers(loop, OWN, str(tmp_path), lambda message, _: taken.append(message))
        reader.follow(STUB)
        eventually(lambda: zmq_sockets.has_input(stub), 60, "the subscription")
        zmq_sockets.receive(stub)
        for _ in range(20):
            zmq_sockets.send(stub, [RESULTS])
        time.sleep(0.2)  # by then all are there, in most cases

        while len(taken) < 20:
            await asyncio.sleep(0)
            turns.append(len(taken))
        reader.close()
        stub.close(0)

    with zmq.Context() as context:
        asyncio.run(asyncio.wait_for(check(context), 20))
        zmq.Context.instance().term()

    assert len({*turns}) > 10


# ------------------------------------------------------------------------------- loads


FILES = {"file:1/model.py": b"x"}


@pytest.mark.parametrize("is_written", [True, False])
def test_a_client_that_leaves_while_its_files_are_written_leaves_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_written: bool,
) -> None:
    gateway: Any = FakeGateway(runtime_directory=str(tmp_path))
    begun, may_go_on = threading.Event(), threading.Event()
    stage = staging.stage

    def slow(*arguments: Any) -> str:
        name = stage(*arguments)
        begun.set()
        assert may_go_on.wait(30)
        if not is_written:
            staging.discard(str(tmp_path), name)
            raise OSError("no space left")
        return name

    async def leave() -> None:
        asking = asyncio.ensure_future(load(gateway, "m", {"config": "{}"}, FILES))
        assert await asyncio.to_thread(begun.wait, 30)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert 1 == len(list((tmp_path / "files").iterdir()))
        may_go_on.set()
        await asyncio.wait_for(are_gone(), 30)
        await asyncio.get_running_loop().shutdown_default_executor()
        await asyncio.sleep(0.01)

    async def are_gone() -> None:
        while list((tmp_path / "files").iterdir()):
            await asyncio.sleep(0.01)

    monkeypatch.setattr(staging, "stage", slow)
    asyncio.run(leave())

    assert ([], []) == (gateway.calls, caplog.records)


def test_files_that_cannot_be_written_are_no_call(tmp_path: Path) -> None:
    (tmp_path / "files").write_bytes(b"")
    gateway: Any = FakeGateway(runtime_directory=str(tmp_path))

    with pytest.raises(InternalError, match="cannot keep the files of the load"):
        asyncio.run(load(gateway, "m", {"config": "{}"}, FILES))

    assert [] == gateway.calls


def test_a_load_without_files_is_one_call() -> None:
    gateway: Any = FakeGateway(runtime_directory="/nowhere")

    asyncio.run(load(gateway, "m", {"config": "{}"}, {}, wait=True))

    assert [("load", {"model": "m", "parameters": {"config": "{}"}, "wait": True})] == gateway.calls
