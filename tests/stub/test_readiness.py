"""A model's is_ready(), asked over a lifeline by a supervisor that is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stub.fakes import FakeLink
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_stub.readiness import Readiness


class Asked:
    """A model that says what the test has it say."""

    def __init__(self) -> None:
        self.says: Any = True
        self.calls = 0
        self.link = FakeLink()
        ours, theirs = pair()
        self.line = Lifeline(ours)
        self._theirs = Lifeline(theirs)
        self.readiness = Readiness(self.link.instance, self._is_ready, self._theirs)

    def end(self) -> None:
        """The supervisor has gone, and the thread with it."""
        self.line.close()
        self.readiness._thread.join(30)
        assert not self.readiness._thread.is_alive()
        self._theirs.close()

    def _is_ready(self) -> Any:
        self.calls += 1
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says() if callable(self.says) else self.says

    def ask(self, number: int = 3) -> wire.CallResult:
        self.line.send(wire.Call(number, "is_ready", "{}"))
        assert self.line.wait(30)
        [(message, _)] = self.line.receive()
        assert type(message) is wire.CallResult
        assert number == message.id
        return message

    def logged(self) -> list[tuple[str, str]]:
        return [(said.level, said.text) for said in self.link.sent_to_supervisor]


@pytest.fixture
def model() -> Iterator[Asked]:
    model = Asked()

    yield model

    model.end()


@pytest.mark.parametrize("says", [True, False])
def test_the_model_is_asked_anew_each_time(model: Asked, says: bool) -> None:
    model.says = says

    answers = [model.ask(number) for number in (3, 4)]

    assert [(0, "", str(says).lower())] * 2 == [(a.code, a.text, a.result) for a in answers]
    assert 2 == model.calls


def test_an_answer_may_be_awaited(model: Asked) -> None:
    async def later() -> bool:
        await asyncio.sleep(0)
        return False

    model.says = later

    assert "false" == model.ask().result


@pytest.mark.parametrize("says", [1, None, "True", ValueError("broken"), SystemExit()])
def test_what_is_no_boolean_is_a_failure(model: Asked, says: Any) -> None:
    model.says = says

    answer = model.ask()

    expected = (InternalError.number, "is_ready() has failed", "false")
    assert expected == (answer.code, answer.text, answer.result)
    [(level, text)] = model.logged()
    assert "E" == level
    assert type(says).__name__ in text or "must return a boolean" in text


def test_each_change_is_logged_and_not_each_question(model: Asked) -> None:
    for says in (True, False, False, ValueError("broken"), ValueError("broken"), True, True):
        model.says = says
        model.ask()

    assert ["W", "E", "I"] == [level for level, _ in model.logged()]
    texts = [text for _, text in model.logged()]
    assert texts[0] == "'m_0_0': is_ready() says False"
    assert "ValueError: broken" in texts[1]
    assert texts[2] == "'m_0_0': is ready again"


def test_a_model_that_is_being_finalized_is_not_asked(model: Asked) -> None:
    model.ask()

    model.readiness.close()
    model.line.send(wire.Call(4, "is_ready", "{}"))
    model.end()

    assert 1 == model.calls
