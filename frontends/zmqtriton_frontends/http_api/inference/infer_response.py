"""The body of a response: JSON, and after it the binary outputs."""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.http_api.inference.infer_request import OutputForm
from zmqtriton_frontends.http_api.inference.json_tensors import json_from_bytes
from zmqtriton_frontends.inference.catalogue import ModelVersion


def describe(
    model: ModelVersion, request_id: str, response: ResponseBody, form: OutputForm
) -> tuple[dict[str, Any], list[bytes | memoryview]]:
    """Return the document of a response, and its binary outputs, which follow it.

    Raises InternalError for a tensor whose bytes do not fit its shape, InvalidArgument for one that
    JSON cannot carry.
    """
    document: dict[str, Any] = {"id": request_id} if request_id else {}
    document["model_name"] = model.name
    document["model_version"] = str(model.version)
    if response.parameters:
        document["parameters"] = response.parameters
    outputs: list[dict[str, Any]] = []
    document["outputs"] = outputs
    tail: list[bytes | memoryview] = []
    for name, number, shape, data in response.outputs:
        # what lies in a client's shared memory is there already
        is_placed = name in form.places
        datatype = BY_NUMBER.get(number)
        has_size = number != BYTES and not is_placed
        if datatype is None or (has_size and len(data) != count_elements(shape) * datatype.size):
            raise InternalError(f"invalid output '{name}' in the response of model '{model.name}'")
        entry: dict[str, Any] = {"name": name, "datatype": datatype.name, "shape": shape}
        if is_placed:
            pass
        elif form.listed.get(name, form.default):
            entry["parameters"] = {"binary_data_size": len(data)}
            if data:
                tail.append(data)
        else:
            entry["data"] = json_from_bytes(name, number, data)
        outputs.append(entry)
    return document, tail
