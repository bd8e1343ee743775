"""Load for the benchmark: blocking sockets with prepared bytes, so that it costs little itself."""

from __future__ import annotations

import functools
import itertools
import json
import math
import multiprocessing
import os
import queue
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

#: Asks once over an open connection.
SendRequest = Callable[[], None]

_numbers = itertools.count()


class LoadResult(NamedTuple):
    """The result of one run of closed-loop clients."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


def http_json(port: int) -> SendRequest:
    """identity_fp32 with 16 numbers as JSON."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [16], "data": [0.5] * 16}
    return _http(port, json.dumps({"inputs": [tensor]}).encode(), "")


def http_binary(
    port: int, floats: int = 16, model: str = "identity_fp32", shape: Sequence[int] = ()
) -> SendRequest:
    """A model with the binary extension, both ways; a shape goes before a number of floats."""
    floats = math.prod(shape) if shape else floats
    tensor = {
        "name": "INPUT0",
        "datatype": "FP32",
        "shape": list(shape) or [floats],
        "parameters": {"binary_data_size": floats * 4},
    }
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    extra = f"Inference-Header-Content-Length: {len(head)}\r\n"
    return _http(port, head + struct.pack("<f", 0.5) * floats, extra, model)


def http_shared(port: int, floats: int = 150_528) -> SendRequest:
    """identity_fp32 from shared memory into shared memory, each connection with a region."""
    size = floats * 4
    name = f"zmqtriton_bench_{os.getpid()}_{next(_numbers)}"
    path = Path("/dev/shm", name)
    path.write_bytes(struct.pack("<f", 0.5) * (2 * floats))
    register = {"key": f"/{name}", "offset": 0, "byte_size": 2 * size}
    url = f"http://127.0.0.1:{port}/v2/systemsharedmemory/region/{name}/register"
    urllib.request.urlopen(url, json.dumps(register).encode()).close()
    path.unlink()  # the server has it open
    place = {"shared_memory_region": name, "shared_memory_byte_size": size}
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [floats], "parameters": place}
    target = {"name": "OUTPUT0", "parameters": {**place, "shared_memory_offset": size}}
    return _http(port, json.dumps({"inputs": [tensor], "outputs": [target]}).encode(), "")


def _http(port: int, body: bytes, extra: str, model: str = "identity_fp32") -> SendRequest:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n"
        f"{extra}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body

    def receive(most: int) -> bytes:
        data = connection.recv(most)
        if not data:
            raise ConnectionError("the server hung up")
        return data

    def ask() -> None:
        connection.sendall(request)
        data = receive(1 << 20)
        end = data.find(b"\r\n\r\n")
        while end < 0:
            data += receive(1 << 20)
            end = data.find(b"\r\n\r\n")
        head = data[:end].lower()
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(data[:300].decode("latin-1"))
        start = head.index(b"\r\ncontent-length:") + 17  # not Inference-Header-Content-Length
        left = int(head[start : head.find(b"\r", start) if b"\r" in head[start:] else None])
        left -= len(data) - end - 4
        while left > 0:
            left -= len(receive(min(left, 1 << 20)))

    return ask


def grpc_unary(port: int, floats: int = 16, model: str = "identity_fp32") -> SendRequest:
    """An identity with raw contents."""
    channel, data = _grpc(port, floats, model)
    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

    def ask() -> None:
        call(data)

    return ask


def grpc_stream(port: int, floats: int = 16) -> SendRequest:
    """The same over one stream: a request goes in when the answer to the one before has come."""
    channel, data = _grpc(port, floats)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    method = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    answers = method(iter(requests.get, b""))

    def ask() -> None:
        requests.put(data)
        next(answers)

    return ask


@functools.cache
def _connection(port: int) -> Any:
    import zmqtriton

    return zmqtriton.connect(str(port))


def python(port: int, floats: int = 16) -> SendRequest:
    """identity_fp32 without HTTP, over one connection for all threads."""
    import numpy as np

    model, data = _connection(port).model("identity_fp32"), np.full(floats, 0.5, np.float32)

    def ask() -> None:
        next(model.infer(inputs={"INPUT0": data}))

    return ask


@functools.cache
def _door(port: int) -> str:
    """The path of the door of the server with this port."""
    from zmqtriton.control_client import client

    with client.connect(client.ServerSelector("", str(port))) as server:
        return server.identity.addresses["door"]


def door(port: int, floats: int = 16) -> SendRequest:
    """identity_fp32 over ZeroMQ, each connection its own."""
    import numpy as np

    import zmqtriton

    model = zmqtriton.Door(_door(port)).model("identity_fp32")
    data = np.full(floats, 0.5, np.float32)

    def ask() -> None:
        next(model.infer(inputs={"INPUT0": data}))

    return ask


def door_tokens(port: int, count: int = 100) -> SendRequest:
    """A stream of so many tokens over ZeroMQ."""
    import numpy as np

    import zmqtriton

    model = zmqtriton.Door(_door(port)).model("tokens")
    inputs = {"COUNT": np.array([count], np.int32)}

    def ask() -> None:
        if sum(len(response.outputs) > 0 for response in model.infer(inputs=inputs)) != count:
            raise RuntimeError("tokens are missing")

    return ask


def grpc_request(floats: int = 16, model: str = "identity_fp32") -> bytes:
    """The bytes of a ModelInferRequest to an identity."""
    from zmqtriton_protos import message

    request = message("inference.ModelInferRequest")(model_name=model)
    tensor = request.inputs.add(name="INPUT0", datatype="FP32")
    tensor.shape.append(floats)
    request.raw_input_contents.append(struct.pack("<f", 0.5) * floats)
    data: bytes = request.SerializeToString()
    return data


def _grpc(port: int, floats: int, model: str = "identity_fp32") -> tuple[Any, bytes]:
    """A channel of its own, and a request."""
    import grpc

    data = grpc_request(floats, model)
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
    ]
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=options), data


def measure(
    connect: Callable[[int], SendRequest], port: int, connections: int, seconds: float
) -> LoadResult:
    """In a process of its own, so that its CPU is not the server's."""
    ours, theirs = multiprocessing.Pipe()
    arguments = (theirs, connect, port, connections, seconds)
    process = multiprocessing.get_context("spawn").Process(target=_clients, args=arguments)
    process.start()
    theirs.close()
    try:
        figures: LoadResult = ours.recv()
    finally:
        process.join()
    return figures


def _clients(
    pipe: Connection,
    connect: Callable[[int], SendRequest],
    port: int,
    connections: int,
    seconds: float,
) -> None:
    asks = [connect(port) for _ in range(connections)]
    for ask in asks:
        ask()
    times: list[float] = []
    end = time.perf_counter() + seconds

    def loop(ask: SendRequest) -> None:
        now = time.perf_counter()
        while now < end:
            ask()
            before, now = now, time.perf_counter()
            times.append(now - before)

    threads = [threading.Thread(target=loop, args=(ask,)) for ask in asks]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    times.sort()
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    pipe.send(LoadResult(len(times), took, p50 * 1e3, p99 * 1e3))
