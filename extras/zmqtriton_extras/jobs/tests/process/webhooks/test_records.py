"""The webhooks of jobs on disk, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zmqtriton_extras.jobs.process.store import (
    FAILED,
    QUEUED,
    SUCCEEDED,
    Job,
    Limits,
    Outcome,
    Store,
    Submission,
)
from zmqtriton_extras.jobs.process.webhooks.records import (
    GIVE_UP_AFTER_S,
    TRY_WITHIN_S,
    Webhook,
)
from zmqtriton_extras.jobs.tests.process.test_store import Clock

URL, RECEIVER = "https://app.example/done", "app.example"
KEEP_S = 100


class Hooks:
    """A store, and a job with a webhook."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self._directory = directory
        self.store = self._open()
        self._submitted = 0

    def _open(self) -> Store:
        return Store(self._directory, Limits(KEEP_S), self.clock)

    def submit(self, receiver: str = RECEIVER) -> Job:
        self._submitted += 1
        row = ("", None, b"", "m", "/v2/models/m/infer", "", "[]", b"{}", 2, URL, receiver)
        return self.store.submit(Submission(f"{self._submitted:026}", *row))

    def ended(self, receiver: str = RECEIVER) -> Job:
        job = self.submit(receiver)
        self.store.claim("m", False)
        self.store.end(job, Outcome(SUCCEEDED, 200))
        return job

    def webhook(self, job: Job) -> Webhook:
        return self.store.webhooks.of([job.id])[job.id]

    def claim(self, receiver: str = RECEIVER) -> Webhook:
        webhook = self.store.webhooks.claim(receiver)
        assert webhook is not None
        return webhook

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[Hooks]:
    hooks = Hooks(tmp_path)
    yield hooks
    hooks.store.close()


def _fail(store: Store, job: Job) -> None:
    store.claim("m", False)
    store.end(job, Outcome(FAILED, 500, reason="no"))


def _lose(store: Store, job: Job) -> None:
    store.claim("m", False)
    store.recover()


def _cancel(store: Store, job: Job) -> None:
    store.cancel(job.id, None)


def _wait_too_long(store: Store, job: Job) -> None:
    store._clock.now_s += KEEP_S + 1  # type: ignore[attr-defined]
    store.sweep()


@pytest.mark.parametrize("end", [_fail, _lose, _cancel, _wait_too_long])
def test_each_end_of_a_job_makes_its_webhook_due(
    hooks: Hooks, end: Callable[[Store, Job], None]
) -> None:
    job = hooks.submit()
    assert (hooks.webhook(job).state, hooks.store.webhooks.due_receivers()) == ("pending", [])

    end(hooks.store, job)

    assert hooks.store.webhooks.due_receivers() == [RECEIVER]
    assert (job.id, "sending", 1) == (hooks.claim().job, "sending", 1)


def test_a_job_that_is_queued_again_tells_nobody(hooks: Hooks) -> None:
    job = hooks.submit()
    hooks.store.claim("m", False)
    hooks.store.end(job, Outcome(QUEUED))

    assert hooks.webhook(job).state == "pending"


def test_tries_are_ever_rarer_and_come_to_an_end(hooks: Hooks) -> None:
    job = hooks.ended()
    begun_s, pauses = hooks.clock.now_s, []
    message = hooks.webhook(job).message

    while (webhook := hooks.store.webhooks.claim(RECEIVER)) is not None:
        assert message == webhook.message
        hooks.store.webhooks.end_try(webhook, "the answer was 500")
        state = hooks.webhook(job)
        if state.due is None:
            break
        pauses.append(state.due - hooks.clock.now_s)
        hooks.clock.now_s = state.due
        assert hooks.webhook(job).problem == "the answer was 500"

    assert pauses[:4] == [1, 2, 4, 8]
    assert {3600} == set(pauses[12:])
    assert ("failed", len(pauses) + 1) == (hooks.webhook(job).state, hooks.webhook(job).tries)
    assert 0.9 * GIVE_UP_AFTER_S < hooks.clock.now_s - begun_s <= GIVE_UP_AFTER_S


def test_a_try_that_died_with_its_process_is_made_again(hooks: Hooks) -> None:
    job = hooks.ended()
    hooks.claim()

    hooks.reopen()

    assert hooks.store.webhooks.due_receivers() == []
    hooks.clock.now_s += TRY_WITHIN_S + 1
    assert hooks.store.webhooks.due_receivers() == [RECEIVER]
    webhook = hooks.claim()
    assert webhook.tries == 2
    hooks.store.webhooks.end_try(webhook, None)
    assert hooks.webhook(job)[2:3] + hooks.webhook(job)[5:8:2] == ("delivered", None, None)


def test_the_last_word_of_a_receiver_ends_the_tries(hooks: Hooks) -> None:
    job = hooks.ended()

    hooks.store.webhooks.end_try(hooks.claim(), "the answer was 410", is_last=True)

    assert (hooks.webhook(job).state, hooks.webhook(job).tries) == ("failed", 1)


def test_receivers_are_told_apart_and_the_first_due_first(hooks: Hooks) -> None:
    hooks.ended("a")
    hooks.clock.now_s += 1
    second = hooks.ended("b")
    hooks.clock.now_s += 1
    third = hooks.ended("b")

    assert hooks.store.webhooks.due_receivers() == ["a", "b"]
    assert [second.id, third.id] == [hooks.claim("b").job, hooks.claim("b").job]
    assert hooks.store.webhooks.due_receivers() == ["a"]


def test_a_job_that_is_executed_again_tells_of_its_new_end_alone(hooks: Hooks) -> None:
    job = hooks.submit()
    _fail(hooks.store, job)
    before = hooks.claim()

    hooks.store.retry([job.id])
    hooks.store.webhooks.end_try(before, None)

    assert (hooks.webhook(job).state, hooks.webhook(job).tries) == ("pending", 0)
    hooks.store.claim("m", False)
    hooks.store.end(job, Outcome(SUCCEEDED, 200))
    assert before.message != hooks.claim().message


def test_a_webhook_leaves_with_its_job(hooks: Hooks) -> None:
    job = hooks.ended()

    hooks.store.remove(job.id, None)

    assert (hooks.store.webhooks.of([job.id]), hooks.store.webhooks.due_receivers()) == ({}, [])
