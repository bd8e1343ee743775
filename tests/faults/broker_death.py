"""kill -9 of the broker under load: models stay, and what had not been executed is not lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.faults.load import Load, Outcome
from tests.support.journal import executions, read_journal
from tests.support.server import Server
from tests.support.waiting import eventually

#: Of the model; more clients than that, so that some requests always wait.
INSTANCES = 2
#: Milliseconds of an execution, clients, and their pauses in seconds.
LOADS = ((30, 4, 0.0), (2, 4, 0.01))


class Death(NamedTuple):
    """One kill and what followed, in milliseconds from the kill."""

    #: Until the first answer to a request that was made after it.
    back_ms: float
    #: Until the server said that it is not ready, and that it is again.
    unready_ms: float
    ready_ms: float


def use_instances(server: Server, model: str = "journal") -> None:
    """Before the server starts."""
    config = server.repository / model / "config.pbtxt"
    config.write_text(config.read_text("utf-8").replace("count: 1", f"count: {INSTANCES}"), "utf-8")


def settle(server: Server) -> Server:
    """Return a server as it was at its start, after tests that have killed some of its processes.

    The journal is empty then.
    """
    roles = {"broker": 1, "http": 2, "grpc": 1, "metrics": 1}

    def is_whole() -> bool:
        pids = server.pids()
        return server.is_ready() and all(len(pids.get(r, [])) == n for r, n in roles.items())

    eventually(is_whole, 60, "the server is whole")
    eventually(lambda: len(server.stub_pids("journal")) == INSTANCES, 60, "all instances")
    os.truncate(server.journal, 0)  # models go on appending to it
    return server


@contextmanager
def mixed_load(server: Server) -> Iterator[list[Load]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Load(server.http_port, clients=clients, milliseconds=ms, pause_s=pause_s)
            )
            for ms, clients, pause_s in LOADS
        ]


def outcomes(loads: Sequence[Load]) -> list[Outcome]:
    return [outcome for load in loads for outcome in load.outcomes]


def first_after(loads: Sequence[Load], ns: int) -> Outcome | None:
    """The first answer to what was asked after that moment."""
    news = [o for load in loads for o in load.outcomes[-500:] if o.sent_ns > ns and o.is_right]
    return min(news, key=lambda o: o.ended_ns) if news else None


def kill_and_measure(server: Server, loads: Sequence[Load], number: int = signal.SIGKILL) -> Death:
    """One round, under loads that go on."""
    [broker] = server.pids()["broker"]
    before_ns = time.monotonic_ns()
    eventually(lambda: first_after(loads, before_ns), 30, "answers before the kill")
    killed_ns = time.monotonic_ns()
    os.kill(broker, number)

    def since_kill_ms() -> float:
        return (time.monotonic_ns() - killed_ns) / 1e6

    def has_noticed() -> bool:
        # Between two looks it may have been unready and be ready again.
        return not server.is_ready() or server.pids().get("broker") != [broker]

    eventually(has_noticed, 30, "the server is not ready")
    unready_ms = since_kill_ms()
    eventually(server.is_ready, 30, "the server is ready again")
    ready_ms = since_kill_ms()
    first = eventually(lambda: first_after(loads, killed_ns), 30, "answers after the kill")
    eventually(lambda: server.pids().get("broker") not in (None, [], [broker]), 30, "a new broker")
    return Death((first.ended_ns - killed_ns) / 1e6, unready_ms, ready_ms)


def check_executed_once(server: Server, answers: list[Outcome]) -> list[Outcome]:
    """Nothing was executed twice, and every request has one answer; those that failed."""
    executed = executions(server.journal)
    assert {own_id: n for own_id, n in executed.items() if n > 1} == {}
    assert len({o.id for o in answers}) == len(answers)
    assert [o for o in answers if o.is_right and o.id not in executed] == []
    wrong = [o for o in answers if not o.is_right]
    assert [o for o in wrong if o.status != 503] == []
    return wrong


def check(server: Server, answers: list[Outcome], stubs: list[int], kills: int) -> int:
    """The stubs are the same, and only what they executed may have failed; how many."""
    assert sorted(server.stub_pids("journal")) == sorted(stubs)
    assert {record.pid for record in read_journal(server.journal)} <= set(stubs)
    wrong = check_executed_once(server, answers)
    executed = executions(server.journal)
    assert [o for o in wrong if o.id not in executed] == []
    assert len(wrong) <= kills * INSTANCES
    return len(wrong)
