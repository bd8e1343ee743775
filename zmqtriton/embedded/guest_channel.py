"""The way to the models of a server by a guest, and the responses that come on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from typing import Any

from zmqtriton.embedded.guest import Guest
from zmqtriton.embedded.pending_stream import Coming, PendingStream
from zmqtriton.embedded.requests import InferenceRequest, InferenceResponse
from zmqtriton_floor.errors import DeadlineExceeded, ZmqTritonError

_LATE = "the request's deadline has passed"


class GuestChannel:
    """The way to the models of a server that this process takes part in."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def infer(self, model: str, version: str, request: InferenceRequest) -> Responses:
        return Responses(self._guest, model, version, request)

    def async_infer(self, model: str, version: str, request: InferenceRequest) -> AsyncResponses:
        return AsyncResponses(self.infer(model, version, request))

    def is_ready(self, model: str, version: str) -> bool:
        catalogue = self._guest.gateway.catalogue

        def ask() -> bool:
            try:
                return catalogue.is_model_ready(model, version)
            except ZmqTritonError:
                return False

        return self._guest.ask(ask)

    def metadata(self, model: str, version: str) -> dict[str, Any]:
        catalogue = self._guest.gateway.catalogue
        return self._guest.ask(lambda: catalogue.metadata(model, version))

    def config(self, model: str, version: str) -> dict[str, Any]:
        catalogue = self._guest.gateway.catalogue
        return self._guest.ask(lambda: catalogue.find(model, version).config)

    def statistics(self, model: str, version: str) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            gateway = self._guest.gateway
            gateway.catalogue.check_counted(model, version)
            return await gateway.statistics(model, int(version or -1))

        return self._guest.wait(ask())


class Responses:
    """The responses to one request, for a thread."""

    def __init__(self, guest: Guest, name: str, version: str, request: InferenceRequest) -> None:
        """Ask. Raises Unavailable without a connection."""
        self._name = name
        within_s = request.deadline_s
        self._guest = guest
        self._until_s = None if within_s is None else time.monotonic() + within_s
        #: None when there is nothing more to come.
        self._coming: Coming | None = None
        self._stream = PendingStream(guest.entrance, name, version, request, guest.streams)
        self._await(self._stream.begin)

    def __repr__(self) -> str:
        return f"<Responses of '{self._name}': take them by `for`, or the next one by next()>"

    def __iter__(self) -> Responses:
        return self

    def __next__(self) -> InferenceResponse:
        if self._coming is None:
            raise StopIteration
        with self.receiving():
            response = self._coming.result(self.left_s())
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

    @property
    def coming(self) -> Coming | None:
        """The next response, or None after the last."""
        return self._coming

    def left_s(self) -> float | None:
        """Return how long the rest may take; None without a deadline."""
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def proceed(self, response: InferenceResponse | None) -> None:
        """Ask for the response after this one, if there is one."""
        self._coming = None
        if response is not None and not response.final:
            self._await(self._stream.proceed)

    def _await(self, ask: Callable[[Coming], None]) -> None:
        """Have the stream get the next response. Raises Unavailable without a connection."""
        coming: Coming = Future()
        self._guest.soon(ask, coming)
        self._coming = coming

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        if self._coming is not None:
            self._coming = None
            with suppress(ZmqTritonError):  # with the connection everything ends
                self._guest.soon(self._stream.close)

    def __enter__(self) -> Responses:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            self.close()


class AsyncResponses:
    """The responses to one request, for a coroutine of any event loop."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    def __aiter__(self) -> AsyncResponses:
        return self

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
