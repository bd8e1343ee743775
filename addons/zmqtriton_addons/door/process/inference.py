"""One inference through the door: its request, and its response or stream of responses.

A request to a model that is not decoupled needs no task; a stream is one, which waits for credit of
its client and for room among what the client has yet to read.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import Protocol

from zmqtriton_addons.door.process import responses
from zmqtriton_addons.door.process.infer_request import DoorRequest
from zmqtriton_addons.door.process.responses import Message
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.entrance import Ask, Content, Entrance
from zmqtriton_frontends.gateway import PendingRequest, StreamItem
from zmqtriton_frontends.inference import (
    CheckedRequest,
    ModelVersion,
    OpenSequences,
    classify,
    now_ns,
)
from zmqtriton_frontends.process import Arrivals
from zmqtriton_frontends.tensors.references import is_large


class Asker(Protocol):
    """The client, as far as one of its requests is concerned."""

    #: Those that it has begun and not ended.
    sequences: OpenSequences

    def answer(self, number: int, message: Message) -> None:
        """Send the final message of a request."""

    def arrivals(self) -> Arrivals:
        """Return the room of responses of a stream that wait to be sent."""

    def waiting(self) -> AbstractContextManager[None]:
        """Note that it is the client's turn in this block: it has to grant more."""

    async def send(self, message: Message, arrivals: Arrivals) -> None:
        """Send another message when there is room for it."""

    def hold_back(self, number: int) -> None:
        """Begin no further request until this one has its place in the order of requests."""

    def let_go(self, number: int) -> None:
        """End that."""


class DoorInference(PendingRequest):
    """A request from its header to its last response."""

    __slots__ = ("_asker", "_credit", "_entrance", "_granted", "_model", "_number", "_request")

    SENDING = "DOOR_SEND"

    def __init__(self, entrance: Entrance, asker: Asker, number: int, request: DoorRequest) -> None:
        super().__init__(entrance.gateway)
        self._entrance = entrance
        self._asker = asker
        self._number = number
        self._request = request
        self._model: ModelVersion
        #: How many responses of a stream may be sent now; None without a limit.
        self._credit = request.credit
        #: What the stream waits for while it has no credit.
        self._granted: asyncio.Future[None] | None = None

    def begin(self) -> None:
        """Begin; it may be answered before this returns."""
        request = self._request
        ask = Ask(
            (request.model, request.version),
            partial(_read, request),
            request.headers.get,
            deadline_ns=request.options.deadline_ns,
            begun_ns=now_ns(),
        )
        self._entrance.begin(ask, self)

    def grant(self, responses: int) -> None:
        """Let so many responses more be sent."""
        if self._credit is not None:
            self._credit += responses
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(None)

    def start(self, checked: CheckedRequest) -> None:
        self._model = checked.model
        self._asker.sequences.note(checked)
        is_stream = checked.model.signature.is_decoupled
        if is_stream or is_large(checked.body):
            # room for its tensors may have to be made; what comes next must not overtake it
            self._asker.hold_back(self._number)
            checked = checked._replace(on_asked=lambda: self._asker.let_go(self._number))
            # they are where they are to be, or will be
            request = self._request
            self._request = request._replace(body=request.body._replace(inputs=[]))
        if is_stream:
            self._observer = checked.observer
            self.wait(self._follow(checked), lambda _: None)
        else:
            self._send(checked)

    # --------------------------------------------------------- a response

    def _respond(self, response: ResponseBody) -> None:
        message = self._message(response, is_final=True)
        if self._observer is not None:
            self._end_observed()
        self._asker.answer(self._number, message)

    def _refuse(self, error: Exception) -> None:
        problem = responses.failure("infer", error)
        self._asker.answer(self._number, responses.error(self._number, problem))

    def _message(self, response: ResponseBody, *, is_final: bool) -> Message:
        request = self._request
        if request.classes:
            response = classify(self._model, response, request.classes)
        return responses.response(
            self._number,
            self._model,
            request.body.request_id,
            response,
            request.places,
            is_final=is_final,
        )

    # ----------------------------------------------------------- a stream

    async def _follow(self, checked: CheckedRequest) -> None:
        arrivals = self._asker.arrivals()
        items = self._entrance.responses(checked, arrivals)
        async with aclosing(items):
            async for item in items:
                message = self._item(item)
                if item.is_final:
                    arrivals.pass_on()
                    self._asker.answer(self._number, message)
                    return
                del item
                # while this waits nothing more of the model's stream is taken
                if self._credit is not None:
                    await self._spend_credit()
                await self._asker.send(message, arrivals)
                del message  # its memory may be the model's

    async def _spend_credit(self) -> None:
        while not self._credit:
            self._granted = asyncio.get_running_loop().create_future()
            with self._asker.waiting():
                await self._granted
        self._credit -= 1

    def _item(self, item: StreamItem) -> Message:
        number = self._number
        if item.error is not None:
            return responses.error(number, item.error, is_final=item.is_final)
        if item.body is None:
            return responses.end(number)
        try:
            return self._message(item.body, is_final=item.is_final)
        except ZmqTritonError as unsendable:
            return responses.error(number, unsendable, is_final=item.is_final)


def _read(request: DoorRequest, model: ModelVersion) -> Content:
    return Content(request.body, request.options, request.places)
