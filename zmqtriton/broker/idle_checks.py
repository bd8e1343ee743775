"""Liveness checks of idle stubs: a stub that does not answer in time is reported as lost.

Executing stubs are not checked, since a model may be slow. Knows no clock and no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zmqtriton.broker.scheduling.instances import Instance, Occupation

_SECOND_NS = 1_000_000_000
#: Time between two rounds of checks. Each check wakes a process, so it is long.
EVERY_NS = 30 * _SECOND_NS
#: Maximum time for a stub's answer. Something in its process can hold the interpreter, for example
#: while it loads a file.
ANSWER_WITHIN_NS = 45 * _SECOND_NS


class IdleChecks:
    def __init__(
        self,
        instances: Mapping[int, Instance],
        ask: Callable[[int], object],
        lose: Callable[[int], None],
    ) -> None:
        """Set up; `ask` sends a stub a question, `lose` is called for a stub without an answer."""
        self._instances = instances
        self._ask = ask
        self._lose = lose
        #: Times of the questions that are still unanswered, by the stub's serial.
        self._asked_ns: dict[int, int] = {}
        self._next_ns = 0
        #: Time when tick() has something to do.
        self.due_ns = 0

    def tick(self, now_ns: int) -> None:
        """Ask idle stubs, and report stubs that have not answered in time."""
        for serial, asked_ns in list(self._asked_ns.items()):
            instance = self._instances.get(serial)
            is_idle = instance is not None and instance.state is Occupation.IDLE
            if not is_idle or now_ns - asked_ns >= ANSWER_WITHIN_NS:
                del self._asked_ns[serial]
                if is_idle:
                    self._lose(serial)
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + EVERY_NS
            for serial, instance in list(self._instances.items()):
                if instance.state is Occupation.IDLE and serial not in self._asked_ns:
                    self._asked_ns[serial] = now_ns
                    self._ask(serial)
        oldest_ns = min(self._asked_ns.values(), default=now_ns)
        self.due_ns = min(self._next_ns, oldest_ns + ANSWER_WITHIN_NS)

    def answered(self, serial: int) -> None:
        """Process a stub's answer; the stub is asked again in a later round."""
        self._asked_ns.pop(serial, None)
