"""The calls over HTTP: paths, JSON, and tensors as binary data behind it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from zmqtriton.pytriton.client.wire.calls import (
    Array,
    Call,
    Data,
    Headers,
    Inference,
    ServerError,
    check_parameters,
    datatype_name,
    to_array,
    to_data,
)

_HEADER_LENGTH = "Inference-Header-Content-Length"


class HttpRequest(NamedTuple):
    method: str
    path: str
    body: Sequence[Data] = ()
    headers: Headers = MappingProxyType({})


class HttpResponse(NamedTuple):
    status: int
    #: By names in lower case.
    headers: Headers
    body: memoryview


class HttpCalls:
    """The calls as HTTP requests."""

    def server_live(self) -> Call[bool]:
        return Call(HttpRequest("GET", "/v2/health/live"), _is_ok)

    def server_ready(self) -> Call[bool]:
        return Call(HttpRequest("GET", "/v2/health/ready"), _is_ok)

    def model_ready(self, name: str, version: str) -> Call[bool]:
        return Call(HttpRequest("GET", f"{_model_path(name, version)}/ready"), _is_ok)

    def model_config(self, name: str, version: str) -> Call[dict[str, Any]]:
        return Call(HttpRequest("GET", f"{_model_path(name, version)}/config"), _document)

    def repository_index(self) -> Call[list[dict[str, str]]]:
        return Call(HttpRequest("POST", "/v2/repository/index"), _document)

    def load_model(self, name: str, config: str | None, files: Mapping[str, bytes]) -> Call[None]:
        parameters = {path: base64.b64encode(data).decode() for path, data in files.items()}
        if config is not None:
            parameters["config"] = config
        return Call(_control(name, "load", parameters), _check)

    def unload_model(self, name: str) -> Call[None]:
        return Call(_control(name, "unload", {"unload_dependents": False}), _check)

    def infer(self, inference: Inference) -> Call[dict[str, Array]]:
        path = f"{_model_path(inference.model_name, inference.model_version)}/infer"
        body = _inference_body(inference)
        headers = {
            "Content-Type": "application/octet-stream",
            _HEADER_LENGTH: str(len(body[0])),
        }
        return Call(HttpRequest("POST", path, body, headers), _outputs)

    def stream_infer(self, inference: Inference) -> Call[dict[str, Array]]:
        raise NotImplementedError("streams of responses need gRPC")


def _model_path(name: str, version: str) -> str:
    path = f"/v2/models/{quote(name, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _control(name: str, verb: str, parameters: Mapping[str, Any]) -> HttpRequest:
    body = json.dumps({"parameters": parameters} if parameters else {}).encode()
    path = f"/v2/repository/models/{quote(name, safe='')}/{verb}"
    return HttpRequest("POST", path, [body], {"Content-Type": "application/json"})


def _inference_body(inference: Inference) -> list[Data]:
    """Return the JSON and the data of each input."""
    check_parameters(inference.parameters)
    inputs, pieces = [], []
    for name, array in inference.inputs.items():
        pieces.append(to_data(array))
        inputs.append(
            {
                "name": name,
                "shape": array.shape,
                "datatype": datatype_name(array),
                "parameters": {"binary_data_size": len(pieces[-1])},
            }
        )
    parameters: dict[str, Any] = dict(inference.parameters)
    document: dict[str, Any] = {"id": inference.id, "inputs": inputs}
    if inference.outputs:
        binary = {"binary_data": True}
        document["outputs"] = [{"name": o, "parameters": binary} for o in inference.outputs]
    else:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    return [json.dumps(document).encode(), *pieces]


def _is_ok(response: HttpResponse) -> bool:
    return response.status == 200


def _check(response: HttpResponse) -> None:
    if response.status == 200:
        return
    text = bytes(response.body).decode("utf-8", "replace")
    try:
        text = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        pass  # not a server's own answer, but that of something before it
    text = text or f"the server answers with status {response.status} and no text"
    raise TimeoutError(text) if response.status == 504 else ServerError(text)


def _document(response: HttpResponse) -> Any:
    _check(response)
    return json.loads(bytes(response.body))


def _outputs(response: HttpResponse) -> dict[str, Array]:
    _check(response)
    position = int(response.headers.get(_HEADER_LENGTH.lower(), len(response.body)))
    outputs = {}
    for entry in json.loads(bytes(response.body[:position])).get("outputs", ()):
        end = position + entry["parameters"]["binary_data_size"]
        data = response.body[position:end]
        outputs[entry["name"]] = to_array(entry["datatype"], entry["shape"], data)
        position = end
    return outputs
