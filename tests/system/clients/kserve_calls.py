"""Calls of KServe's clients, as a program that prints what each comes to.

    python kserve_calls.py HTTP_URL GRPC_ADDRESS

Imports nothing of ours, since the Python is another's. Prints a JSON object: results, or errors as
text, by the names of the calls.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from collections.abc import Awaitable, Iterator
from typing import Any

import numpy as np

VALUES = np.arange(16, dtype=np.float32).reshape(1, 16)
WORDS = np.array([["a", "ä"]], np.object_)


def _request(types: Any, model: str, *, is_binary: bool = True, **more: Any) -> Any:
    inputs = []
    for name in ("INPUT0", "INPUT1"):
        inputs.append(types.InferInput(name, list(VALUES.shape), "FP32"))
        inputs[-1].set_data_from_numpy(VALUES, binary_data=is_binary)
    return types.InferRequest(model, inputs, request_id="k1", **more)


def _words(types: Any, *, is_binary: bool) -> Any:
    tensor = types.InferInput("INPUT0", list(WORDS.shape), "BYTES")
    tensor.set_data_from_numpy(WORDS, binary_data=is_binary)
    return types.InferRequest("string_upper", [tensor])


async def _outcome(call: Awaitable[Any]) -> Any:
    try:
        answer = await call
    except Exception as error:  # noqa: BLE001 - it is what the call comes to
        # A status is known by its code; KServe's texts go on with the address.
        code = getattr(getattr(error, "response", None), "status_code", None)
        return [type(error).__name__, code, str(error).partition(", '")[0][:200]]
    if isinstance(answer, bool):
        return answer
    outputs = {}
    for output in answer.outputs:
        elements = output.as_numpy().ravel().tolist()
        outputs[output.name] = [
            element.decode() if isinstance(element, bytes) else element for element in elements
        ]
    return [answer.id, answer.model_name, answer.parameters or {}, outputs]


def _rest_calls(client: Any, url: str, types: Any) -> Iterator[tuple[str, Awaitable[Any]]]:
    yield "server is live", client.is_server_live(url)
    yield "server is ready", client.is_server_ready(url)
    yield "model is ready", client.is_model_ready(url, "add_sub")
    yield "unknown model is ready", client.is_model_ready(url, "nobody")
    for form in ("json", "binary"):
        request = _request(types, "add_sub", is_binary=form == "binary")
        yield form, client.infer(url, request, model_name="add_sub")
        words = _words(types, is_binary=form == "binary")
        yield f"{form} words", client.infer(url, words, model_name="string_upper")
    wish = types.RequestedOutput("OUTPUT0", {"binary_data": True})
    request = _request(types, "add_sub", request_outputs=[wish])
    yield "binary output", client.infer(url, request, model_name="add_sub")
    request = _request(types, "add_sub", parameters={"a": 1})
    yield "parameters", client.infer(url, request, model_name="add_sub")
    yield "dictionary", client.infer(url, {"inputs": []}, model_name="add_sub")
    yield "unknown model", client.infer(url, _request(types, "nobody"), model_name="nobody")


def _grpc_calls(client: Any, types: Any) -> Iterator[tuple[str, Awaitable[Any]]]:
    yield "grpc server is live", client.is_server_live()
    yield "grpc server is ready", client.is_server_ready()
    yield "grpc model is ready", client.is_model_ready("add_sub")
    for form in ("contents", "raw"):
        yield f"grpc {form}", client.infer(_request(types, "add_sub", is_binary=form == "raw"))
    yield "grpc unknown model", client.infer(_request(types, "nobody"))


async def main(url: str, grpc_address: str) -> None:
    kserve = importlib.import_module("kserve")
    types = importlib.import_module("kserve.protocol.infer_type")
    logging.disable()
    outcomes = {}
    async with kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2")) as client:
        for name, call in _rest_calls(client, url, types):
            outcomes[name] = await _outcome(call)
    grpc_client = kserve.InferenceGRPCClient(grpc_address)
    for name, call in _grpc_calls(grpc_client, types):
        outcomes[name] = await _outcome(call)
    await grpc_client.close()
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
