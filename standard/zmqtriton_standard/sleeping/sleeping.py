"""Lets the instances of a model sleep and wake up. Does no I/O.

An instance calls `TritonPythonModel.sleep()` between two executions, and `wake_up()` when it gets
an order or a request. So a sleeping model is ready, and its requests do not wait in the server.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from zmqtriton.sdk.supervisor import (
    ControlCall,
    CoreParts,
    Feature,
    HelperOwner,
    InstanceState,
    Promise,
    ServedModel,
    Verb,
    actions,
)
from zmqtriton.sdk.wire import Reason, Unavailable, ZmqTritonError, errors, wire

SLEEP, WAKE = "sleep", "wake"
#: The numbers of these calls; below are others that stubs answer.
_FIRST = 1 << 48


class _Turn:
    """A call to several instances at once."""

    def __init__(self, word: str, model: str, at_s: float) -> None:
        self.word, self.model, self.at_s = word, model, at_s
        #: The number of instances that have done it; fails with the first error.
        self.result = Promise[int]()
        self.waiting: dict[tuple[int, int], str] = {}
        self.count = 0
        self.error: ZmqTritonError | None = None


class Sleeping(Feature, HelperOwner):
    def __init__(self, core: CoreParts) -> None:
        super().__init__(core)
        self._numbers = itertools.count(_FIRST)
        self._turns: list[_Turn] = []
        #: When each model was put to sleep; a request since then has woken up an instance of it.
        self._since_s: dict[str, float] = {}

    @property
    def verbs(self) -> Mapping[str, Verb]:
        verb = partial(Verb, needs_repository=True, of_operators=True, changes=Verb.always)
        return {word: verb(partial(self._answer, word)) for word in (SLEEP, WAKE)}

    @property
    def helpers(self) -> Iterable[HelperOwner]:
        return (self,)

    def load_ended(self, name: str) -> None:
        self._since_s.pop(name, None)  # its instances are new ones, and awake

    # ------------------------------------------------------------- what is asked

    async def _answer(self, word: str, call: ControlCall) -> dict[str, Any]:
        model = self._find_model(ControlCall.required_model_name(call.arguments))
        return {"model": model.name, "instances": await self._ask(word, model)}

    def _ask(self, word: str, model: ServedModel) -> Promise[int]:
        """Send a call to all instances of a model."""
        turn = _Turn(word, model.name, self._plan.now_s)
        generations = model.serving_generations
        instances = (one for generation in generations for one in generation.instances)
        for instance in [one for one in instances if one.state is InstanceState.READY]:
            number = next(self._numbers)
            turn.waiting[instance.serial, number] = instance.name
            self._plan.enqueue(actions.Send(instance.serial, wire.Call(number, word, "{}")))
        if not turn.waiting:
            raise Unavailable(
                f"model '{model.name}' has no instance that is ready; see `zmqtriton-ctl explain`"
            )
        self._turns.append(turn)
        return turn.result

    # -------------------------------------------------------------- what is heard

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        for turn in self._turns:
            name = turn.waiting.pop((serial, answer.id), None)
            if name is None:
                continue
            if answer.code:
                turn.error = turn.error or errors.from_number(
                    answer.code, f"'{name}': {answer.text}"
                )
            else:
                turn.count += 1
            self._look_at(turn)
            return True
        return False

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        for turn in list(self._turns):
            for key in [key for key in turn.waiting if key[0] == serial]:
                turn.error = turn.error or Unavailable(f"'{turn.waiting.pop(key)}': {reason.text}")
                self._look_at(turn)

    def _look_at(self, turn: _Turn) -> None:
        if turn.waiting:
            return
        self._turns.remove(turn)
        self._since_s.pop(turn.model, None)
        if turn.error is not None:
            turn.result.fail(turn.error)
            return
        if turn.word == SLEEP:
            self._since_s[turn.model] = turn.at_s
            self._server.perform("slept", {"model": turn.model, "at_s": turn.at_s})
        turn.result(turn.count)

    # ---------------------------------------------------------- what is shown

    def describe(self, counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Describe the models that sleep, for the status."""
        for entry in counts:
            since_s = self._since_s.get(entry["model"])
            if since_s is not None and entry["last_arrival_s"] > since_s:
                del self._since_s[entry["model"]]
        now_s = self._plan.now_s
        return {"asleep_s": {name: now_s - at_s for name, at_s in self._since_s.items()}}
