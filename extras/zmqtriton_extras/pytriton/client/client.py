"""All model clients: for threads, with futures, and for asyncio; for one or several responses.

They share their settings, and the making of requests from arguments, which needs no server.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from threading import BoundedSemaphore, Lock, Thread
from typing import Any, ClassVar, TypeVar

import numpy as np

from zmqtriton_extras.pytriton.client.asyncio_utils import (
    asyncio_get_model_config,
    asyncio_wait_for_model_ready,
)
from zmqtriton_extras.pytriton.client.auth import create_auth_headers
from zmqtriton_extras.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientQueueFullError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from zmqtriton_extras.pytriton.client.utils import (
    DEFAULT_NETWORK_TIMEOUT_S,
    DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S,
    get_model_config,
    wait_for_model_ready,
    wait_for_server_ready,
)
from zmqtriton_extras.pytriton.client.wire.calls import (
    TIMEOUT_SCOPES,
    Array,
    Inference,
    Parameter,
    ServerError,
    StreamTimeout,
    TimeoutScope,
    TritonUrl,
    datatype_name,
)
from zmqtriton_extras.pytriton.client.wire.server_clients import AsyncServerClient, ServerClient
from zmqtriton_extras.pytriton.model_config.triton_model_config import TritonModelConfig

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]


DEFAULT_INFERENCE_TIMEOUT_S = 60.0

Parameters = Mapping[str, Parameter] | None
Outputs = dict[str, Array]
Client = TypeVar("Client", bound="BaseModelClient")
Server = TypeVar("Server")
_Decoupled = TypeVar("_Decoupled", bound="BaseDecoupledClient")
T = TypeVar("T")


class BaseModelClient:
    """The settings of a client of one model."""

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        lazy_init: bool = True,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: TritonModelConfig | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
    ) -> None:
        """Set up a client of `http://host:port` or `grpc://host:port`.

        model_version is the latest by default. With lazy_init the first request waits for the
        model, else the constructor does, up to init_timeout_s, 300 s by default. A response may
        take inference_timeout_s, 60 s by default. With a model_config the server is not asked for
        it; without ensure_model_is_ready, the client does not wait for the model either.
        """
        self._url = TritonUrl.from_url(url)
        self._model_name = model_name
        self._model_version = model_version
        self._lazy_init = lazy_init
        self._init_timeout_s = _or_default(init_timeout_s, DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S)
        self._inference_timeout_s = _or_default(inference_timeout_s, DEFAULT_INFERENCE_TIMEOUT_S)
        self._model_config = model_config
        self._is_model_ready = model_config is not None and not ensure_model_is_ready
        self._access_token = access_token
        self._request_ids = itertools.count()
        self._open()

    def _open(self) -> None:
        """Set up the connection; called once, by the constructor."""
        raise NotImplementedError

    @classmethod
    def from_existing_client(cls: type[Client], existing_client: BaseModelClient) -> Client:
        """Return a client of the same model, which takes over what the other knows."""
        return cls(
            url=existing_client._url.with_scheme,
            model_name=existing_client._model_name,
            model_version=existing_client._model_version,
            init_timeout_s=existing_client._init_timeout_s,
            inference_timeout_s=existing_client._inference_timeout_s,
            model_config=existing_client._model_config,
            ensure_model_is_ready=False,
            access_token=existing_client._access_token,
        )

    def _server_of(self, kind: Callable[[TritonUrl, float, Mapping[str, str]], Server]) -> Server:
        """Return the server; a call that does not wait for a model has the network timeout."""
        timeout_s = min(DEFAULT_NETWORK_TIMEOUT_S, self._init_timeout_s)
        headers = {}
        if self._access_token is not None:
            headers = create_auth_headers(self._access_token, self._url.scheme)
        return kind(self._url, timeout_s, headers)

    def _inference(
        self, config: TritonModelConfig, inputs: Mapping[str, Array], parameters: Parameters
    ) -> Inference:
        """Make a request for all outputs that the configuration names."""
        return Inference(
            model_name=self._model_name,
            model_version=self._model_version or "",
            id=str(next(self._request_ids)),
            inputs=inputs,
            outputs=[output.name for output in config.outputs or ()],
            parameters=parameters or {},
        )


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def check_arguments(
    inputs: Sequence[Any], named_inputs: Mapping[str, Any], parameters: Any, headers: Any
) -> None:
    """Check the arguments as far as that needs no model. Raises PyTritonClientValueError."""
    if not inputs and not named_inputs:
        raise PyTritonClientValueError("Provide input data")
    if inputs and named_inputs:
        raise PyTritonClientValueError(
            "Use either positional either keyword method arguments convention"
        )
    for mapping in (parameters, headers):
        _check_mapping({} if mapping is None else mapping)


def _check_mapping(mapping: Any) -> None:
    if not isinstance(mapping, dict):
        raise PyTritonClientValueError("Parameters and headers must be a dictionary")
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise PyTritonClientValueError("Parameter/header key must be a string")
        if not isinstance(value, str | int | bool):
            raise PyTritonClientValueError(
                "Parameter/header value must be a string, integer or boolean"
            )


def to_headers(headers: Parameters) -> dict[str, str]:
    return {name: str(value) for name, value in (headers or {}).items()}


def to_arrays(
    config: TritonModelConfig,
    inputs: Sequence[Any],
    named_inputs: Mapping[str, Any],
    *,
    is_sample: bool,
) -> dict[str, Array]:
    """Return the inputs of a request by name; to a sample for a batching model, add the batch axis.

    Raises PyTritonClientValueError, and RuntimeError for texts that are not encoded.
    """
    named = dict(named_inputs) if named_inputs else _name(config, inputs)
    adds_axis = is_sample and config.max_batch_size > 0
    return {name: _to_array(name, value, adds_axis) for name, value in named.items()}


def _name(config: TritonModelConfig, inputs: Sequence[Any]) -> dict[str, Any]:
    names = [tensor.name for tensor in config.inputs or ()]
    if len(inputs) > len(names):
        raise PyTritonClientValueError(
            f"Model {config.model_name} has {len(names)} inputs, got {len(inputs)}"
        )
    return dict(zip(names, inputs, strict=False))  # the last ones may be optional


def _to_array(name: str, value: Any, adds_axis: bool) -> Array:
    is_scalar = adds_axis and isinstance(value, np.generic)
    if not is_scalar and not isinstance(value, np.ndarray):
        raise PyTritonClientValueError(
            f"Input {name} is not a numpy array. Got {type(value)} instead."
        )
    if adds_axis:
        value = value[np.newaxis, ...]
    if value.dtype == object and value.size and not isinstance(value.flat[0], bytes):
        raise RuntimeError(
            f"Numpy array for {name!r} input with dtype=object should contain encoded strings "
            f"(e.g. into utf-8). Element type: {type(value.flat[0])}"
        )
    if value.dtype.kind == "U":
        raise RuntimeError(
            "Unicode inputs are not supported. "
            f"Encode numpy array for {name!r} input (ex. with np.char.encode(array, 'utf-8'))."
        )
    try:
        datatype_name(value)
    except KeyError:
        raise PyTritonClientValueError(f"Input {name} has no datatype for {value.dtype}") from None
    array: Array = value
    return array


def require_batching(config: TritonModelConfig) -> None:
    """Raise PyTritonClientModelDoesntSupportBatchingError for a model without batches."""
    if config.max_batch_size <= 0:
        raise PyTritonClientModelDoesntSupportBatchingError(
            f"Model {config.model_name} doesn't support batching - use infer_sample method instead"
        )


def to_sample(config: TritonModelConfig, outputs: dict[str, Array]) -> dict[str, Array]:
    """Return the outputs of a sample, without the batch axis of a batching model."""
    if config.max_batch_size <= 0:
        return outputs
    return {name: array[0] for name, array in outputs.items()}


class BaseDecoupledClient(BaseModelClient):
    """The settings of a client of one decoupled model."""

    #: Scope of timeouts, as in PyTriton.
    _default_scope: ClassVar[TimeoutScope]

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        timeout_scope: TimeoutScope | None = None,
        **settings: Any,
    ) -> None:
        """Set up; the settings are those of ModelClient.

        timeout_scope says what inference_timeout_s limits: "none" for nothing, "response" for the
        wait for each response, "stream" for all responses together.
        """
        scope = self._default_scope if timeout_scope is None else timeout_scope
        if scope not in TIMEOUT_SCOPES:
            raise PyTritonClientValueError(
                f"timeout_scope must be one of {', '.join(TIMEOUT_SCOPES)}, got {scope!r}"
            )
        self._timeout_scope: TimeoutScope = scope
        super().__init__(url, model_name, model_version, **settings)

    @classmethod
    def from_existing_client(cls: type[_Decoupled], existing_client: BaseModelClient) -> _Decoupled:
        client = super().from_existing_client(existing_client)
        if isinstance(existing_client, BaseDecoupledClient):
            client._timeout_scope = existing_client._timeout_scope
        return client

    def _stream_timeout(self) -> StreamTimeout:
        return StreamTimeout(self._inference_timeout_s, self._timeout_scope)


class ModelClient(BaseModelClient):
    """A client whose calls wait for the response; any number of threads may use it at once."""

    def _open(self) -> None:
        self._init_lock = Lock()
        self._server: ServerClient | None = self._server_of(ServerClient)
        if not self._lazy_init:
            try:
                self._initialize()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; later calls raise PyTritonClientClosedError."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _opened(self) -> ServerClient:
        if self._server is None:
            raise PyTritonClientClosedError("ModelClient is closed")
        return self._server

    def _initialize(self) -> TritonModelConfig:
        """Return the configuration, once the model has been seen ready."""
        server = self._opened()
        if self._model_config is not None and self._is_model_ready:
            return self._model_config
        deadline_s = time.monotonic() + self._init_timeout_s
        # One thread asks for all that come meanwhile.
        is_mine = self._init_lock.acquire(timeout=self._init_timeout_s)
        try:
            if self._model_config is None or not self._is_model_ready:
                left_s = max(0.0, deadline_s - time.monotonic())
                self._model_config = self._read_config(server, left_s)
                self._is_model_ready = True
            return self._model_config
        finally:
            if is_mine:
                self._init_lock.release()

    def _read_config(self, server: ServerClient, timeout_s: float) -> TritonModelConfig:
        name, version = self._model_name, self._model_version
        if self._model_config is not None:
            wait_for_model_ready(server, name, version, timeout_s)
            return self._model_config
        with _translated_errors("reading of the model config", server.timeout_s):
            return get_model_config(server, name, version, timeout_s)

    def wait_for_model(self, timeout_s: float) -> None:
        """Wait for the server and the model. Raises PyTritonClientTimeoutError."""
        wait_for_model_ready(self._opened(), self._model_name, self._model_version, timeout_s)

    def wait_for_server(self, timeout_s: float) -> None:
        """Wait for the server alone. Raises PyTritonClientTimeoutError."""
        wait_for_server_ready(self._opened(), timeout_s)

    @property
    def model_config(self) -> TritonModelConfig:
        """Return the model's configuration; the server is asked for it when the model is ready."""
        return self._model_config or self._initialize()

    @property
    def is_batching_supported(self) -> bool:
        return self.model_config.max_batch_size > 0

    def load_model(
        self, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load the model into the server, with this configuration (JSON) and these files.

        Files have names as `file:1/model.py`, and need a configuration. Raises PyTritonClientError.
        """
        with _translated_errors("loading of the model", self._init_timeout_s):
            self._opened().load_model(
                self._model_name, config=config, files=files, timeout_s=self._init_timeout_s
            )

    def unload_model(self) -> None:
        """Have the server unload the model. Raises PyTritonClientError."""
        with _translated_errors("unloading of the model", self._init_timeout_s):
            self._opened().unload_model(self._model_name, timeout_s=self._init_timeout_s)

    def infer_sample(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Outputs:
        """Return the outputs for one sample: arrays without a batch axis, by position or by name.

        Raises PyTritonClientError.
        """
        check_arguments(inputs, named_inputs, parameters, headers)
        config = self._initialize()
        arrays = to_arrays(config, inputs, named_inputs, is_sample=True)
        return to_sample(config, self._infer(config, arrays, parameters, headers))

    def infer_batch(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Outputs:
        """Return the outputs for a batch: arrays whose first axis counts samples.

        Raises PyTritonClientError.
        """
        check_arguments(inputs, named_inputs, parameters, headers)
        config = self._initialize()
        require_batching(config)
        arrays = to_arrays(config, inputs, named_inputs, is_sample=False)
        return self._infer(config, arrays, parameters, headers)

    def _infer(
        self,
        config: TritonModelConfig,
        arrays: Mapping[str, Array],
        parameters: Parameters,
        headers: Parameters,
    ) -> Outputs:
        if config.decoupled:
            raise PyTritonClientInferenceServerError(
                "Model config is decoupled. Use DecoupledModelClient instead."
            )
        inference = self._inference(config, arrays, parameters)
        timeout_s = self._inference_timeout_s
        with _translated_errors("inference request", timeout_s):
            return self._opened().infer(inference, to_headers(headers), timeout_s)


@contextmanager
def _translated_errors(action: str, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        raise PyTritonClientInferenceServerError(
            f"Error occurred during {action}. Message: {error}"
        ) from error
    except OSError as error:
        raise PyTritonClientTimeoutError(
            f"Timeout occurred during {action}. Timeout: {timeout_s} s. Message: {error}"
        ) from error


class DecoupledModelClient(BaseDecoupledClient, ModelClient):
    """A client of a decoupled model, over gRPC: its calls return iterators over responses.

    A call sends its request at once. As in PyTriton responses have no timeout, unless timeout_scope
    says what inference_timeout_s limits. An iterator that is closed or dropped cancels its request.
    """

    _default_scope = "none"

    def _open(self) -> None:
        if self._url.scheme != "grpc":
            raise PyTritonClientValueError(
                "DecoupledModelClient is only supported for grpc protocol"
            )
        super()._open()

    def infer_sample(  # type: ignore[override]
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Iterator[Outputs]:
        """Return an iterator over the outputs for one sample. Raises PyTritonClientError."""
        check_arguments(inputs, named_inputs, parameters, headers)
        config = self._initialize()
        arrays = to_arrays(config, inputs, named_inputs, is_sample=True)
        responses = self._stream(config, arrays, parameters, headers)
        return (to_sample(config, outputs) for outputs in responses)

    def infer_batch(  # type: ignore[override]
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Iterator[Outputs]:
        """Return an iterator over the outputs for a batch. Raises PyTritonClientError."""
        check_arguments(inputs, named_inputs, parameters, headers)
        config = self._initialize()
        require_batching(config)
        arrays = to_arrays(config, inputs, named_inputs, is_sample=False)
        return self._stream(config, arrays, parameters, headers)

    def _stream(
        self,
        config: TritonModelConfig,
        arrays: Mapping[str, Array],
        parameters: Parameters,
        headers: Parameters,
    ) -> Iterator[Outputs]:
        if not config.decoupled:
            raise PyTritonClientInferenceServerError(
                "Model config is coupled. Use ModelClient instead."
            )
        inference = self._inference(config, arrays, parameters)
        timeout_s = self._inference_timeout_s
        with _translated_errors("inference request", timeout_s):
            responses = self._opened().stream_infer(
                inference, to_headers(headers), self._stream_timeout()
            )
        return _translated(responses, timeout_s)


def _translated(responses: Iterator[Outputs], timeout_s: float) -> Iterator[Outputs]:
    with _translated_errors("inference request", timeout_s):
        yield from responses


class FuturesModelClient:
    """A client for many requests at a time."""

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        max_workers: int | None = 128,
        max_queue_size: int | None = 128,
        non_blocking: bool = False,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
    ) -> None:
        """Set up a client with up to max_workers threads; None is no limit.

        max_queue_size requests may wait for a thread. A further call blocks, up to
        inference_timeout_s if that is given, or is refused at once if non_blocking.
        """
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if max_queue_size is not None and max_queue_size <= 0:
            raise ValueError("max_queue_size must be greater than 0")
        self._client = ModelClient(
            url,
            model_name,
            model_version,
            init_timeout_s=init_timeout_s,
            inference_timeout_s=inference_timeout_s,
        )
        # Threads are made as requests need them.
        self._threads = ThreadPoolExecutor(sys.maxsize if max_workers is None else max_workers)
        self._places = None if max_queue_size is None else BoundedSemaphore(max_queue_size)
        self._place_timeout_s = 0.0 if non_blocking else inference_timeout_s
        self._is_closed = False

    def __enter__(self) -> FuturesModelClient:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Take no more calls; answer earlier ones, and wait for them unless `wait` is false."""
        if self._is_closed:
            return
        self._is_closed = True
        if wait:
            self._finish()
        else:
            Thread(target=self._finish).start()

    def _finish(self) -> None:
        self._threads.shutdown()
        self._client.close()

    def wait_for_model(self, timeout_s: float) -> Future[None]:
        """Return a future that is done, with the result None, when the model is ready."""
        return self._submit(lambda: self._client.wait_for_model(timeout_s))

    def model_config(self) -> Future[TritonModelConfig]:
        """Return a future of the model's configuration."""
        return self._submit(lambda: self._client.model_config)

    def infer_sample(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Future[Outputs]:
        """Return a future of the outputs for one sample, see `ModelClient.infer_sample`.

        Raises PyTritonClientClosedError and PyTritonClientQueueFullError.
        """
        return self._submit(
            lambda: self._client.infer_sample(
                *inputs, parameters=parameters, headers=headers, **named_inputs
            )
        )

    def infer_batch(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Future[Outputs]:
        """Return a future of the outputs for a batch, see `ModelClient.infer_batch`.

        Raises PyTritonClientClosedError and PyTritonClientQueueFullError.
        """
        return self._submit(
            lambda: self._client.infer_batch(
                *inputs, parameters=parameters, headers=headers, **named_inputs
            )
        )

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        places = self._places
        if self._is_closed:
            raise PyTritonClientClosedError("FutureModelClient is already closed")
        if places is None:
            return self._start(call)
        if not places.acquire(timeout=self._place_timeout_s):
            raise PyTritonClientQueueFullError("Queue is full")

        def run() -> T:
            places.release()
            return call()

        def leave(future: Future[T]) -> None:
            if future.cancelled():  # it never ran
                places.release()

        future = self._start(run)
        future.add_done_callback(leave)
        return future

    def _start(self, call: Callable[[], T]) -> Future[T]:
        try:
            return self._threads.submit(call)
        except RuntimeError as error:  # closed meanwhile
            raise PyTritonClientClosedError("FutureModelClient is already closed") from error


class AsyncioModelClient(BaseModelClient):
    """A client whose calls are awaited; any number of tasks of one event loop may use it at once.

    With lazy_init=False `async with` waits for the model.
    """

    def _open(self) -> None:
        self._init_lock = asyncio.Lock()
        self._server: AsyncServerClient | None = self._server_of(AsyncServerClient)

    async def __aenter__(self) -> Any:
        if not self._lazy_init:
            try:
                await self._initialize()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later calls raise PyTritonClientClosedError."""
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def _opened(self) -> AsyncServerClient:
        if self._server is None:
            raise PyTritonClientClosedError("AsyncioModelClient is closed")
        return self._server

    async def _initialize(self) -> TritonModelConfig:
        """Return the configuration, once the model has been seen ready."""
        server = self._opened()
        if self._model_config is not None and self._is_model_ready:
            return self._model_config
        try:
            config = await asyncio.wait_for(self._wait_and_read(server), self._init_timeout_s)
        except asyncio.TimeoutError:
            raise PyTritonClientTimeoutError(
                f"Timeout exceeded while waiting for model {self._model_name} to be ready"
            ) from None
        self._is_model_ready = True
        self._model_config = config
        return config

    async def _wait_and_read(self, server: AsyncServerClient) -> TritonModelConfig:
        name, version, timeout_s = self._model_name, self._model_version, self._init_timeout_s
        async with self._init_lock:  # one task asks for all that come meanwhile
            if self._model_config is None:
                with self._translated_errors():
                    return await asyncio_get_model_config(server, name, version, timeout_s)
            if not self._is_model_ready:
                await asyncio_wait_for_model_ready(server, name, version, timeout_s)
            return self._model_config

    async def wait_for_model(self, timeout_s: float) -> None:
        """Wait for the server and the model. Raises PyTritonClientTimeoutError."""
        await asyncio_wait_for_model_ready(
            self._opened(), self._model_name, self._model_version, timeout_s
        )

    @property
    async def model_config(self) -> TritonModelConfig:
        """Return the model's configuration; the server is asked for it when the model is ready."""
        return self._model_config or await self._initialize()

    async def infer_sample(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Outputs:
        """Return the outputs for one sample: arrays without a batch axis, by position or by name.

        Raises PyTritonClientError.
        """
        check_arguments(inputs, named_inputs, parameters, headers)
        config = await self._initialize()
        arrays = to_arrays(config, inputs, named_inputs, is_sample=True)
        return to_sample(config, await self._infer(config, arrays, parameters, headers))

    async def infer_batch(
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> Outputs:
        """Return the outputs for a batch: arrays whose first axis counts samples.

        Raises PyTritonClientError.
        """
        check_arguments(inputs, named_inputs, parameters, headers)
        config = await self._initialize()
        require_batching(config)
        arrays = to_arrays(config, inputs, named_inputs, is_sample=False)
        return await self._infer(config, arrays, parameters, headers)

    async def _infer(
        self,
        config: TritonModelConfig,
        arrays: Mapping[str, Array],
        parameters: Parameters,
        headers: Parameters,
    ) -> Outputs:
        if config.decoupled:
            raise PyTritonClientInferenceServerError(
                "Model config is decoupled. Use AsyncioDecoupledModelClient instead."
            )
        inference = self._inference(config, arrays, parameters)
        with self._translated_errors():
            return await self._opened().infer(
                inference, to_headers(headers), self._inference_timeout_s
            )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except ServerError as error:
            raise PyTritonClientInferenceServerError(
                f"Error occurred on Triton Inference Server side:\n {error}"
            ) from error
        except OSError as error:
            raise PyTritonClientTimeoutError(
                f"Timeout exceeded while running inference for {self._model_name}"
            ) from error


class AsyncioDecoupledModelClient(BaseDecoupledClient, AsyncioModelClient):
    """A client of a decoupled model, over gRPC: its calls return asynchronous iterators.

    Iterating sends the request. Each response may take the inference timeout, unless timeout_scope
    says otherwise. An iterator that is closed cancels its request.
    """

    _default_scope = "response"

    async def infer_sample(  # type: ignore[override]
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> AsyncIterator[Outputs]:
        """Iterate over the outputs for one sample. Raises PyTritonClientError."""
        check_arguments(inputs, named_inputs, parameters, headers)
        config = await self._initialize()
        arrays = to_arrays(config, inputs, named_inputs, is_sample=True)
        async with aclosing(self._stream(config, arrays, parameters, headers)) as responses:
            async for outputs in responses:
                yield to_sample(config, outputs)

    async def infer_batch(  # type: ignore[override]
        self,
        *inputs: Array,
        parameters: Parameters = None,
        headers: Parameters = None,
        **named_inputs: Array,
    ) -> AsyncIterator[Outputs]:
        """Iterate over the outputs for a batch. Raises PyTritonClientError."""
        check_arguments(inputs, named_inputs, parameters, headers)
        config = await self._initialize()
        require_batching(config)
        arrays = to_arrays(config, inputs, named_inputs, is_sample=False)
        async with aclosing(self._stream(config, arrays, parameters, headers)) as responses:
            async for outputs in responses:
                yield outputs

    async def _stream(
        self,
        config: TritonModelConfig,
        arrays: Mapping[str, Array],
        parameters: Parameters,
        headers: Parameters,
    ) -> AsyncGenerator[Outputs, None]:
        if not config.decoupled:
            raise PyTritonClientInferenceServerError(
                "Model config is coupled. Use AsyncioModelClient instead."
            )
        if self._url.scheme != "grpc":
            raise PyTritonClientValueError(
                "AsyncioDecoupledModelClient is only supported for grpc protocol"
            )
        inference = self._inference(config, arrays, parameters)
        with self._translated_errors():
            responses = self._opened().stream_infer(
                inference, to_headers(headers), self._stream_timeout()
            )
            async with aclosing(responses):
                async for outputs in responses:
                    yield outputs
