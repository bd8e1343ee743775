"""The opening of the services: gRPC first, then HTTP, and the open ones. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection

from zmqtriton import addons
from zmqtriton.supervisor.actions import PrepareToListen, TellOpen
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.roles import ARBITER, GRPC, HTTP, METRICS
from zmqtriton_floor import wire

#: The services that processes report as open, by role; one of them is enough.
_SERVICES = {
    ARBITER: frozenset({"HTTPService", "Sagemaker HTTPService", "Vertex AI HTTPService"}),
    GRPC: frozenset({"GRPCInferenceService"}),
    **{name: frozenset({s.title}) for name, s in addons.local_services().items()},
    METRICS: frozenset({"Metrics Service", "Agent Check"}),
}
#: These open after gRPC, as in Triton: a client that finds the server ready over HTTP may use gRPC.
_OPENING_LAST = frozenset({ARBITER, HTTP})
#: If gRPC does not come up in this time, HTTP opens without it.
_AWAIT_GRPC_S = 5.0


class Opening:
    def __init__(
        self,
        plan: Plan,
        roles: Collection[str],
        tell_to_listen: Callable[[Callable[[str], bool]], None],
    ) -> None:
        """Set up; `tell_to_listen` has the processes listen whose role passes a test."""
        self._plan = plan
        self._roles = roles
        self._has_begun = self._includes_last = False
        self._listening: set[tuple[str, str]] = set()
        self._tell_to_listen = tell_to_listen
        #: Calls what it is given when clients may connect.
        self.prepare: Callable[[Callable[[], None]], None] = lambda then: then()
        #: Called when they can connect to every service.
        self.on_complete: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Let clients connect, after the preparation."""
        self.prepare(self._begin)

    def _begin(self) -> None:
        self._has_begun = True
        self._plan.enqueue(PrepareToListen())
        self._tell_to_listen(lambda role: role not in _OPENING_LAST)
        if GRPC in self._roles:
            self._plan.call_later(_AWAIT_GRPC_S, self._open_last)
        else:
            self._open_last()

    def _open_last(self) -> None:
        if not self._includes_last:
            self._includes_last = True
            self._tell_to_listen(lambda role: role in _OPENING_LAST)

    def has_reached(self, role: str) -> bool:
        """True if a new process of this role listens at once."""
        return self._includes_last or (self._has_begun and role not in _OPENING_LAST)

    def record(self, role: str, message: wire.Listening) -> None:
        """A process has opened its service."""
        where = (message.service, message.address)
        if where not in self._listening:
            was_complete = self.is_complete
            self._listening.add(where)
            self._plan.log("I", f"Started {message.service} at {message.address}")
            if self.is_complete and not was_complete:
                self._plan.enqueue(TellOpen())
                self.on_complete()
        if role == GRPC:
            self._open_last()

    @property
    def is_complete(self) -> bool:
        """True once every service has opened; it stays True while one is replaced."""
        opened = {service for service, _ in self._listening}
        return self._has_begun and not any(
            opened.isdisjoint(_SERVICES[role]) for role in self._roles if role in _SERVICES
        )
