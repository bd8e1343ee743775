"""The parts that serve requests of models, as the API needs them; they import it themselves."""

from __future__ import annotations

from typing import Any, Collection, Protocol

from zmqtriton_floor import wire


class ResponseSender(Protocol):
    """Answers one request from any thread."""

    def send(self, response: Any = None, flags: int = 0) -> None: ...

    def is_cancelled(self) -> bool: ...


class ServedRequest(Protocol):
    """A request that this process has to answer."""

    #: As the broker sent it.
    work: wire.BatchedRequest
    #: Its peer and its id there.
    route: tuple[int, int]
    #: The id that the client has given it; "" if none.
    request_id: str
    is_answered: bool
    #: The implicit states of its sequence, by input; None if its model has none.
    states: dict[str, wire.Tensor] | None
    #: It is to be executed again when execute() returns, and does not end then.
    wants_again: bool
    #: The requested names; none means all of the configuration.
    outputs: list[str]

    def is_cancelled_now(self) -> bool:
        """Return whether nobody waits for the answer any more, by the broker's latest messages."""

    @property
    def requested_outputs(self) -> Collection[str]:
        """The outputs that are to be sent."""

    def trace_context(self) -> tuple[str, int, str]:
        """Return the span above the requests made for this one, its flags, and its context.

        The context is what OpenTelemetry's propagators read.
        """

    def make_sender(self) -> ResponseSender: ...

    def tell_progress(self, done: int) -> None: ...
