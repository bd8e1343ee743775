"""Asks models that define is_ready, for the readiness probes of clients.

There is one question at a time for each instance; further probes share its answer. If it takes too
long, the instance counts as not ready until it has answered. Does no I/O.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.helper_processes import HelperOwner
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import StubPlace
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.reasons import Reason

_VERB = "is_ready"
ANSWER_TIMEOUT_S = 5.0


class _Question(NamedTuple):
    """A question to one instance, asking if its model is ready."""

    number: int
    #: "No" once the time is over, even if the instance answers later.
    answer: Promise[bool]


class ReadinessChecks(HelperOwner):
    def __init__(self, plan: Plan, generations: Mapping[int, Generation]) -> None:
        self._plan = plan
        self._generations = generations
        self._numbers = itertools.count(1)
        #: Open questions by serial number of the stub.
        self._open: dict[int, _Question] = {}

    @property
    def verbs(self) -> Verbs:
        return {_VERB: Verb(self._handle)}

    def _handle(self, call: ControlCall) -> Promise[bool]:
        """Answer a frontend's call: whether each of these generations is ready."""
        numbers = call.arguments.get("generations")
        if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
            raise InvalidArgument("readiness is asked for by numbers of generations")
        return self.check_generations(numbers)

    def check_generations(self, numbers: Iterable[int]) -> Promise[bool]:
        """Ask all present instances of these generations; the result is True if all are ready."""
        instances: list[StubPlace] = []
        for number in numbers:
            generation = self._generations.get(number)
            if generation is None or not generation.readiness.ready_count:
                return Promise.kept(False)
            instances += generation.readiness.with_is_ready()
        return self._plan.tell(self._ask([self._check_instance(each) for each in instances]))

    async def _ask(self, answers: Sequence[Promise[bool]]) -> bool:
        """Return whether all say yes; one says no for all."""
        await self._plan.until(lambda: all(a.is_over for a in answers) or not _may_be(answers))
        return _may_be(answers)

    def _check_instance(self, instance: StubPlace) -> Promise[bool]:
        serial = instance.serial
        if serial not in self._open:
            number, answer = next(self._numbers), Promise[bool]()
            self._open[serial] = _Question(number, answer)
            late = self._plan.call_later(
                ANSWER_TIMEOUT_S, partial(self._on_timeout, instance.name, answer)
            )
            answer.at_end(late.cancel)
            self._plan.enqueue(Send(serial, wire.Call(number, _VERB, "{}")))
        return self._open[serial].answer

    def _on_timeout(self, name: str, answer: Promise[bool]) -> None:
        self._plan.log("W", f"'{name}': is_ready() takes more than {ANSWER_TIMEOUT_S:g} seconds")
        answer(False)

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        """Process an answer; False if the question was not asked here."""
        question = self._open.get(serial)
        if question is None or question.number != answer.id:
            return False
        del self._open[serial]
        question.answer(not answer.code and answer.result == "true")
        return True

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        if serial in self._open:
            self._open.pop(serial).answer(False)


def _may_be(answers: Iterable[Promise[bool]]) -> bool:
    return all(answer.value for answer in answers if answer.is_over)
