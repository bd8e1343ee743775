"""A request with one response, in flight without a task or a future unless it needs memory first.

All that wait for one response derive from it; streams.py has those with many. The gateway gives it
the reply. A subclass makes the answer of it, and may not block, since it is called while reading
from the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

from zmqtriton_floor.errors import Cancelled
from zmqtriton_floor.wire import ResponseBody, decode_response
from zmqtriton_frontends.inference.admission import CheckedRequest, Copy
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.client_regions import Claim
from zmqtriton_frontends.inference.request_trace import Observer
from zmqtriton_frontends.tensors.payload import KeptBlocks, Payload
from zmqtriton_frontends.tensors.references import PlacedBody

_T = TypeVar("_T")


class Sender(Protocol):
    """The gateway, as far as a request needs it."""

    catalogue: Catalogue
    payload: Payload

    def begin(self, request: CheckedRequest, reply: PendingRequest, /) -> int | None:
        """Begin a request; None if memory has to be made first."""

    async def begin_late(self, request: CheckedRequest, reply: PendingRequest, /) -> int:
        """Begin a request when there is memory for its tensors; return its id."""

    def cancel(self, own_id: int, /) -> None:
        """Cancel a request."""


class PendingRequest:
    """Calls its subclass's _respond() or _refuse() once."""

    __slots__ = ("_claim", "_copy", "_gateway", "_id", "_is_opening", "_observer", "_task")

    #: The name of the sending of its answer in traces.
    SENDING: ClassVar[str]

    def __init__(self, gateway: Sender) -> None:
        self._gateway = gateway
        #: The gateway's id for it; 0 while it waits for its model, or for memory.
        self._id = 0
        #: Clients' shared memory for the outputs.
        self._claim: Claim | None = None
        #: Copy of the request to a version on trial; its answer is compared with this request's.
        self._copy: Copy | None = None
        self._task: asyncio.Task[Any] | None = None
        #: The task maps what its response refers to.
        self._is_opening = False
        self._observer: Observer | None = None

    def start(self, checked: CheckedRequest) -> None:
        """Send the request, which has passed the entrance."""
        self._send(checked)

    def _send(self, checked: CheckedRequest) -> None:
        self._observer = checked.observer
        if checked.places:
            self._claim = self._gateway.catalogue.regions.claim(checked.places)
            checked = checked.with_claim(self._claim)
        self._copy = checked.copy
        try:
            own_id = self._gateway.begin(checked, self)
        except BaseException:
            self._leave()
            raise
        if own_id is None:
            self.wait(self._begin_late(checked), lambda _: None)
        else:
            self._id = own_id

    def wait(self, awaited: Coroutine[Any, Any, _T], then: Callable[[_T], None]) -> None:
        """Await something, then call a function with its result, unless it is cancelled."""
        self._task = asyncio.get_running_loop().create_task(awaited)
        self._task.add_done_callback(partial(self._awaited, then))

    def cancel(self) -> None:
        """Cancel the request, whose caller has left. Does nothing if it is answered."""
        self._end_observed(Cancelled("request was cancelled"))
        task, self._task = self._task, None
        if self._id:
            self._gateway.cancel(self._id)
        # What opens a response goes on, and its result is released: a task that is cancelled before
        # its first step would never know what there is to release.
        if task is not None and not self._is_opening:
            task.cancel()
        self._leave()

    # -------------------------------------------------- called by the gateway

    def set_result(self, body: bytes, kept: KeptBlocks | None = None, /) -> None:
        """Take the response's body; `kept` is the memory that it refers to without a lease."""
        try:
            is_placed = type(body) is PlacedBody
            has_places = self._claim is not None
            response = decode_response(body, may_refer=is_placed, has_places=has_places)
            if is_placed:
                payload = self._gateway.payload
                opened = payload.open_now(response, kept)
                if opened is None:
                    self._is_opening = True
                    self.wait(payload.open(response, kept), self._opened)
                    return
                response = opened
            if self._observer is None and self._claim is None and self._copy is None:
                self._respond(response)
            else:
                self._take(response)
        except Exception as error:  # noqa: BLE001 - an edge: the gateway reads on in any case
            self.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        self._leave()
        self._end_observed(error)
        self._refuse(error)

    # ------------------------------------------------------------------ parts

    async def _begin_late(self, checked: CheckedRequest) -> None:
        # at once, and not when this task has ended: it may be cancelled before that is noticed
        self._id = await self._gateway.begin_late(checked, self)

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

    def _opened(self, response: ResponseBody) -> None:
        self._is_opening = False
        self._take(response)

    def _take(self, response: ResponseBody) -> None:
        if self._observer is not None:
            self._observer.take(response)
        if self._copy is not None:
            self._copy.take_stable(response)
            self._copy = None
        if self._claim is not None:
            response = self._claim.store(response)
            self._leave()
        self._respond(response)

    def _leave(self) -> None:
        """Leave clients' memory, and the copy, which is compared with nothing."""
        if self._claim is not None:
            self._claim.give_back()
            self._claim = None
        if self._copy is not None:
            self._copy.drop()
            self._copy = None

    def _end_observed(self, problem: Exception | None = None) -> None:
        if self._observer is not None:
            if problem is not None:
                self._observer.fail(problem)
            self._observer.end(self.SENDING)

    def _respond(self, response: ResponseBody) -> None:
        """Give the answer to its waiter."""
        raise NotImplementedError

    def _refuse(self, error: Exception) -> None:
        """Report the error to the waiter; must not raise."""
        raise NotImplementedError
