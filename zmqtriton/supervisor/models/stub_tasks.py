"""Tasks of instances: functions of add-ons that run next to a model, in its process.

A feature names the function by the name in its declaration. The stub reads the call even while its
model executes, since a signal follows that another thread of it handles. Does no I/O.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from zmqtriton import addons
from zmqtriton.supervisor.actions import Send, Signal
from zmqtriton.supervisor.helper_processes import HelperOwner
from zmqtriton.supervisor.models.instance import StubPlace
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable, from_number
from zmqtriton_floor.prctl import READ_SIGNAL, SIGNAL_THREAD
from zmqtriton_floor.reasons import Reason
from zmqtriton_floor.settings.offers import Hook

#: Verb of a task.
_VERB = "run"
#: The numbers of these calls; below are others that stubs answer.
_FIRST = 1 << 49
#: A model can make its stub send anything.
MAX_RESULT_LETTERS = 16 << 20


class TaskCode(NamedTuple):
    """A function that instances run, and the file with its code."""

    file: str
    function: str


#: Runs in an instance, in a thread next to the model, with the model's Python (3.8 and newer). A
#: feature calls it by the name of the offer: `core.tasks.ask(instance, name, arguments, within_s)`.
#: The function gets the instance and these arguments, and returns values that JSON can hold.
TASK = Hook[Callable[..., Any]]("stub.task")


@cache
def task_codes() -> dict[str, TaskCode]:
    """Return the functions that add-ons offer to instances, by name.

    Their modules import only Python's standard library.
    """
    codes: dict[str, TaskCode] = {}
    for name, text in TASK.named_in(addons.offers()).items():
        module, _, function = text.partition(":")
        spec = find_spec(module)  # not imported: it is for other Pythons
        if spec is not None and spec.origin is not None:
            codes[name] = TaskCode(spec.origin, function)
    return codes


class StubTasks(HelperOwner):
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tickets = itertools.count(_FIRST)
        #: The serial of the instance of each task, by ticket.
        self._serials: dict[int, int] = {}

    def ask(
        self, instance: StubPlace, name: str, values: Mapping[str, Any], within_s: float
    ) -> Promise[Any]:
        """Let an instance run a function with these arguments; return its result."""
        serial, ticket = instance.serial, next(self._tickets)
        call = wire.Call(ticket, _VERB, json.dumps(self.code(name, values)))
        result = self._plan.ask(lambda _: Send(serial, call), ticket, within_s)
        self._plan.enqueue(Signal(serial, int(READ_SIGNAL), thread=SIGNAL_THREAD))
        self._serials[ticket] = serial
        result.at_end(partial(self._serials.pop, ticket))
        return result

    def code(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a function with these arguments, as stubs take it."""
        return {**task_codes()[name]._asdict(), "values": values}

    def handle_result(self, serial: int, answer: wire.CallResult) -> bool:
        if self._serials.get(answer.id) == serial:
            self._plan.answer(answer.id, _result_of(answer))
        return answer.id >= _FIRST

    def process_ended(self, serial: int, reason: Reason, last_words: str) -> None:
        for ticket in [ticket for ticket, each in self._serials.items() if each == serial]:
            self._plan.answer(ticket, Unavailable(reason.text))


def _result_of(answer: wire.CallResult) -> Any:
    """Return the result of a task, or its error."""
    if answer.code:
        return from_number(answer.code, answer.text)
    if len(answer.result) > MAX_RESULT_LETTERS:
        return InternalError("its response is too long: look at less at a time")
    try:
        return json.loads(answer.result)
    except (ValueError, RecursionError):
        return InternalError("its response must be JSON")
