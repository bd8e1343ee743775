"""A model of a server, to be asked from this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, NamedTuple

from zmqtriton.embedded.guest import Guest
from zmqtriton.embedded.tensors import to_arrays, to_tensors
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody, ResponseBody
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.inference.admission import CheckedRequest, Options, prepare
from zmqtriton_frontends.inference.catalogue import ModelVersion
from zmqtriton_frontends.inference.load_on_demand import NotLoaded

_LATE = "the request's deadline has passed"


class InferenceResponse(NamedTuple):
    """One response of a model."""

    model: str
    version: int
    request_id: str
    #: numpy arrays by name.
    outputs: Mapping[str, Any]
    parameters: Mapping[str, Any]
    #: An error in place of outputs; only a decoupled model sends one and goes on.
    error: ZmqTritonError | None
    #: No other response follows.
    final: bool


class InferenceRequest(NamedTuple):
    """A request to a model; `create_request` makes one."""

    inputs: Mapping[str, Any]
    request_id: str = ""
    #: The wanted outputs; none means all.
    outputs: Sequence[str] = ()
    parameters: Mapping[str, Any] = {}
    priority: int = 0
    #: How long it may wait for the model, in microseconds; 0 means the model's default.
    timeout: int = 0
    #: The sequence that it belongs to; 0 or "" for none.
    correlation_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    #: How long all of it may take, in seconds; it is cancelled then.
    deadline_s: float | None = None


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

        The request is under way when this returns. Closing the iterator, or dropping it, cancels
        the request. Raises the server's error where there is no response, and TimeoutError when
        the request's deadline has passed.
        """
        asked = _request(request, inputs, options)
        return Responses(self._guest, self._begin(asked), asked.deadline_s)

    def async_infer(
        self,
        request: InferenceRequest | None = None,
        *,
        inputs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[InferenceResponse]:
        """Iterate likewise, in a coroutine of any event loop."""
        asked = _request(request, inputs, options)
        return AsyncResponses(self._guest, self._begin(asked), asked.deadline_s)

    def _begin(self, request: InferenceRequest) -> AsyncGenerator[InferenceResponse, None]:
        return _responses(self._guest, self.name, self.version, request)

    # ------------------------------------------------------------- the model

    def is_ready(self) -> bool:
        """True if it could execute a request now."""

        async def ask() -> bool:
            try:
                return self._guest.gateway.catalogue.is_model_ready(self.name, self.version)
            except ZmqTritonError:
                return False

        return self._guest.wait(ask())

    def metadata(self) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            return self._guest.gateway.catalogue.metadata(self.name, self.version)

        return self._guest.wait(ask())

    def config(self) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            return self._guest.gateway.catalogue.find(self.name, self.version).config

        return self._guest.wait(ask())

    @property
    def batch_ready(self) -> bool:
        """True if its first dimension is that of a batch."""
        return int(self.config().get("max_batch_size", 0)) > 0

    def statistics(self) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            gateway = self._guest.gateway
            gateway.catalogue.check_counted(self.name, self.version)
            return await gateway.statistics(self.name, int(self.version or -1))

        return self._guest.wait(ask())


def _request(
    request: InferenceRequest | None, inputs: Mapping[str, Any] | None, options: dict[str, Any]
) -> InferenceRequest:
    if request is None:
        return InferenceRequest(inputs or {}, **options)
    if inputs is not None:
        options["inputs"] = inputs
    return request._replace(**options)


async def _responses(
    guest: Guest, name: str, version: str, request: InferenceRequest
) -> AsyncGenerator[InferenceResponse, None]:
    """Ask, and iterate over the responses; to be run on the guest's loop."""
    gateway = guest.gateway
    deadline_ns = 0
    if request.deadline_s is not None:
        deadline_ns = time.monotonic_ns() + int(request.deadline_s * 1e9)
    try:
        found = gateway.catalogue.find(name, version)
    except NotLoaded as missing:
        await missing.load(deadline_ns)
        found = gateway.catalogue.find(name, version)
    checked = _checked(guest, found, request, deadline_ns)
    if not found.signature.is_decoupled:
        response = await gateway.infer(checked)
        yield _response(found, request, response, None, is_final=True)
        return
    stream = gateway.stream(checked)
    try:
        async for item in stream:
            if item.body is not None or item.error is not None or item.is_final:
                yield _of_item(found, request, item)
    finally:
        await stream.aclose()


def _checked(
    guest: Guest, found: ModelVersion, request: InferenceRequest, deadline_ns: int
) -> CheckedRequest:
    flags = request.sequence_start * SEQUENCE_START | request.sequence_end * SEQUENCE_END
    options = Options(flags, request.priority, request.timeout, deadline_ns, request.correlation_id)
    tensors = to_tensors(request.inputs, found.config)
    body = RequestBody(request.request_id, dict(request.parameters), list(request.outputs), tensors)
    return prepare(guest.gateway.catalogue, found, body, options)


def _of_item(found: ModelVersion, request: InferenceRequest, item: StreamItem) -> InferenceResponse:
    return _response(found, request, item.body, item.error, is_final=item.is_final)


def _response(
    found: ModelVersion,
    request: InferenceRequest,
    body: ResponseBody | None,
    error: ZmqTritonError | None,
    *,
    is_final: bool,
) -> InferenceResponse:
    return InferenceResponse(
        found.name,
        found.version,
        request.request_id,
        {} if body is None else to_arrays(body.outputs),
        {} if body is None else body.parameters,
        error,
        is_final,
    )


class Responses:
    """The responses to one request, for a thread."""

    def __init__(
        self,
        guest: Guest,
        source: AsyncGenerator[InferenceResponse, None],
        within_s: float | None,
    ) -> None:
        self._guest = guest
        self._source = source
        self._until_s = None if within_s is None else time.monotonic() + within_s
        #: The next response, asked for in advance; None when it is the last.
        self._next: Future[InferenceResponse | None] | None = guest.start(_next(source))

    def __iter__(self) -> Responses:
        return self

    def __next__(self) -> InferenceResponse:
        if self._next is None:
            raise StopIteration
        try:
            response = self._next.result(self.left_s())
        except FutureTimeoutError:
            self.close()
            raise TimeoutError(_LATE) from None
        except BaseException:
            self.close()
            raise
        if response is None:
            self._next = None
            raise StopIteration
        self.proceed(response)
        return response

    @property
    def coming(self) -> Future[InferenceResponse | None] | None:
        """The next response, or None if there is none any more."""
        return self._next

    def left_s(self) -> float | None:
        """Return how long the rest may take; None without a deadline."""
        return None if self._until_s is None else max(0.0, self._until_s - time.monotonic())

    def proceed(self, response: InferenceResponse) -> None:
        """Ask for the response after this one, if there is one."""
        if response.final:
            self._next = None
            self._end()
        else:
            self._next = self._guest.start(_next(self._source))

    def close(self) -> None:
        """Cancel the request, if it is not answered."""
        coming, self._next = self._next, None
        if coming is not None:
            coming.cancel()
            self._end()

    def _end(self) -> None:
        with suppress(ZmqTritonError):  # with the connection everything ends
            self._guest.start(_close(self._source))

    def __enter__(self) -> Responses:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_next"):
            self.close()


class AsyncResponses:
    """The responses to one request, for a coroutine of any event loop."""

    def __init__(
        self,
        guest: Guest,
        source: AsyncGenerator[InferenceResponse, None],
        within_s: float | None,
    ) -> None:
        self._responses = Responses(guest, source, within_s)

    def __aiter__(self) -> AsyncResponses:
        return self

    async def __anext__(self) -> InferenceResponse:
        responses = self._responses
        if responses.coming is None:
            raise StopAsyncIteration
        coming = asyncio.wrap_future(responses.coming)
        try:
            response = await asyncio.wait_for(coming, responses.left_s())
        except asyncio.TimeoutError:
            responses.close()
            raise TimeoutError(_LATE) from None
        except BaseException:
            responses.close()
            raise
        if response is None:
            responses.close()
            raise StopAsyncIteration
        responses.proceed(response)
        return response

    async def aclose(self) -> None:
        """Cancel the request, if it is not answered."""
        self._responses.close()


async def _next(source: AsyncGenerator[InferenceResponse, None]) -> InferenceResponse | None:
    async for response in source:
        return response
    return None


async def _close(source: AsyncGenerator[InferenceResponse, None]) -> None:
    for _ in range(2):
        try:
            await source.aclose()
            return
        except RuntimeError:  # what it was asked for is being cancelled at this moment
            await asyncio.sleep(0)
