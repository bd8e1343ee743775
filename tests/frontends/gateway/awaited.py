"""A request whose response a task awaits."""

from __future__ import annotations

import asyncio

from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway.pending_request import PendingRequest, Sender
from zmqtriton_frontends.inference.admission import CheckedRequest


class AwaitedRequest(PendingRequest):
    """Gives its response, or the error, to a future."""

    SENDING = "TEST_SEND"

    def __init__(self, gateway: Sender) -> None:
        super().__init__(gateway)
        self.future: asyncio.Future[ResponseBody] = asyncio.get_running_loop().create_future()

    def begin(self, request: CheckedRequest) -> None:
        self._send(request)

    def _respond(self, response: ResponseBody) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def _refuse(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def infer(gateway: Sender, request: CheckedRequest) -> ResponseBody:
    """Return the one response. Cancelling this cancels the request."""
    pending = AwaitedRequest(gateway)
    pending.begin(request)
    del request
    try:
        return await pending.future
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        del pending  # the error in it knows this frame
