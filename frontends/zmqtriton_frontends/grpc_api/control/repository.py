"""The model repository: index, loads and unloads. The supervisor acts; this translates."""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.errors import InvalidArgument, Unsupported
from zmqtriton_floor.staging import PREFIX
from zmqtriton_frontends.access.bearer_tokens import check_model, check_unload
from zmqtriton_frontends.access.hidden_places import places_hidden, visible_entries
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.loads import load
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.control.reading import read, read_load
from zmqtriton_frontends.grpc_api.inference.convert import serialize
from zmqtriton_protos import message

_INDEX_REQUEST = message("inference.RepositoryIndexRequest")
_INDEX = message("inference.RepositoryIndexResponse")
_LOAD = message("inference.RepositoryModelLoadResponse")
_UNLOAD_REQUEST = message("inference.RepositoryModelUnloadRequest")
_UNLOAD = message("inference.RepositoryModelUnloadResponse")


class Repository:
    """RepositoryIndex, RepositoryModelLoad, RepositoryModelUnload."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def index(self, data: bytes, call: Call) -> bytes:
        request = _addressed(read(_INDEX_REQUEST, data))
        entries = await self._gateway.call("index", {"ready": request.ready})
        return serialize(_INDEX(models=visible_entries(entries, call.grant)))

    async def load(self, data: bytes, call: Call) -> bytes:
        request, large = await read_load(data, call)
        check_model(call.grant, _addressed(request).model_name)
        parameters, files = _load_parameters(request)
        files.update(large)
        with places_hidden(call.grant, request.model_name):
            await load(self._gateway, request.model_name, parameters, files)
        return serialize(_LOAD())

    async def unload(self, data: bytes, call: Call) -> bytes:
        request = _addressed(read(_UNLOAD_REQUEST, data))
        check_model(call.grant, request.model_name)
        has_dependents = _unload_dependents(request)
        check_unload(call.grant, has_dependents=has_dependents)
        arguments = {"model": request.model_name, "unload_dependents": has_dependents}
        await self._gateway.call("unload", arguments)
        return serialize(_UNLOAD())


def _addressed(request: Any) -> Any:
    if request.repository_name:
        raise Unsupported("'repository_name' specification is not supported")
    return request


def _load_parameters(request: Any) -> tuple[dict[str, str], dict[str, bytes | memoryview]]:
    parameters: dict[str, str] = {}
    files: dict[str, bytes | memoryview] = {}
    for key, parameter in request.parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if key == "config":
            expected = "string_param"
        elif key.startswith(PREFIX):
            expected = "bytes_param"
        else:
            raise InvalidArgument(f"unrecognized load parameter '{key}'.")
        if kind != expected:
            raise InvalidArgument(
                f"invalid value type for load parameter '{key}', expected {expected}."
            )
        if key == "config":
            parameters[key] = parameter.string_param
        else:
            files[key] = parameter.bytes_param
    return parameters, files


def _unload_dependents(request: Any) -> bool:
    if "unload_dependents" not in request.parameters:
        return False
    parameter = request.parameters["unload_dependents"]
    if parameter.WhichOneof("parameter_choice") != "bool_param":
        raise InvalidArgument(
            "invalid value type for 'unload_dependents' parameter, expected bool_param."
        )
    return bool(parameter.bool_param)
