"""Hand-over from a running server to its successor: the calls between the two, on both sides.

1. The successor takes the listening sockets and loads its models. 2. It repeats the control calls
that the old server has received since its start, then serves. 3. It orders the old server to leave.
Before this step the old server is unchanged.

From step 2 on, each server forwards new control calls to the other before it answers them: a client
can register its memory over a connection to one server, and refer to it over a connection to the
other. Once the old server leaves, the successor alone performs calls, except those about regions.
Does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from zmqtriton.supervisor.actions import GiveOutput, GiveSockets, PrintError, Send
from zmqtriton.supervisor.control.verbs import BY_ACTION, ControlCall, RepeatedCall, Verb, Verbs
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.service_manager import ServiceManager
from zmqtriton.supervisor.settings import Start
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable, Unsupported, ZmqTritonError

#: Performs a call of this server's own; returns the result or the error.
Perform = Callable[[str, dict[str, Any]], Promise[Any]]

#: Prefixes of calls that are repeated first, in this order, because other calls depend on them.
_FIRST = ("repository.", "load", "unload")
#: The calls that a server that takes over repeats before it has models.
_WITHOUT_MODELS = ("regions.", "log.")
#: Prefix of calls that leave no state to repeat: they only read files again.
_FORGOTTEN = "reload"
#: Prefix of calls about regions, which requests of the old server use.
_OF_BOTH = "regions."
_WITH_FILES = (
    "--one-by-one: files that came with loads end with the server before; unload these models, or "
    "put them into the repository"
)


class ToldPart(Protocol):
    """A part of the server with state from control calls, which a successor also needs."""

    def repeated_calls(self) -> Iterable[RepeatedCall]:
        """Return the calls that create this state at a server that takes over."""


class LeavingServer(Protocol):
    @property
    def is_stopping(self) -> bool:
        """True once no new work may begin."""

    def leave_to_successor(self) -> None:
        """End the server in order; another server has its sockets."""

    def stop(self, status: int = 0) -> None:
        """End the server in order."""


class Succession:
    def __init__(
        self,
        plan: Plan,
        server: LeavingServer,
        manager: ServiceManager,
        start: Start,
        sources: Iterable[ToldPart],
        *,
        leaves_models: bool,
    ) -> None:
        """Set up with the parts whose calls are repeated; `leaves_models`: models' calls later."""
        self._plan = plan
        self._server = server
        self._manager = manager
        self._start = start
        #: The serial of the other server as a caller; 0 without any.
        self._other = 0
        self._is_predecessor = False
        #: True if changes are sent to the other server; true if it alone performs most calls.
        self._hears_changes = self._has_left = False
        #: Calls of this kind since the other server asked for the sockets.
        self._forgotten: list[RepeatedCall] = []
        #: True until the calls to the server before are repeated here.
        self._is_repeating = False
        self._has_taken_over = Promise[None]()
        self._leaves_models = leaves_models
        #: The calls that inherit_rest() repeats.
        self._later: list[RepeatedCall] = []
        self.end_of_predecessor = Promise[None]()
        self._sources = sources

    @property
    def verbs(self) -> Verbs:
        return {
            "succession.start": Verb(self._give_start, of_operators=True),
            "succession.wait": Verb(self._wait, of_operators=True),
            "succession.sockets": Verb(self._give_sockets, of_operators=True),
            "succession.calls": Verb(self._tell_calls, of_operators=True),
            "succession.leave": Verb(self._leave, of_operators=True, changes=Verb.always),
        }

    # ------------------------------------------------------------ the old server

    def _give_start(self, call: ControlCall) -> object:
        self._check_service(call)
        if self._start.obstacle:
            raise Unsupported(self._start.obstacle)
        self._plan.enqueue(GiveOutput(call.caller, call.id, json.dumps(self._start._asdict())))
        return BY_ACTION

    def _wait(self, call: ControlCall) -> Promise[None]:
        """Answer once another server has taken over."""
        self._manager.is_being_replaced = True
        return self._has_taken_over

    def _check_service(self, call: ControlCall) -> None:
        """Raise Unsupported if systemd runs this server, but the caller is not in its service."""
        ours, reload = self._start.invocation, self._start.reload
        if self._manager.is_there and ours and call.arguments.get("invocation") != ours:
            raise Unsupported(f"systemd runs this server: `systemctl {reload}` replaces it")

    def _give_sockets(self, call: ControlCall) -> object:
        self._check_service(call)
        if self._other:
            raise Unavailable("another server is about to take over from it: wait for that one")
        self._other = call.caller
        self._plan.enqueue(GiveSockets(call.caller, call.id))
        return BY_ACTION

    def _tell_calls(self, call: ControlCall) -> list[RepeatedCall]:
        self._hears_changes = self.is_other(call.caller)
        calls = [call for source in self._sources for call in source.repeated_calls()]
        return [*sorted(calls, key=_place), *self._forgotten]

    def _leave(self, call: ControlCall) -> None:
        self._plan.log("I", "Another server has taken over; this one leaves.")
        self._manager.hand_over(call.arguments.get("pid", 0))
        self._has_left = self.is_other(call.caller)
        self._has_taken_over()
        self._server.leave_to_successor()

    # ------------------------------------------------------------ the next server

    def follow(self, predecessor: int) -> None:
        """Take over from the server that is this caller."""
        self._other, self._is_predecessor, self._is_repeating = predecessor, True, True
        self._manager.wait_for_turn()

    async def inherit(self, perform: Perform) -> None:
        """Repeat the predecessor's calls, if there is a predecessor; stop if this server stops."""
        if not self._is_predecessor:
            return
        result = await self._ask("succession.calls", {})
        calls = [] if result is None or result.code else json.loads(result.result)
        self._later = [call for call in calls if self._leaves_later(call[0])]
        lost = [arguments["model"] for _, arguments in self._later if arguments.get("files")]
        if lost:
            self._plan.enqueue(PrintError(f"error: {_WITH_FILES}: {', '.join(lost)}"))
            self._server.stop(1)
        await self._repeat([call for call in calls if not self._leaves_later(call[0])], perform)
        self._is_repeating = False
        self._hears_changes = self._other != 0

    def _leaves_later(self, verb: str) -> bool:
        return self._leaves_models and not verb.startswith(_WITHOUT_MODELS)

    async def inherit_rest(self, perform: Perform) -> None:
        """Repeat the calls about models."""
        later, self._later = self._later, []
        await self._repeat(later, perform)

    async def _repeat(self, calls: Iterable[RepeatedCall], perform: Perform) -> None:
        for verb, arguments in calls:
            await self._goes_on()
            try:
                await perform(verb, arguments)
            except ZmqTritonError as error:
                what = f"{verb} {arguments.get('name') or arguments.get('model') or ''}"
                self._plan.log("W", f"not taken over: {what.rstrip()}: {error.text}")
        await self._goes_on()

    async def _goes_on(self) -> None:
        """Never return if this server stops, so that none of its ports opens."""
        if self._server.is_stopping:
            await Promise[None]()

    async def take_over(self, is_open: Promise[None]) -> None:
        """Let the predecessor leave as soon as this server serves."""
        await is_open
        if self._is_predecessor:
            self._plan.log("I", "This server serves; the one before is told to leave.")
            await self._ask("succession.leave", {"pid": self._start.pid})
            self._manager.become_main()

    # ------------------------------------------------------------------- changes

    @property
    def has_other(self) -> bool:
        """True while another server has the same sockets: a predecessor or a successor."""
        return self._other != 0

    def is_other(self, caller: int) -> bool:
        return caller == self._other and caller != 0

    async def turn(self) -> None:
        """Wait until the repeated calls are done, which the predecessor has received earlier."""
        await self._plan.until(lambda: not self._is_repeating)

    def is_for_other_alone(self, verb: str) -> bool:
        """True if this server leaves, and only the other server should perform the call."""
        return self._has_left and not verb.startswith(_OF_BOTH)

    async def ask_other(self, verb: str, arguments: dict[str, Any]) -> wire.CallResult:
        """Let the other server perform a call; return its answer."""
        result = await self._ask(verb, arguments)
        if result is None:
            raise Unavailable("Server exiting")
        return result

    async def tell_other(self, verb: str, arguments: dict[str, Any]) -> None:
        """Tell the other server, if there is one, of a call that was performed here."""
        if self._hears_changes:
            there = await self._ask(verb, arguments)
            if there is not None and there.code:
                other = "before" if self._is_predecessor else "that takes over"
                self._plan.log("W", f"not done by the server {other}: {verb}: {there.text}")
        elif self._other and verb == _FORGOTTEN and not self._is_predecessor:
            self._forgotten.append((verb, arguments))

    async def _ask(self, verb: str, arguments: dict[str, Any]) -> wire.CallResult | None:
        """Ask the other server; return None without one, or when it ends."""
        if not self._other:
            return None
        other, document = self._other, json.dumps(arguments)
        client = "the server that takes over" if self._is_predecessor else "the server before"
        answer: Promise[wire.CallResult] = self._plan.ask(
            lambda ticket: Send(other, wire.Call(ticket, verb, document, client))
        )
        await self._plan.until(lambda: answer.is_over or not self.is_other(other))
        return answer.value if answer.is_over else None

    def take_answer(self, caller: int, answer: wire.CallResult) -> None:
        """Take an answer, which is the other server's if anybody has asked it."""
        if self.is_other(caller):
            self._plan.answer(answer.id, answer)

    def caller_ended(self, caller: int) -> None:
        """Forget a caller that has ended; if it was the other server, this one is alone."""
        if self.is_other(caller):
            self._other, self._hears_changes, self._forgotten = 0, False, []
            if self._is_predecessor:
                self.end_of_predecessor()


def _place(call: RepeatedCall) -> int:
    return next((i for i, verb in enumerate(_FIRST) if call[0].startswith(verb)), len(_FIRST))
