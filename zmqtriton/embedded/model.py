"""A model of a server that this process takes part in, and the responses to its requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from zmqtriton.embedded.guest import Guest
from zmqtriton.embedded.guest_sink import Coming, GuestSink
from zmqtriton.embedded.requests import InferenceRequest, InferenceResponse, merged
from zmqtriton_floor.errors import DeadlineExceeded, ZmqTritonError

_LATE = "the request's deadline has passed"


class Responses(Iterator[InferenceResponse], AbstractContextManager["Responses"]):
    """The responses to one request, for a thread."""

    def __init__(self, guest: Guest, name: str, version: str, request: InferenceRequest) -> None:
        """Send the request. Raises Unavailable without a connection."""
        self._name = name
        within_s = request.deadline_s
        self._guest = guest
        self._until_s = None if within_s is None else time.monotonic() + within_s
        #: The next response; None when there is nothing more to come.
        self.coming: Coming | None = None
        request, kept = guest.own(name, version, request)
        self._stream = GuestSink(guest.entrance, name, version, request, kept, guest.streams)
        self._await(self._stream.begin)

    def __repr__(self) -> str:
        return f"<Responses of '{self._name}': take them by `for`, or the next one by next()>"

    def __next__(self) -> InferenceResponse:
        if self.coming is None:
            raise StopIteration
        with self.receiving():
            response = self.coming.result(self.left_s())
        self.proceed(response)
        if response is None:
            raise StopIteration
        return response

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Cancel the request if waiting for its next response raises."""
        try:
            yield
        except (FutureTimeoutError, asyncio.TimeoutError, DeadlineExceeded):
            self.close()
            raise TimeoutError(_LATE) from None
        except BaseException:
            self.close()
            raise

    def left_s(self) -> float | None:
        """Return the time that is left for the responses; None without a deadline."""
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def proceed(self, response: InferenceResponse | None) -> None:
        """Request the response after this one, unless this is the last."""
        self.coming = None
        if response is not None and not response.final:
            self._await(self._stream.proceed)

    def _await(self, ask: Callable[[Coming], None]) -> None:
        """Have the stream get the next response. Raises Unavailable without a connection."""
        coming: Coming = Future()
        self._guest.soon(ask, coming)
        self.coming = coming

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        if self.coming is not None:
            self.coming = None
            with suppress(ZmqTritonError):  # with the connection everything ends
                self._guest.soon(self._stream.close)

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            self.close()


class AsyncResponses(AsyncIterator[InferenceResponse]):
    """The responses to one request, for a coroutine of any event loop."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    async def __anext__(self) -> InferenceResponse:
        responses = self._responses
        if responses.coming is None:
            raise StopAsyncIteration
        with responses.receiving():
            coming = asyncio.shield(asyncio.wrap_future(responses.coming))
            response = await asyncio.wait_for(coming, responses.left_s())
        responses.proceed(response)
        if response is None:
            raise StopAsyncIteration
        return response

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        self._responses.close()

    async def aclose(self) -> None:
        self.close()


class Model:
    """A model of a server, by name and version; "" means the newest that is loaded."""

    def __init__(self, guest: Guest, name: str, version: str = "") -> None:
        self._guest = guest
        self.name = name
        self.version = version

    def __repr__(self) -> str:
        return f"Model({self.name!r}{f', {self.version!r}' if self.version else ''})"

    # ---------------------------------------------------------------- asking

    def create_request(self, inputs: Mapping[str, Any], **options: Any) -> InferenceRequest:
        """Return a request; the options are the fields of InferenceRequest."""
        return InferenceRequest(inputs, **options)

    def infer(
        self,
        request: InferenceRequest | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Iterator[InferenceResponse]:
        """Iterate over the responses: one, or those that a decoupled model sends.

        The request is sent when this returns, so its inputs may change; over a socket, large inputs
        must not change before the first response. Closing the iterator, or dropping it, cancels the
        request. Raises the server's error where there is no response, and TimeoutError when the
        request's deadline has passed.
        """
        whole = merged(request, inputs, options)
        return Responses(self._guest, self.name, self.version, whole)

    def async_infer(
        self,
        request: InferenceRequest | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[InferenceResponse]:
        """Iterate over the responses as `infer` does, in a coroutine of any event loop.

        Over a socket, the loop must be one of the connection's thread.
        """
        whole = merged(request, inputs, options)
        return AsyncResponses(Responses(self._guest, self.name, self.version, whole))

    # ------------------------------------------------------------- the model

    def is_ready(self) -> bool:
        """True if the model could execute a request now."""

        def ask() -> bool:
            try:
                return self._guest.gateway.catalogue.is_model_ready(self.name, self.version)
            except ZmqTritonError:
                return False

        return self._guest.ask(ask)

    def metadata(self) -> dict[str, Any]:
        """Return the model's metadata in the protocol's form."""
        catalogue = self._guest.gateway.catalogue
        return self._guest.ask(lambda: catalogue.metadata(self.name, self.version))

    def config(self) -> dict[str, Any]:
        """Return the model's configuration as the protocol has it."""
        catalogue = self._guest.gateway.catalogue
        return self._guest.ask(lambda: catalogue.find(self.name, self.version).config)

    @property
    def batch_ready(self) -> bool:
        """True if the first dimension of the model's tensors is the batch."""
        return int(self.config().get("max_batch_size", 0)) > 0

    def statistics(self) -> dict[str, Any]:
        """Return the model's counters in the protocol's form."""

        async def ask() -> dict[str, Any]:
            gateway = self._guest.gateway
            gateway.catalogue.check_counted(self.name, self.version)
            return await gateway.statistics(self.name, int(self.version or -1))

        return self._guest.wait(ask())
