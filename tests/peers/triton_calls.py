"""Calls of every public method of tritonclient's four clients, as a program that prints forms.

    python triton_calls.py HTTP_ADDRESS GRPC_ADDRESS

Prints a JSON object: the form of each method's answer, by class and method. A method that this file
does not call has none. Serves of the server: add_sub, counting and spare, which is loaded and
unloaded.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import queue
import sys
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from forms import WITHIN_S, form, outcome, public_methods

VALUES = np.arange(16, dtype=np.float32).reshape(1, 16)


class Kit:
    """The module of a client, and the arguments that differ between the modules."""

    def __init__(self, name: str) -> None:
        self.module = importlib.import_module(name)
        self.is_grpc = "grpc" in name
        self.is_async = name.endswith("aio")
        #: Has gRPC's clients return dictionaries, as those of HTTP do.
        self.as_json = {"as_json": True} if self.is_grpc else {}

    def inputs(self) -> list[Any]:
        found = []
        for name in ("INPUT0", "INPUT1"):
            found.append(self.module.InferInput(name, [1, 16], "FP32"))
            found[-1].set_data_from_numpy(VALUES)
        return found

    def counted(self) -> list[Any]:
        count = self.module.InferInput("COUNT", [1], "INT32")
        count.set_data_from_numpy(np.array([3], np.int32))
        return [count]

    def plugin(self) -> Any:
        module = importlib.import_module("tritonclient._plugin") if self.is_async else self.module
        base = module.InferenceServerClientPlugin

        class Plugin(base):  # type: ignore[misc, valid-type]
            def __call__(self, request: Any) -> None:
                request.headers["x-peer"] = "1"

        return Plugin()


class Region:
    """A segment of shared memory, for the calls about regions."""

    def __init__(self) -> None:
        self._module = importlib.import_module("tritonclient.utils.shared_memory")
        self.key = f"/peer-{uuid.uuid4().hex[:12]}"
        self._handle = self._module.create_shared_memory_region("peer", self.key, 64)

    def close(self) -> None:
        self._module.destroy_shared_memory_region(self._handle)


def common_calls(client: Any, kit: Kit, region: Region) -> dict[str, Callable[[], Any]]:
    """Return the calls that all four clients have, in their order."""
    more, plugin = kit.as_json, kit.plugin()
    return {
        "register_plugin": lambda: client.register_plugin(plugin),
        "plugin": lambda: client.plugin() is plugin,
        "is_server_live": client.is_server_live,
        "is_server_ready": client.is_server_ready,
        "unregister_plugin": client.unregister_plugin,
        "is_model_ready": lambda: client.is_model_ready("add_sub"),
        "get_server_metadata": lambda: client.get_server_metadata(**more),
        "get_model_metadata": lambda: client.get_model_metadata("add_sub", **more),
        "get_model_config": lambda: client.get_model_config("add_sub", **more),
        "get_model_repository_index": lambda: client.get_model_repository_index(**more),
        # in this order: real Triton is not ready while a model is unloaded
        "unload_model": lambda: client.unload_model("spare"),
        "load_model": lambda: client.load_model("spare"),
        "get_inference_statistics": lambda: client.get_inference_statistics("add_sub", **more),
        "update_trace_settings": lambda: client.update_trace_settings(
            settings={"trace_rate": "1000"}, **more
        ),
        "get_trace_settings": lambda: client.get_trace_settings("add_sub", **more),
        "update_log_settings": lambda: client.update_log_settings({"log_info": True}, **more),
        "get_log_settings": lambda: client.get_log_settings(**more),
        "register_system_shared_memory": lambda: client.register_system_shared_memory(
            "peer", region.key, 64
        ),
        "get_system_shared_memory_status": lambda: client.get_system_shared_memory_status(**more),
        "unregister_system_shared_memory": lambda: client.unregister_system_shared_memory("peer"),
        "register_cuda_shared_memory": lambda: client.register_cuda_shared_memory(
            "peer", b"bm8gaGFuZGxl", 0, 64
        ),
        "get_cuda_shared_memory_status": lambda: client.get_cuda_shared_memory_status(**more),
        "unregister_cuda_shared_memory": client.unregister_cuda_shared_memory,
        "infer": lambda: client.infer("add_sub", kit.inputs()),
    }


def own_calls(client: Any, kit: Kit) -> dict[str, Callable[[], Any]]:
    """Return the calls that this client alone has; its end is the last."""
    calls: dict[str, Callable[[], Any]] = {}
    if not kit.is_grpc:
        body = client.generate_request_body(kit.inputs())
        calls["generate_request_body"] = lambda: body
        calls["parse_response_body"] = lambda: client.parse_response_body(
            b'{"model_name":"m","outputs":[{"name":"O","datatype":"INT32","shape":[1],"data":[1]}]}'
        )
    if not kit.is_async:
        calls["async_infer"] = lambda: _async_infer(client, kit)
    if kit.is_grpc and kit.is_async:
        calls["stream_infer"] = lambda: _stream(client, kit)
    elif kit.is_grpc:
        results: queue.Queue[Any] = queue.Queue()
        calls["start_stream"] = lambda: client.start_stream(_put_into(results))
        calls["async_stream_infer"] = lambda: _streamed(client, kit, results)
        calls["stop_stream"] = client.stop_stream
    calls["close"] = client.close
    return calls


def _put_into(results: queue.Queue[Any]) -> Callable[..., None]:
    def callback(result: Any, error: Any) -> None:
        results.put((result, error))

    return callback


def _async_infer(client: Any, kit: Kit) -> Any:
    if not kit.is_grpc:
        return client.async_infer("add_sub", kit.inputs()).get_result(timeout=WITHIN_S)
    results: queue.Queue[Any] = queue.Queue()
    client.async_infer("add_sub", kit.inputs(), _put_into(results))
    result, error = results.get(timeout=WITHIN_S)
    return error or result


def _streamed(client: Any, kit: Kit, results: queue.Queue[Any]) -> list[Any]:
    """Ask on the stream; return the three responses."""
    client.async_stream_infer("counting", kit.counted())
    return [_result(*results.get(timeout=WITHIN_S)) for _ in range(3)]


def _result(result: Any, error: Any) -> Any:
    if error is not None:
        raise error
    return result


async def _stream(client: Any, kit: Kit) -> list[Any]:
    async def requests() -> Any:
        yield {"model_name": "counting", "inputs": kit.counted()}

    results = []
    async for given in client.stream_infer(requests()):
        results.append(_result(*given))
        if len(results) == 3:
            break
    return results


async def forms_of(name: str, address: str) -> dict[str, Any]:
    """Return the forms of the answers to all calls of one client."""
    kit, region = Kit(name), Region()
    found: dict[str, Any] = {}
    try:
        client = kit.module.InferenceServerClient(address)
        for method, call in (common_calls(client, kit, region) | own_calls(client, kit)).items():
            found[method] = form(await outcome(call))
    finally:
        region.close()
    return {"methods": public_methods(kit.module.InferenceServerClient), "forms": found}


def main(http_address: str, grpc_address: str) -> None:
    found = {}
    for name in ("http", "grpc", "http.aio", "grpc.aio"):
        address = http_address if name.startswith("http") else grpc_address
        found[name] = asyncio.run(forms_of(f"tritonclient.{name}", address))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
