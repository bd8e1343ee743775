"""Plans of load for the benchmarks, which `zmqtriton-ctl bench`'s clients run.

Its generator has connections of HTTP and gRPC with prepared bytes; here are those that only a
benchmark has: over shared memory, from Python, through the door, and many that take turns.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import math
import os
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection as StandardConnection
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton_extras.bench.clients import Clients
from zmqtriton_extras.bench.connections import (
    Connection,
    HttpConnection,
    make_connection,
)
from zmqtriton_extras.bench.results import percentile

Plan = dict[str, Any]
#: Returns the plan for a server's port.
MakePlan = Callable[[int], Plan]

_numbers = itertools.count()
_TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [16], "data": [0.5] * 16}
_SIXTEEN = json.dumps({"inputs": [_TENSOR]}).encode()


class LoadResult(NamedTuple):
    """The result of closed-loop clients."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    #: What the numbers that were read have grown by.
    growth: dict[str, float]
    #: Of the clients.
    client_us: float

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> dict[str, float]:
        """Return the microseconds for each request, where seconds of CPU were read."""
        return {role: spent / self.requests * 1e6 for role, spent in self.growth.items()}


def measure(
    plan: Mapping[str, Any],
    connections: int,
    seconds: float,
    read: Callable[[], Mapping[str, float]] = dict,
    *,
    rate: float = 0.0,
) -> LoadResult:
    """Measure in a process of its own; `read` returns numbers, such as the CPU by role.

    Raises AssertionError if requests fail.
    """
    with Clients(1) as clients:
        measured, before, after = clients.measure(
            plan, connections, seconds=seconds, rate=rate, read=read
        )
        if clients.is_interrupted:
            raise KeyboardInterrupt
    assert not measured.failures, measured.failures
    assert measured.latencies, "no request was answered in time"
    latencies, count = sorted(measured.latencies), len(measured.latencies)
    return LoadResult(
        count,
        measured.seconds,
        percentile(latencies, 50) / 1e3,
        percentile(latencies, 99) / 1e3,
        {name: after[name] - before.get(name, 0) for name in after},
        measured.client_cores * measured.seconds / count * 1e6,
    )


def _plan(kind: str, port: int, request: bytes = b"", **more: Any) -> Plan:
    return {
        **{"kind": kind, "address": f"127.0.0.1:{port}", "port": port, "timeout_s": 60.0},
        **{"has_tls": False, "headers": {}, "is_decoupled": False},
        **{"request": base64.b64encode(request).decode(), **more},
    }


def _own(make: Callable[[Plan], Any], port: int, **more: Any) -> Plan:
    """The plan of a connection that a function or a class of this module makes."""
    return _plan(f"tests.bench.clients:{make.__name__}", port, **more)


def http_json(port: int) -> Plan:
    """identity_fp32 with 16 numbers as JSON."""
    return http(port, _SIXTEEN)


def http_binary(
    port: int, floats: int = 16, model: str = "identity_fp32", shape: Sequence[int] = ()
) -> Plan:
    """A model with the binary extension, both ways; a shape goes before a number of floats."""
    head, data = _binary(shape or [floats])
    return http(port, head + data, model, f"Inference-Header-Content-Length: {len(head)}\r\n")


def _binary(shape: Sequence[int]) -> tuple[bytes, bytes]:
    """The JSON of a request, and the tensor that follows it."""
    data = struct.pack("<f", 0.5) * math.prod(shape)
    place = {"shape": list(shape), "parameters": {"binary_data_size": len(data)}}
    tensor = {"name": "INPUT0", "datatype": "FP32", **place}
    document = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    return json.dumps(document).encode(), data


def http(port: int, body: bytes, model: str = "identity_fp32", extra: str = "") -> Plan:
    """A body for a model, with more lines for the head."""
    return _plan("http", port, _http_request(body, model, extra))


def _http_request(body: bytes, model: str = "identity_fp32", extra: str = "") -> bytes:
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n"
        f"{extra}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def grpc_unary(port: int, floats: int = 16, model: str = "identity_fp32") -> Plan:
    """An identity with raw contents."""
    return _plan("grpc", port, grpc_request(floats, model))


def grpc_stream(port: int, floats: int = 16) -> Plan:
    """The same over one stream: a request goes in when the answer to the one before has come."""
    return _plan("stream", port, grpc_request(floats))


def grpc_request(floats: int = 16, model: str = "identity_fp32") -> bytes:
    """The bytes of a ModelInferRequest to an identity."""
    from tests.faults import requests

    data = struct.pack("<f", 0.5) * floats
    return bytes(requests.grpc_request(model, INPUT0=("FP32", [floats], data)).SerializeToString())


def http_shared(port: int, floats: int = 150_528) -> Plan:
    """identity_fp32 from shared memory into shared memory."""
    return _own(SharedMemoryConnection, port, floats=floats)


@contextmanager
def client_memory(floats: int) -> Iterator[str]:
    """The name of a client's memory, for floats in and out, until the server has it open."""
    name = f"zmqtriton_bench_{os.getpid()}_{next(_numbers)}"
    path = Path("/dev/shm", name)
    path.write_bytes(struct.pack("<f", 0.5) * (2 * floats))
    try:
        yield name
    finally:
        path.unlink()


class SharedMemoryConnection(HttpConnection):
    """A connection over HTTP that has a region of its own."""

    def __init__(self, plan: Plan) -> None:
        floats, port = plan["floats"], plan["port"]
        size = floats * 4
        with client_memory(floats) as name:
            register = {"key": f"/{name}", "offset": 0, "byte_size": 2 * size}
            url = f"http://127.0.0.1:{port}/v2/systemsharedmemory/region/{name}/register"
            urllib.request.urlopen(url, json.dumps(register).encode()).close()
        place = {"shared_memory_region": name, "shared_memory_byte_size": size}
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [floats], "parameters": place}
        target = {"name": "OUTPUT0", "parameters": {**place, "shared_memory_offset": size}}
        request = _http_request(json.dumps({"inputs": [tensor], "outputs": [target]}).encode())
        super().__init__({**plan, "request": base64.b64encode(request)})


def grpc_shared(port: int, floats: int = 150_528) -> Plan:
    """The same over gRPC."""
    return _plan("tests.bench.grpc_clients:SharedMemoryCalls", port, floats=floats)


class _CallingConnection:
    """A client's object that asks by a call, and has its own way to the server."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def open(self) -> None:
        self._call()

    def ask(self) -> list[float]:
        self._call()
        return []

    def interrupt(self) -> None:
        """Do nothing: each call ends within a time limit of its own."""

    def close(self) -> None:
        """Do nothing: the way ends with the process."""


def _asking(model: Any, floats: int) -> _CallingConnection:
    """A connection that asks a model of our own client for so many floats."""
    import numpy as np

    inputs = {"INPUT0": np.full(floats, 0.5, np.float32)}
    return _CallingConnection(lambda: next(model.infer(inputs=inputs)))


def python(port: int, floats: int = 16) -> Plan:
    """identity_fp32 without HTTP, over one connection for all threads."""
    return _own(python_connection, port, floats=floats)


@functools.cache
def _connection(port: int) -> Any:
    import zmqtriton

    return zmqtriton.connect(str(port))


def python_connection(plan: Plan) -> _CallingConnection:
    return _asking(_connection(plan["port"]).model("identity_fp32"), plan["floats"])


def door(port: int, floats: int = 16) -> Plan:
    """identity_fp32 over ZeroMQ, each connection its own."""
    return _own(door_connection, port, floats=floats)


@functools.cache
def _door(port: int) -> str:
    """The path of the door of the server with this port."""
    from zmqtriton import control_client as client

    with client.ServerSelector("", str(port)).connect() as server:
        return server.identity.addresses["door"]


def door_connection(plan: Plan) -> _CallingConnection:
    from zmqtriton_extras.door.client.connection import Door

    return _asking(Door(_door(plan["port"])).model("identity_fp32"), plan["floats"])


def door_tokens(port: int, count: int = 100) -> Plan:
    """A stream of so many tokens over ZeroMQ."""
    return _own(token_connection, port, count=count)


def token_connection(plan: Plan) -> _CallingConnection:
    import numpy as np

    from zmqtriton_extras.door.client.connection import Door

    model = Door(_door(plan["port"])).model("tokens")
    count, inputs = plan["count"], {"COUNT": np.array([plan["count"]], np.int32)}

    def read_stream() -> None:
        if sum(len(response.outputs) > 0 for response in model.infer(inputs=inputs)) != count:
            raise RuntimeError("tokens are missing")

    return _CallingConnection(read_stream)


def web_socket(port: int, floats: int = 16) -> Plan:
    """identity_fp32 with binary messages over a WebSocket."""
    return _own(socket_connection, port, floats=floats)


def socket_connection(plan: Plan) -> _CallingConnection:
    from websockets.sync.client import connect

    head, data = _binary([plan["floats"]])
    request = struct.pack("<I", len(head)) + head + data
    url = f"ws://{plan['address']}/v2/models/identity_fp32/stream"
    socket = ExitStack().enter_context(connect(url, max_size=None))

    def ask() -> None:
        socket.send(request)
        answer = socket.recv(timeout=plan["timeout_s"])
        if not (isinstance(answer, bytes) and answer.endswith(data)):
            raise RuntimeError(f"no such tensor: {answer!r}")

    return _CallingConnection(ask)


def jobs(port: int) -> Plan:
    """identity_fp32 as jobs, whose clients wait for the last of each fifty."""
    return _own(job_connection, port)


def job_connection(plan: Plan) -> _CallingConnection:
    line = StandardConnection(plan["address"], timeout=plan["timeout_s"])
    submitted = itertools.count(1)

    def ask(method: str, path: str, *request: Any) -> Any:
        line.request(method, path, *request)
        return json.loads(line.getresponse().read())

    def submit() -> None:
        headers = {"Prefer": "respond-async"}
        job = ask("POST", "/v2/models/identity_fp32/infer", _SIXTEEN, headers)["id"]
        if next(submitted) % 50 == 0:
            while (state := ask("GET", f"/v2/jobs/{job}")["state"]) in ("queued", "running"):
                time.sleep(0.01)
            if state != "succeeded":
                raise RuntimeError(f"the job has {state}")

    return _CallingConnection(submit)


def in_turns(plan: Plan, connections: int) -> Plan:
    """The same load, in which each client has so many connections and takes them in turns."""
    return _own(Turns, plan["port"], of=plan, connections=connections)


class Turns:
    """The connections of one client, of which each request takes the next."""

    def __init__(self, plan: Plan) -> None:
        self._all: list[Connection] = [
            make_connection(plan["of"]) for _ in range(plan["connections"])
        ]
        self._next = itertools.cycle(self._all).__next__

    def open(self) -> None:
        for connection in self._all:
            connection.open()
            connection.ask()

    def ask(self) -> list[float]:
        return self._next().ask()

    def interrupt(self) -> None:
        for connection in self._all:
            connection.interrupt()

    def close(self) -> None:
        for connection in self._all:
            connection.close()
