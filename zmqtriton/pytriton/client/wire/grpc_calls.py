"""The calls over gRPC: Triton's messages, tensors as raw contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from google.protobuf import json_format

from zmqtriton.pytriton.client.wire.calls import (
    Array,
    Call,
    Inference,
    Parameter,
    ServerError,
    check_parameters,
    datatype_name,
    to_array,
    to_data,
)
from zmqtriton_protos import SERVICES, Method

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
    """Take an answer that says no more than that it came."""


def _outputs(answer: Any) -> dict[str, Array]:
    contents = zip(answer.outputs, answer.raw_output_contents, strict=True)
    return {o.name: to_array(o.datatype, o.shape, data) for o, data in contents}


def _streamed_outputs(answer: Any) -> dict[str, Array]:
    if answer.error_message:
        raise ServerError(answer.error_message)
    return _outputs(answer.infer_response)
