"""The calls of a server that takes over from this one.

It has the listening sockets first, and serves them once its models are loaded; then this server
leaves. Until that last call nothing has happened. Does no I/O.
"""

from __future__ import annotations

from zmqtriton.supervisor.actions import GiveSockets
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs, always
from zmqtriton.supervisor.features.feature import CoreParts, Feature


class Succession(Feature):
    def __init__(self, core: CoreParts) -> None:
        self._plan = core.plan
        self._server = core.server

    @property
    def verbs(self) -> Verbs:
        return {
            "succession.sockets": Verb(self._give_sockets, of_operators=True),
            "succession.leave": Verb(self._leave, of_operators=True, changes=always),
        }

    def _give_sockets(self, call: ControlCall) -> None:
        self._plan.enqueue(GiveSockets(call.caller, call.id))

    def _leave(self, call: ControlCall) -> None:
        self._plan.log("I", "Another server has taken over; this one leaves.")
        call.answer(None)
        self._server.leave_to_successor()
