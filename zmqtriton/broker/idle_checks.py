"""Checks that idle stubs still answer: each is asked now and then, and missed if it says nothing.

One that executes is left alone, since a model may take its time. Knows no clock and no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zmqtriton.broker.scheduling.instances import Instance, Occupation

_SECOND_NS = 1_000_000_000
#: How often idle stubs are asked. Each question wakes a process.
EVERY_NS = 30 * _SECOND_NS
#: How long one may take, if something in its process holds the interpreter: loading a file, say.
ANSWER_WITHIN_NS = 45 * _SECOND_NS


class IdleChecks:
    def __init__(
        self,
        instances: Mapping[int, Instance],
        ask: Callable[[int], object],
        lose: Callable[[int], None],
    ) -> None:
        """Set up; `ask` sends a stub a question, `lose` is told of those that do not answer."""
        self._instances = instances
        self._ask = ask
        self._lose = lose
        #: Since when stubs owe an answer.
        self._asked_ns: dict[int, int] = {}
        self._next_ns = 0
        #: When tick() has something to do.
        self.due_ns = 0

    def tick(self, now_ns: int) -> None:
        """Ask who is idle, and report who has not answered in time."""
        self._report(now_ns)
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + EVERY_NS
            for serial, instance in list(self._instances.items()):
                if instance.state is Occupation.IDLE and serial not in self._asked_ns:
                    self._asked_ns[serial] = now_ns
                    self._ask(serial)
        oldest_ns = min(self._asked_ns.values(), default=now_ns)
        self.due_ns = min(self._next_ns, oldest_ns + ANSWER_WITHIN_NS)

    def _report(self, now_ns: int) -> None:
        for serial, asked_ns in list(self._asked_ns.items()):
            instance = self._instances.get(serial)
            if instance is None or instance.state is not Occupation.IDLE:
                del self._asked_ns[serial]
            elif now_ns - asked_ns >= ANSWER_WITHIN_NS:
                del self._asked_ns[serial]
                self._lose(serial)

    def answered(self, serial: int) -> None:
        """Take note that a stub has answered."""
        self._asked_ns.pop(serial, None)
