"""The calls between a server and the one that takes over from it, as each of them sees them.

The next server has the listening sockets first. When its models are loaded it repeats what the old
server was told while it ran, by the same control calls, and then serves; at last the old one
leaves. Until that call nothing has happened there.

From the repetition on until the old one has ended each tells the other what it is told, before it
answers: a client may register its memory over one connection, and refer to it over another one,
whose server is the other. What only has a future is for the new one alone once the old one leaves.
Does no I/O.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from zmqtriton.supervisor.actions import GiveOutput, GiveSockets, PrintError, Send
from zmqtriton.supervisor.control.verbs import (
    ControlCall,
    RepeatedCall,
    Verb,
    Verbs,
    always,
)
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.introductions import Start
from zmqtriton.supervisor.server_processes.service_manager import ServiceManager
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported, ZmqTritonError

#: Performs a call of this server's own, and passes the result or the error on.
Perform = Callable[[str, dict[str, Any], Callable[[Any], None]], None]
#: Gets the other server's answer; None if it has ended.
Answered = Callable[[wire.CallResult | None], None]

#: What others build on comes first: where models come from, and that they serve.
_FIRST = ("repository.", "load", "unload")
#: No state shows it: files that are read anew.
_FORGOTTEN = "reload"
#: Requests that were begun at the old server refer to them.
_OF_BOTH = "regions."
_WITH_FILES = (
    "--one-by-one: files that came with loads end with the server before; unload these models, or "
    "put them into the repository"
)
#: Calls before the core has begun have lower numbers.
_FIRST_ID = 1 << 16


class ToldPart(Protocol):
    """A part of the server that was told something while it ran."""

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the calls by which a server that takes over has it, too."""


class LeavingServer(Protocol):
    @property
    def is_stopping(self) -> bool:
        """True once nothing new may begin."""

    def leave_to_successor(self) -> None:
        """End the server in order; another has its sockets."""

    def stop(self, status: int = 0) -> None:
        """End the server in order."""


class Succession:
    def __init__(
        self, plan: Plan, server: LeavingServer, manager: ServiceManager, start: Start
    ) -> None:
        self._plan = plan
        self._server = server
        self._manager = manager
        self._start = start
        #: The serial of the other server as a caller; 0 without any.
        self._other = 0
        self._is_predecessor = False
        #: It hears of changes, and it alone of some.
        self._hears_changes = self._has_left = False
        #: Since it has asked for the sockets.
        self._forgotten: list[RepeatedCall] = []
        self._ids = itertools.count(_FIRST_ID)
        #: Calls of the server before that wait for the end of the repetition; None when it is over.
        self._held: list[Callable[[], None]] | None = None
        #: Who waits until it has taken over.
        self._waiters: list[ControlCall] = []
        #: Who waits for an answer of the other server.
        self._waiting: dict[int, Answered] = {}
        #: Whether a call is repeated only by inherit_rest(), and those that are.
        self.leaves_later: Callable[[str], bool] = lambda verb: False
        self._later: list[RepeatedCall] = []
        #: Called when the server before has ended.
        self.on_end_of_predecessor: Callable[[], None] = lambda: None
        #: The parts whose calls are repeated.
        self.sources: Iterable[ToldPart] = ()

    @property
    def verbs(self) -> Verbs:
        return {
            "succession.start": Verb(self._give_start, of_operators=True),
            "succession.wait": Verb(self._wait, of_operators=True),
            "succession.sockets": Verb(self._give_sockets, of_operators=True),
            "succession.calls": Verb(self._tell_calls, of_operators=True),
            "succession.leave": Verb(self._leave, of_operators=True, changes=always),
        }

    # ------------------------------------------------------------ the old server

    def _give_start(self, call: ControlCall) -> None:
        self._check_service(call)
        if self._start.obstacle:
            raise Unsupported(self._start.obstacle)
        self._plan.enqueue(GiveOutput(call.caller, call.id, json.dumps(self._start._asdict())))

    def _wait(self, call: ControlCall) -> None:
        """Answer when another server has taken over."""
        self._waiters.append(call)
        self._manager.is_being_replaced = True

    def _check_service(self, call: ControlCall) -> None:
        """Raise Unsupported if systemd runs this server, and not the caller in the same service."""
        ours, reload = self._start.invocation, self._start.reload
        if self._manager.is_there and ours and call.arguments.get("invocation") != ours:
            raise Unsupported(f"systemd runs this server: `systemctl {reload}` replaces it")

    def _give_sockets(self, call: ControlCall) -> None:
        self._check_service(call)
        if self._other:
            raise Unavailable("another server is about to take over from it")
        self._other = call.caller
        self._plan.enqueue(GiveSockets(call.caller, call.id))

    def _tell_calls(self, call: ControlCall) -> None:
        self._hears_changes = self.is_other(call.caller)
        calls = [call for source in self.sources for call in source.repeated_calls()]
        call.answer([*sorted(calls, key=_place), *self._forgotten])

    def _leave(self, call: ControlCall) -> None:
        self._plan.log("I", "Another server has taken over; this one leaves.")
        self._manager.hand_over(call.arguments.get("pid", 0))
        call.answer(None)
        self._has_left = self.is_other(call.caller)
        for waiter in self._waiters:
            waiter.answer(None)
        self._server.leave_to_successor()

    # ------------------------------------------------------------ the next server

    def follow(self, predecessor: int) -> None:
        """Take over from the server that is this caller."""
        self._other, self._is_predecessor, self._held = predecessor, True, []
        self._manager.wait_for_turn()

    def inherit(self, perform: Perform, then: Callable[[], None]) -> None:
        """Repeat what the server before was told, if there is one."""
        if not self._is_predecessor:
            then()
            return

        def repeat_all(result: wire.CallResult | None) -> None:
            calls = [] if result is None or result.code else json.loads(result.result)
            self._later = [call for call in calls if self.leaves_later(call[0])]
            now = (call for call in calls if not self.leaves_later(call[0]))
            lost = [arguments["model"] for _, arguments in self._later if arguments.get("files")]
            if lost:
                self._plan.enqueue(PrintError(f"error: {_WITH_FILES}: {', '.join(lost)}"))
                self._server.stop(1)
            else:
                self._repeat(now, perform, end)

        def end() -> None:
            held, self._held = self._held or [], None
            for each in held:
                each()
            self._hears_changes = self._other != 0
            then()

        self._ask("succession.calls", {}, repeat_all)

    def inherit_rest(self, perform: Perform, then: Callable[[], None]) -> None:
        """Repeat the calls that are about models."""
        later, self._later = self._later, []
        self._repeat(iter(later), perform, then)

    def _repeat(
        self, calls: Iterator[RepeatedCall], perform: Perform, then: Callable[[], None]
    ) -> None:
        if self._server.is_stopping:
            return
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

    def has_opened(self) -> None:
        """This server serves, so the one before may leave."""
        if self._is_predecessor:
            self._plan.log("I", "This server serves; the one before is told to leave.")
            self._ask(
                "succession.leave",
                {"pid": self._start.pid},
                lambda _: self._manager.become_main(),
            )

    # ------------------------------------------------------------------- changes

    @property
    def has_other(self) -> bool:
        """True while another server has the same sockets, before this one or after it."""
        return self._other != 0

    def is_other(self, caller: int) -> bool:
        return caller == self._other and caller != 0

    def perform_in_turn(self, handle: Callable[[], None]) -> None:
        """Perform what the other server was told, behind what it was told before."""
        if self._held is None:
            handle()
        else:
            self._held.append(handle)

    def is_for_other_alone(self, verb: str) -> bool:
        """True if this server leaves, and the call is for the one that stays."""
        return self._has_left and not verb.startswith(_OF_BOTH)

    def ask_other(
        self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]
    ) -> None:
        """Have the other server perform a call, and pass on its answer."""
        ended = Unavailable("Server exiting")
        self._ask(verb, arguments, lambda result: answer(ended if result is None else result))

    def telling(
        self, verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]
    ) -> Callable[[Any], None]:
        """Return what answers a call of this server after the other one has been told."""

        def tell(result: Any) -> None:
            is_error = isinstance(result, ZmqTritonError)
            if is_error and self.is_for_other_alone(verb):  # it was under way
                self.ask_other(verb, arguments, answer)
            elif is_error or not self._other:
                answer(result)
            elif self._hears_changes:
                self._ask(verb, arguments, partial(finish, result))
            else:
                if verb == _FORGOTTEN and not self._is_predecessor:
                    self._forgotten.append((verb, arguments))
                answer(result)

        def finish(result: Any, there: wire.CallResult | None) -> None:
            if there is not None and there.code:
                other = "before" if self._is_predecessor else "that takes over"
                self._plan.log("W", f"not done by the server {other}: {verb}: {there.text}")
            answer(result)

        return tell

    def _ask(self, verb: str, arguments: dict[str, Any], then: Answered) -> None:
        if not self._other:
            then(None)
            return
        number = next(self._ids)
        self._waiting[number] = then
        client = "the server that takes over" if self._is_predecessor else "the server before"
        call = wire.Call(number, verb, json.dumps(arguments), client)
        self._plan.enqueue(Send(self._other, call))

    def take_answer(self, caller: int, answer: wire.CallResult) -> None:
        """Take an answer, which is the other server's if anybody has asked it."""
        then = self._waiting.pop(answer.id, None) if self.is_other(caller) else None
        if then is not None:
            then(answer)

    def caller_ended(self, caller: int) -> None:
        """A caller has ended; if it is the other server, this one is alone."""
        if not self.is_other(caller):
            return
        self._other, self._hears_changes, self._forgotten = 0, False, []
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            then(None)
        if self._is_predecessor:
            self.on_end_of_predecessor()


def _place(call: RepeatedCall) -> int:
    return next((i for i, verb in enumerate(_FIRST) if call[0].startswith(verb)), len(_FIRST))
