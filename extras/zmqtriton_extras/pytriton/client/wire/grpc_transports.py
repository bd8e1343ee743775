"""Calls over gRPC: Triton's messages with raw tensors; for threads, and for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf import json_format

from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton_extras.pytriton.client.wire.calls import (
    Array,
    Call,
    Headers,
    Inference,
    Parameter,
    ServerError,
    StreamTimeout,
    TritonUrl,
    check_parameters,
    datatype_name,
    to_array,
    to_data,
)
from zmqtriton_protos import SERVICES, Method

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that comes late is found soon after; by default it may take two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
SERVICE = "inference.GRPCInferenceService"
_METHODS = {method.name: method for method in SERVICES[SERVICE]}


class GrpcRequest(NamedTuple):
    method: Method
    message: Any


class GrpcCalls:
    """The calls as gRPC messages."""

    def server_live(self) -> Call[bool]:
        return Call(_request("ServerLive"), lambda answer: bool(answer.live))

    def server_ready(self) -> Call[bool]:
        return Call(_request("ServerReady"), lambda answer: bool(answer.ready))

    def model_ready(self, name: str, version: str) -> Call[bool]:
        return Call(_request("ModelReady", name=name, version=version), lambda a: bool(a.ready))

    def model_config(self, name: str, version: str) -> Call[dict[str, Any]]:
        return Call(_request("ModelConfig", name=name, version=version), _config)

    def repository_index(self) -> Call[list[dict[str, str]]]:
        return Call(_request("RepositoryIndex"), _index)

    def load_model(self, name: str, config: str | None, files: Mapping[str, bytes]) -> Call[None]:
        request = _request("RepositoryModelLoad", model_name=name)
        for path, data in files.items():
            request.message.parameters[path].bytes_param = data
        if config is not None:
            request.message.parameters["config"].string_param = config
        return Call(request, _nothing)

    def unload_model(self, name: str) -> Call[None]:
        request = _request("RepositoryModelUnload", model_name=name)
        request.message.parameters["unload_dependents"].bool_param = False
        return Call(request, _nothing)

    def infer(self, inference: Inference) -> Call[dict[str, Array]]:
        return Call(GrpcRequest(_METHODS["ModelInfer"], _infer_message(inference)), _outputs)

    def stream_infer(self, inference: Inference) -> Call[dict[str, Array]]:
        request = GrpcRequest(_METHODS["ModelStreamInfer"], _infer_message(inference))
        return Call(request, _streamed_outputs)


def _request(rpc: str, **fields: Any) -> GrpcRequest:
    method = _METHODS[rpc]
    return GrpcRequest(method, method.request(**fields))


def _infer_message(inference: Inference) -> Any:
    check_parameters(inference.parameters)
    message = _METHODS["ModelInfer"].request(
        model_name=inference.model_name, model_version=inference.model_version, id=inference.id
    )
    for name, array in inference.inputs.items():
        message.inputs.add(name=name, datatype=datatype_name(array), shape=array.shape)
        message.raw_input_contents.append(bytes(to_data(array)))
    for name in inference.outputs:
        message.outputs.add(name=name)
    for name, value in inference.parameters.items():
        setattr(message.parameters[name], _parameter_field(value), value)
    return message


def _parameter_field(value: Parameter) -> str:
    if isinstance(value, str):
        return "string_param"
    return "bool_param" if isinstance(value, bool) else "int64_param"


def _config(answer: Any) -> dict[str, Any]:
    config: dict[str, Any] = json_format.MessageToDict(
        answer.config, preserving_proto_field_name=True
    )
    return config


def _index(answer: Any) -> list[dict[str, str]]:
    return [{"name": m.name, "version": m.version, "state": m.state} for m in answer.models]


def _nothing(answer: Any) -> None:
    """Read an answer without content."""


def _outputs(answer: Any) -> dict[str, Array]:
    contents = zip(answer.outputs, answer.raw_output_contents, strict=True)
    return {o.name: to_array(o.datatype, o.shape, data) for o, data in contents}


def _streamed_outputs(answer: Any) -> dict[str, Array]:
    if answer.error_message:
        raise ServerError(answer.error_message)
    return _outputs(answer.infer_response)


def _translate(error: grpc.RpcError) -> Exception:
    text = error.details() or str(error.code())
    is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return TimeoutError(text) if is_late else ServerError(text)


def _metadata(headers: Headers) -> list[tuple[str, str]]:
    for name, value in headers.items():
        if not name.isascii() or not value.isascii() or not f"{name}{value}".isprintable():
            raise PyTritonClientValueError(f"Header {name!r} must be printable ASCII")
    return [(name.lower(), value) for name, value in headers.items()]


def _open(channel: Any, request: GrpcRequest) -> Any:
    """Return a function that starts the RPC of a request."""
    method = request.method
    make = channel.stream_stream if method.client_streaming else channel.unary_unary
    return make(
        f"/{SERVICE}/{method.name}",
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )


class GrpcTransport:
    """A channel to a server, for any number of threads."""

    def __init__(self, url: TritonUrl) -> None:
        self._channel = grpc.insecure_channel(url.without_scheme, options=_OPTIONS)

    def exchange(self, request: GrpcRequest, headers: Headers, timeout_s: float) -> Any:
        """Send a request and return the answer. Raises ServerError and TimeoutError."""
        start = _open(self._channel, request)
        try:
            return start(request.message, timeout=timeout_s, metadata=_metadata(headers))
        except grpc.RpcError as error:
            raise _translate(error) from error

    def stream(
        self, request: GrpcRequest, headers: Headers, timeout: StreamTimeout
    ) -> Iterator[Any]:
        """Send a request now and return an iterator over its answers."""
        rpc = _open(self._channel, request)(iter([request.message]), metadata=_metadata(headers))
        arrivals: SimpleQueue[Any] = SimpleQueue()
        # grpc has no read with a timeout.
        Thread(target=_forward, args=(rpc, arrivals), daemon=True).start()
        return _answers(rpc, arrivals, timeout.begin())

    def close(self) -> None:
        self._channel.close()


def _forward(rpc: Any, arrivals: SimpleQueue[Any]) -> None:
    try:
        for answer in rpc:
            arrivals.put(answer)
        arrivals.put(None)
    except grpc.RpcError as error:
        arrivals.put(_translate(error))


def _answers(
    rpc: Any, arrivals: SimpleQueue[Any], left_s: Callable[[], float | None]
) -> Iterator[Any]:
    try:
        while (answer := arrivals.get(timeout=left_s())) is not None:
            if isinstance(answer, Exception):
                raise answer
            yield answer
    except Empty:
        raise TimeoutError("no response") from None
    finally:
        rpc.cancel()


class AsyncGrpcTransport:
    """A channel to a server, for the tasks of one event loop."""

    def __init__(self, url: TritonUrl) -> None:
        self._url = url
        #: Made by the first call: only then is there a loop for sure.
        self._channel: grpc.aio.Channel | None = None

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._url.without_scheme, options=_OPTIONS)
        return self._channel

    async def exchange(self, request: GrpcRequest, headers: Headers, timeout_s: float) -> Any:
        """Send a request and return the answer. Raises ServerError and TimeoutError."""
        start = _open(self._opened(), request)
        try:
            return await start(request.message, timeout=timeout_s, metadata=_metadata(headers))
        except grpc.RpcError as error:
            raise _translate(error) from error

    async def stream(
        self, request: GrpcRequest, headers: Headers, timeout: StreamTimeout
    ) -> AsyncIterator[Any]:
        """Send a request and return its answers."""
        left_s = timeout.begin()
        start = _open(self._opened(), request)
        rpc = start(iter([request.message]), metadata=_metadata(headers))
        try:
            while True:
                answer = await asyncio.wait_for(rpc.read(), left_s())
                if answer is grpc.aio.EOF:
                    return
                yield answer
        except asyncio.TimeoutError as error:
            raise TimeoutError(str(error) or "no response") from None
        except grpc.RpcError as error:
            raise _translate(error) from error
        finally:
            rpc.cancel()

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
