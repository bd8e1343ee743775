"""The calls of a server that takes over from this one, and what it does with their answers.

It has the listening sockets first. When its models are loaded it repeats here what the old server
was told while it ran, by the same control calls, and then serves; at last the old one leaves. Until
that call nothing has happened there. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from zmqtriton.supervisor.actions import AskPredecessor, GiveSockets
from zmqtriton.supervisor.control.verbs import (
    ControlCall,
    RepeatedCall,
    Verb,
    Verbs,
    always,
    at_once,
)
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import ZmqTritonError

#: Performs a call of this server's own, and passes the result or the error on.
Perform = Callable[[str, dict[str, Any], Callable[[Any], None]], None]


#: What others build on comes first: where models come from, and that they serve.
_FIRST = ("repository.", "load", "unload")


class Source(Protocol):
    """A part of the server that was told something while it ran."""

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the calls by which a server that takes over has it, too."""


class LeavingServer(Protocol):
    def leave_to_successor(self) -> None:
        """End the server in order; another has its sockets."""


class Succession:
    def __init__(
        self,
        plan: Plan,
        server: LeavingServer,
        sources: Iterable[Source],
        *,
        takes_over: bool,
    ) -> None:
        self._plan = plan
        self._server = server
        self._sources = sources
        self._takes_over = takes_over

    @property
    def verbs(self) -> Verbs:
        return {
            "succession.sockets": Verb(self._give_sockets, of_operators=True),
            "succession.calls": Verb(at_once(lambda _: self._repeated_calls())),
            "succession.leave": Verb(self._leave, of_operators=True, changes=always),
        }

    def _give_sockets(self, call: ControlCall) -> None:
        self._plan.enqueue(GiveSockets(call.caller, call.id))

    def _repeated_calls(self) -> list[RepeatedCall]:
        calls = [call for source in self._sources for call in source.repeated_calls()]
        return sorted(calls, key=_place)

    def _leave(self, call: ControlCall) -> None:
        self._plan.log("I", "Another server has taken over; this one leaves.")
        call.answer(None)
        self._server.leave_to_successor()

    # ------------------------------------------------------------ the next server

    def inherit(self, perform: Perform, then: Callable[[], None]) -> None:
        """Repeat what the server before was told, if there is one."""
        if not self._takes_over:
            then()
            return

        def repeat_all(calls: list[RepeatedCall]) -> None:
            self._repeat(iter(calls), perform, then)

        self._plan.enqueue(AskPredecessor(self._plan.expect(repeat_all)))

    def _repeat(
        self, calls: Iterator[RepeatedCall], perform: Perform, then: Callable[[], None]
    ) -> None:
        for verb, arguments in calls:

            def done(result: Any, verb: str = verb, arguments: Any = arguments) -> None:
                if isinstance(result, ZmqTritonError):
                    what = f"{verb} {arguments.get('name') or arguments.get('model') or ''}"
                    self._plan.log("W", f"not taken over: {what.rstrip()}: {result.text}")
                # not from here: a thousand that are answered at once would be a thousand deep
                self._plan.call_later(0.0, partial(self._repeat, calls, perform, then))

            perform(verb, arguments, done)
            return
        then()


def _place(call: RepeatedCall) -> int:
    return next((i for i, verb in enumerate(_FIRST) if call[0].startswith(verb)), len(_FIRST))
