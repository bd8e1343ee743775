"""Documents of jobs, and the responses of a stream: while its job runs, and when it has ended.

The response to a stream has events, as the client would have got them. A client reads events from a
position on, and gets the position for its next question, so no state is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zmqtriton_extras.jobs.messages import Document
from zmqtriton_extras.jobs.process.store import QUEUED, RUNNING, Job
from zmqtriton_extras.jobs.process.webhooks.records import Webhook

#: The limit of the answer to one question, unless a single event is larger.
PAGE_BYTES = 1 << 20
MAX_EVENT_BYTES = 64 << 20
EVENTS = "text/event-stream"
_END = b"\n\n"
_DATA = b"data:"

#: Returns this many bytes of an answer from a place on, or fewer at its end.
Read = Callable[[int, int], bytes]


def describe(job: Job, place: int = 0, webhook: Webhook | None = None) -> Document:
    document: Document = {"id": job.id, "path": job.path, "state": job.state}
    if place:
        document["place"] = place
    times = {"submitted": job.submitted, "started": job.started, "ended": job.ended}
    document |= {name: round(at, 3) for name, at in times.items() if at is not None}
    if job.state not in (QUEUED, RUNNING) and job.status is not None:
        document |= {"status": job.status, "result": f"/v2/jobs/{job.id}/result"}
    if job.reason is not None:
        document["reason"] = job.reason
    if webhook is not None:
        document["webhook"] = _describe_webhook(webhook)
    return document


def _describe_webhook(webhook: Webhook) -> Document:
    document: Document = {"url": webhook.url, "state": webhook.state, "tries": webhook.tries}
    if webhook.due is not None:
        document["next"] = round(webhook.due, 3)
    if webhook.problem is not None:
        document["problem"] = webhook.problem
    return document


class Page(NamedTuple):
    #: Documents of JSON.
    responses: list[bytes]
    #: Number of the next response.
    next: int


def read_page(read: Read, after: int, is_over: bool) -> Page:
    """Return the complete events from a position on. Raises ValueError for one too large."""
    size = PAGE_BYTES
    while True:
        part = read(after, size)
        is_all, last = len(part) < size, part.rfind(_END)
        end = len(part) if is_all and is_over else last + len(_END) if last >= 0 else 0
        if end or is_all:
            return Page(_documents(part[:end]), after + end)
        if size >= MAX_EVENT_BYTES:
            raise ValueError(f"a response can have at most {MAX_EVENT_BYTES} bytes")
        size *= 8


def _documents(events: bytes) -> list[bytes]:
    """Return the data of events that are JSON documents, unlike OpenAI's last one."""
    documents = []
    for event in events.split(_END):
        lines = event.split(b"\n")
        data = b"\n".join(line[len(_DATA) :].strip() for line in lines if line.startswith(_DATA))
        if data.startswith(b"{"):
            documents.append(data)
    return documents
