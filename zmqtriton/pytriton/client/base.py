"""Everything that the model clients share: settings, and requests made of their arguments.

Asks no server.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from zmqtriton.pytriton.client.auth import create_auth_headers
from zmqtriton.pytriton.client.exceptions import (
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientValueError,
)
from zmqtriton.pytriton.client.utils import (
    DEFAULT_NETWORK_TIMEOUT_S,
    DEFAULT_WAIT_FOR_MODEL_TIMEOUT_S,
)
from zmqtriton.pytriton.client.wire.calls import Array, Inference, Parameter, datatype_name
from zmqtriton.pytriton.client.wire.url import TritonUrl
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig

DEFAULT_INFERENCE_TIMEOUT_S = 60.0

Parameters = Mapping[str, Parameter] | None
Outputs = dict[str, Array]
Client = TypeVar("Client", bound="BaseModelClient")
Server = TypeVar("Server")


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
        model, else the client itself; up to init_timeout_s, 300 s by default. A response may take
        inference_timeout_s, 60 s by default. With a model_config the server is not asked for it,
        and without ensure_model_is_ready not waited for either.
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
        """Return a client of the same model, which asks for nothing that the other knows."""
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
        """Return the server; a call that waits for no model may take the network timeout."""
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
    """Check all that needs no knowledge of the model. Raises PyTritonClientValueError."""
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
    """Return the outputs of a sample, without the batch axis if the model has one."""
    if config.max_batch_size <= 0:
        return outputs
    return {name: array[0] for name, array in outputs.items()}
