"""A request in flight without a task or a future, unless memory has to be made first.

The base of what answers most inferences over HTTP and over gRPC: the gateway gives it the reply. A
subclass makes the answer of it, and may not block, since it is called while reading from the
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, TypeVar

from zmqtriton_floor.wire import ResponseBody, decode_response
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.client_regions import Claim
from zmqtriton_frontends.inference.request_trace import Trace
from zmqtriton_frontends.tensors.references import PlacedBody

_T = TypeVar("_T")


class PendingRequest:
    """Calls its subclass's _respond() or _refuse() once."""

    __slots__ = ("_claim", "_gateway", "_id", "_is_opening", "_task", "_trace")

    #: The name of the sending of its answer in traces.
    SENDING: ClassVar[str]

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        #: The gateway's id for it; 0 while it waits for its model, or if a task sends it.
        self._id = 0
        #: Clients' shared memory for the outputs.
        self._claim: Claim | None = None
        self._task: asyncio.Task[Any] | None = None
        #: The task maps what its response refers to.
        self._is_opening = False
        self._trace: Trace | None = None

    def _send(self, checked: CheckedRequest) -> None:
        self._trace = checked.trace
        if checked.places:
            self._claim = self._gateway.catalogue.regions.claim(checked.places)
        try:
            own_id = self._gateway.begin(checked, self)
        except BaseException:
            self._give_back()
            raise
        if own_id is None:
            checked = checked.without_places()  # they are claimed here
            self._await(self._gateway.infer(checked), self._take)
        else:
            self._id = own_id

    def cancel(self) -> None:
        """Cancel it: nobody waits for it any more. Does nothing if it is answered."""
        self._end_trace("request was cancelled")
        task, self._task = self._task, None
        if self._id:
            self._gateway.cancel(self._id)
        # What opens a response goes on, and its result is released: a task that is cancelled before
        # its first step would never know what there is to release.
        if task is not None and not self._is_opening:
            task.cancel()
        self._give_back()

    # -------------------------------------------------- called by the gateway

    def set_result(self, body: bytes, /) -> None:
        try:
            is_placed = type(body) is PlacedBody
            response = decode_response(body, may_refer=is_placed)
            if is_placed:
                payload = self._gateway.payload
                opened = payload.open_now(response)
                if opened is None:
                    self._is_opening = True
                    self._await(payload.open(response), self._opened)
                    return
                response = opened
            if self._trace is None and self._claim is None:
                self._respond(response)
            else:
                self._take(response)
        except Exception as error:  # noqa: BLE001 - an edge: the gateway reads on in any case
            self.set_exception(error)

    def set_exception(self, error: Exception, /) -> None:
        self._give_back()
        self._end_trace(str(error))
        self._refuse(error)

    # ------------------------------------------------------------------ parts

    def _await(self, awaited: Coroutine[Any, Any, _T], then: Callable[[_T], None]) -> None:
        self._task = asyncio.get_running_loop().create_task(awaited)
        self._task.add_done_callback(partial(self._awaited, then))

    def _awaited(self, then: Callable[[_T], None], task: asyncio.Task[_T]) -> None:
        # Otherwise asyncio complains of an unseen error.
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or task is not self._task:
            return  # nobody waits for it any more
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
        if self._trace is not None:
            self._trace.mark("INFER_RESPONSE_COMPLETE")
        if self._claim is not None:
            response = self._claim.store(response)
            self._give_back()
        self._respond(response)

    def _give_back(self) -> None:
        if self._claim is not None:
            self._claim.give_back()
            self._claim = None

    def _end_trace(self, problem: str = "") -> None:
        if self._trace is not None:
            if problem:
                self._trace.fail(problem)
            self._trace.end(self.SENDING)

    def _respond(self, response: ResponseBody) -> None:
        """Give the answer to its waiter."""
        raise NotImplementedError

    def _refuse(self, error: Exception) -> None:
        """Report the error to the waiter; must not raise."""
        raise NotImplementedError
