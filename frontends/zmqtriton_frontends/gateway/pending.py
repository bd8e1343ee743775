"""A request from its check to its answer, without a task or a future unless it has to wait.

The protocol's end of the request is a sink, which gets one answer: the response, or an error
instead. After the answer, or a cancellation, the sink gets nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

from zmqtriton_floor.errors import Cancelled, Unsupported
from zmqtriton_floor.wire import ResponseBody, decode_response
from zmqtriton_frontends.inference.admission import CheckedRequest, Copy, Report
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.classification import classify
from zmqtriton_frontends.inference.client_regions import Claim
from zmqtriton_frontends.inference.model_version import ModelVersion
from zmqtriton_frontends.inference.open_sequences import OpenSequences
from zmqtriton_frontends.inference.request_trace import Observer
from zmqtriton_frontends.tensors.payload import KeptBlocks, Payload
from zmqtriton_frontends.tensors.references import PlacedBody

_T = TypeVar("_T")


class Sender(Protocol):
    """The gateway, as far as a request needs it."""

    catalogue: Catalogue
    payload: Payload

    def begin(self, request: CheckedRequest, reply: Pending, /) -> int | None:
        """Begin a request; None if memory has to be made first."""

    async def begin_late(self, request: CheckedRequest, reply: Pending, /) -> int:
        """Begin a request when there is memory for its tensors; return its id."""

    def cancel(self, own_id: int, /) -> None:
        """Cancel a request."""


class Sink(Protocol):
    """The protocol's end of a request. Must not block: its caller reads the broker's messages."""

    __slots__ = ()

    #: The name of the sending of its answer in traces.
    sending: ClassVar[str]
    #: Call admit() with the request.
    admits: bool = False

    def admit(self, checked: CheckedRequest, /) -> CheckedRequest:
        """Reserve room for a request before it is sent; return the request. Raises its errors."""
        return checked

    def respond(
        self, pending: Pending, response: ResponseBody, /
    ) -> Coroutine[Any, Any, None] | None:
        """Send the response to the client; return a coroutine if a part of that has to wait."""

    def refuse(self, error: Exception, /) -> None:
        """Send the error to the client; must not raise."""

    def follow(self, pending: Pending, checked: CheckedRequest, /) -> Coroutine[Any, Any, None]:
        """Send a request to a decoupled model, and pass each response to the client."""
        raise Unsupported("the model may answer more than once, and this call takes one response")


class _Over(Sink):
    """The sink of requests that have ended."""

    sending = ""

    def respond(self, pending: Pending, response: ResponseBody, /) -> None:
        """Drop a response."""

    def refuse(self, error: Exception, /) -> None:
        """Drop an error."""


_OVER = _Over()


class Pending:
    __slots__ = (
        "_claim",
        "_copy",
        "_gateway",
        "_is_opening",
        "_observer",
        "_sequences",
        "_sink",
        "_task",
        "form",
        "id",
        "model",
        "reports",
        "request_id",
    )

    def __init__(self, gateway: Sender, sink: Sink, sequences: OpenSequences | None = None) -> None:
        """Set up; `sequences` has the open sequences of the connection, if it keeps any."""
        self._gateway = gateway
        self._sink = sink
        self._sequences = sequences
        #: The gateway's id for it; 0 while it waits for its model, or for memory.
        self.id = 0
        #: Clients' shared memory for the outputs.
        self._claim: Claim | None = None
        #: Copy of the request to a version on trial; its answer is compared with this request's.
        self._copy: Copy | None = None
        self._task: asyncio.Task[Any] | None = None
        #: The task maps what its response refers to.
        self._is_opening = False
        self._observer: Observer | None = None
        # What its sink needs of the request once that is sent, without its tensors:
        self.model: ModelVersion
        #: The client's id of the request.
        self.request_id: str
        #: The form of the outputs that the client wants, as its protocol has read it.
        self.form: Any
        #: Reports that make the headers beside its answer.
        self.reports: tuple[Report, ...]

    def start(self, checked: CheckedRequest) -> None:
        """Send the request, which has passed the entrance. Its errors are its answer."""
        self._observer = checked.observer
        self.model, self.request_id = checked.model, checked.body.request_id
        self.form, self.reports = checked.form, checked.reports
        try:
            if self._sink.admits:
                checked = self._sink.admit(checked)
            if checked.options.correlation and self._sequences is not None:
                self._sequences.note(checked)
            if checked.model.signature.is_decoupled:
                self.wait(self._sink.follow(self, checked), self._end)
                return
            if checked.places:
                self._claim = self._gateway.catalogue.regions.claim(checked.places)
                checked = checked.with_claim(self._claim)
            self._copy = checked.copy
            own_id = self._gateway.begin(checked, self)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            self.set_exception(error)
            return
        if own_id is None:
            self.wait(self._begin_late(checked), lambda _: None)
        else:
            self.id = own_id

    def wait(self, awaited: Coroutine[Any, Any, _T], then: Callable[[_T], None]) -> None:
        """Await an object, then call a function with its result, unless cancelled before."""
        self._task = asyncio.get_running_loop().create_task(awaited)
        self._task.add_done_callback(partial(self._awaited, then))

    def cancel(self) -> None:
        """Cancel the request, whose caller has left. Does nothing once it is answered."""
        if self._sink is _OVER:
            return
        task, self._task = self._task, None
        if self.id:
            self._gateway.cancel(self.id)
        # What opens a response goes on, and its result is released: a task that is cancelled before
        # its first step would never know what there is to release.
        if task is not None and not self._is_opening:
            task.cancel()
        self._end(problem=Cancelled("request was cancelled"))

    # -------------------------------------------------- called by the gateway

    def classified(self, response: ResponseBody) -> ResponseBody:
        """Return a response with the classes that the client wants, in protocols of this form."""
        return classify(self.model, response, self.form)

    def set_result(self, body: bytes | ResponseBody, kept: KeptBlocks | None = None, /) -> None:
        """Answer with the response's body, or the response once its large tensors are mapped.

        `kept` is memory that the response refers to without a lease.
        """
        try:
            if isinstance(body, ResponseBody):
                response, self._is_opening = body, False
            else:
                is_placed = type(body) is PlacedBody
                has_places = self._claim is not None
                response = decode_response(body, may_refer=is_placed, has_places=has_places)
                if is_placed:
                    payload = self._gateway.payload
                    opened = payload.open_now(response, kept)
                    if opened is None:
                        self._is_opening = True
                        self.wait(payload.open(response, kept), self.set_result)
                        return
                    response = opened
            if self._observer is not None:
                self._observer.take(response)
            if self._copy is not None:
                self._copy.take_stable(response)
                self._copy = None
            if self._claim is not None:
                response = self._claim.store(response)
                self._leave()
            rest = self._sink.respond(self, response)
            if rest is not None:
                self.wait(rest, self._end)
            elif self._observer is not None:
                self._end()
            else:
                self._sink = _OVER
        except Exception as error:  # noqa: BLE001 - an edge: the gateway reads on in any case
            self.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        """Answer with an error."""
        sink = self._sink
        self._end(problem=error)
        sink.refuse(error)

    # ------------------------------------------------------------------ parts

    async def _begin_late(self, checked: CheckedRequest) -> None:
        # at once, and not when this task has ended: it may be cancelled before that is noticed
        self.id = await self._gateway.begin_late(checked, self)

    def _awaited(self, then: Callable[[_T], None], task: asyncio.Task[_T]) -> None:
        # Otherwise asyncio complains of an unseen error.
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or task is not self._task:
            return  # the request was cancelled
        self._task = None
        # Not raised here: it would know this frame, and the task in it, which knows the error. With
        # what its other frames have, such as a body, all of that would stay until a collection.
        if isinstance(error, Exception):
            self.set_exception(error)
            return
        try:
            then(task.result())
        except Exception as unexpected:  # noqa: BLE001 - an edge, as above
            self.set_exception(unexpected)

    def _leave(self) -> None:
        """Leave clients' memory, and the copy, which is compared with nothing."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        if self._copy is not None:
            self._copy.drop()
            self._copy = None

    def _end(self, _: None = None, problem: Exception | None = None) -> None:
        """End: nothing that comes later reaches the sink."""
        sink, self._sink = self._sink, _OVER
        self._leave()
        observer, self._observer = self._observer, None
        if observer is not None:
            if problem is not None:
                observer.fail(problem)
            observer.end(sink.sending)
