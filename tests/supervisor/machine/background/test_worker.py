"""Work beside the loop; where no thread can begin, in it."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Callable

import pytest

from tests.supervisor.settings import then
from tests.support.failing.threads import no_thread_begins
from tests.support.waiting import eventually
from zmqtriton.supervisor.machine.background import Worker


def test_where_no_thread_can_begin_tasks_are_answered_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[int] = []
    with selectors.DefaultSelector() as loop:
        worker = Worker(loop, "memory")
        with no_thread_begins():
            then(worker.submit(threading.get_ident), answers.append)
            then(worker.submit(threading.get_ident), answers.append)
        here = threading.get_ident()
        assert [here, here] == answers
        assert not loop.get_map()

        then(worker.submit(threading.get_ident), answers.append)
        eventually(lambda: _has_another(loop, answers), 30, "the thread answers")

        assert here != answers[2]
        worker.close()
        assert not loop.get_map()
    [line] = caplog.messages
    assert "the loop itself does the work of 'memory': can't start new thread" == line


def _has_another(loop: selectors.BaseSelector, answers: list[int]) -> bool:
    for key, _ in loop.select(1):
        deliver: Callable[[], None] = key.data
        deliver()
    return len(answers) == 3


def test_a_worker_closes_though_no_thread_could_begin() -> None:
    answers: list[str] = []
    with selectors.DefaultSelector() as loop:
        worker = Worker(loop, "memory")
        with no_thread_begins():
            then(worker.submit(lambda: "done"), answers.append)
        worker.close()
    assert ["done"] == answers
