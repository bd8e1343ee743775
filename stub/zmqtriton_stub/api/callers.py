"""The requests that the model's code executes; its calls and its log lines take facts from them.

They are in a context variable: a coroutine has the requests of the execute() that began it, and a
thread has none unless the model passes the context on, as asyncio.to_thread() does.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Collection, List, NamedTuple, Protocol, Sequence

from zmqtriton_floor import spans, wire

#: Maximum number of spans that a log line names.
_MAX_TRACES = 32


class ResponseSender(Protocol):
    """The sender of responses to a request, usable in any thread."""

    def send(self, response: Any = None, flags: int = 0) -> None: ...

    def is_cancelled(self) -> bool: ...


class ServedRequest(Protocol):
    """A request that this process has to answer."""

    #: The request as the broker sent it.
    work: wire.BatchedRequest
    #: Serial number of the peer that sent the request, and its id there.
    route: tuple[int, int]
    #: The id that the client has given it; "" if none.
    request_id: str
    is_answered: bool
    #: The implicit states of its sequence, by input; None if its model has none.
    states: dict[str, wire.Tensor] | None
    #: True if the model wants the request to be executed again after execute() returns. The request
    #: does not end then.
    wants_again: bool
    #: The requested names; none means all of the configuration.
    outputs: Sequence[str]

    def is_cancelled_now(self) -> bool:
        """Return whether the request was cancelled, by the broker's latest messages."""

    @property
    def requested_outputs(self) -> Collection[str]:
        """The names of the outputs to send."""

    def trace_context(self) -> tuple[str, int, str]:
        """Return, for requests made for this one, the span above them, its flags, and its context.

        The context is what OpenTelemetry's propagators read.
        """

    def make_sender(self) -> ResponseSender: ...

    def tell_progress(self, done: int) -> None: ...


#: The batch of the execute() that led here.
served: ContextVar[Sequence[ServedRequest]] = ContextVar("served", default=())


class Caller(NamedTuple):
    """The fields of wire.Request that a call takes from the requests that it is made for."""

    deadline_ns: int
    #: Key of one of these requests; the broker knows the whole batch by it.
    peer: int
    own_id: int


NOBODY = Caller(0, 0, 0)


def request_ids() -> List[str]:
    """Return the ids that clients have given the requests."""
    return [one.request_id for one in served.get() if not one.work.flags & wire.PADDING]


def traceparents() -> str:
    """Return the spans of the traced requests, with blanks between them."""
    traces = [one.work.trace for one in served.get() if one.work.trace]
    return " ".join([spans.parts(trace)[0] for trace in traces[:_MAX_TRACES]])


def find_caller() -> Caller:
    """Return the caller for a call that is made now, from the served requests without an answer.

    A call for several requests may last until the last of their deadlines.
    """
    caller, latest_ns = NOBODY, 0
    for one in served.get():
        work = one.work
        if one.is_answered or work.flags & wire.PADDING:
            continue
        if caller is NOBODY:
            latest_ns = work.deadline_ns
            caller = Caller(latest_ns, *one.route)
        elif latest_ns:
            latest_ns = max(latest_ns, work.deadline_ns) if work.deadline_ns else 0
    return caller if caller.deadline_ns == latest_ns else caller._replace(deadline_ns=latest_ns)
