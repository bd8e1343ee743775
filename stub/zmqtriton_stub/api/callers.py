"""The requests on whose behalf the model's code runs, for what it asks and prints meanwhile.

In a context variable: a coroutine has those of the execute() that began it, and a thread has none
unless the model hands it the context, as asyncio.to_thread() does.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import List, NamedTuple, Sequence

from zmqtriton_floor import spans, wire
from zmqtriton_stub.api.protocols import ServedRequest

#: So many spans are named in a line of the log.
_MAX_TRACES = 32

#: The batch of the execute() that led here.
served: ContextVar[Sequence[ServedRequest]] = ContextVar("served", default=())


class Caller(NamedTuple):
    """The fields of wire.Request that a call takes from the requests that it is made for."""

    deadline_ns: int
    #: The key of one of them, by which the broker knows all of its batch.
    peer: int
    own_id: int


NOBODY = Caller(0, 0, 0)


def request_ids() -> List[str]:
    """Return the ids that clients have given the requests."""
    return [one.request_id for one in served.get() if not one.work.flags & wire.PADDING]


def traceparents() -> str:
    """Return the spans of those that are traced, with blanks between them."""
    traces = [one.work.trace for one in served.get() if one.work.trace]
    return " ".join([spans.parts(trace)[0] for trace in traces[:_MAX_TRACES]])


def find_caller() -> Caller:
    """Return it for a call that is made here; answered ones count no more.

    What serves several requests may go on until the last of their deadlines.
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
