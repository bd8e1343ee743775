"""Clients for an event loop, for models with one response and for decoupled models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from zmqtriton.pytriton.client.asyncio_utils import (
    asyncio_get_model_config,
    asyncio_wait_for_model_ready,
)
from zmqtriton.pytriton.client.base import (
    BaseModelClient,
    Outputs,
    Parameters,
    check_arguments,
    require_batching,
    to_arrays,
    to_headers,
    to_sample,
)
from zmqtriton.pytriton.client.decoupled import BaseDecoupledClient
from zmqtriton.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from zmqtriton.pytriton.client.wire.calls import Array, ServerError
from zmqtriton.pytriton.client.wire.server_clients import AsyncServerClient
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig


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
