"""A request whose response a task awaits."""

from __future__ import annotations

import asyncio

from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.gateway.pending import Pending, Sender, Sink
from zmqtriton_frontends.inference.admission import CheckedRequest


class AwaitedSink(Sink):
    """Gives the response, or the error, to a future."""

    sending = "TEST_SEND"

    def __init__(self) -> None:
        self.future: asyncio.Future[ResponseBody] = asyncio.get_running_loop().create_future()

    def respond(self, pending: Pending, response: ResponseBody, /) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def refuse(self, error: Exception, /) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def infer(gateway: Sender, request: CheckedRequest) -> ResponseBody:
    """Return the one response. Cancelling this cancels the request."""
    sink = AwaitedSink()
    pending = Pending(gateway, sink)
    pending.start(request)
    del request
    try:
        return await sink.future
    except asyncio.CancelledError:
        pending.cancel()
        raise
    finally:
        del pending, sink  # the error in it knows this frame
