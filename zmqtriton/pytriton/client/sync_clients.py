"""Clients for threads, for models with one response and for models that send several."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

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
from zmqtriton.pytriton.client.utils import (
    get_model_config,
    wait_for_model_ready,
    wait_for_server_ready,
)
from zmqtriton.pytriton.client.wire.calls import Array, ServerError
from zmqtriton.pytriton.client.wire.server_clients import ServerClient
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig


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

    A call sends its request at once. As in PyTriton no response is too late, unless timeout_scope
    says what inference_timeout_s counts for. An iterator that is closed or dropped cancels its
    request.
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
