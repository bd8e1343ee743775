"""Clients of every protocol on one loop, none of which repeats a request.

Each judges its own answers. A connection that the server has closed while it was idle is made anew,
as every client does; one that ends after a request was sent on it has failed that request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import mmap
import os
import random
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

import grpc
import grpc.aio

from tests.faults.requests import (
    INFER,
    RESPONSE,
    STREAM,
    STREAM_RESPONSE,
    grpc_request,
    token_index,
    tokens,
)
from tests.support.server import tensor

MODELS = ("add_sub", "tokens", "sequences", "identity_fp32")
#: Longer than any server stops and starts.
PATIENCE_S = 120.0
STEPS = 6
#: By it a proxy knows whose requests go to the same server.
SEQUENCE_HEADER = "x-sequence"
_SHARED_BYTES = 16 * 4
_UPLOAD_PARTS = 256
_UPLOAD_BYTES = 64 << 20
_SILENT_S = 4.0
_IDS = itertools.count(1)


def next_id() -> int:
    """Return a number that no other request of this process has."""
    return next(_IDS)


class FailedError(Exception):
    """Raised for a request that was not answered, or not rightly."""


class Client:
    """Asks again and again until it is stopped."""

    #: What it does, for a table.
    label = ""
    #: Between two requests.
    pause_s = 0.05

    def __init__(self, http_port: int, grpc_port: int) -> None:
        self.http_port, self.grpc_port = http_port, grpc_port
        self.right = 0
        #: When each request began, or the connection on which it was made, and what became of it.
        self.failures: list[tuple[float, str]] = []
        #: Of the connection, if it is kept.
        self.connected_s = math.inf
        #: The longest that one request took.
        self.longest_s = 0.0
        #: Between two requests of a sequence.
        self.pause_between: Callable[[], Awaitable[Any]] = self.pause
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            begun_s = time.monotonic()
            try:
                await asyncio.wait_for(self.ask(), PATIENCE_S)
                self.right += 1
            except (FailedError, OSError, EOFError, grpc.RpcError, asyncio.TimeoutError) as error:
                text = f"{time.monotonic():.3f} {_text_of(error)}"
                self.failures.append((min(begun_s, self.connected_s), text))
                await self.close()
            self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
            await asyncio.sleep(self.pause_s)
        await self.close()

    async def pause(self) -> None:
        await asyncio.sleep(self.pause_s)

    async def ask(self) -> None:
        """Make one request. Raises FailedError, and the errors of connections."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection, if there is one."""


def _text_of(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return f"{type(error).__name__} {error}"


# ------------------------------------------------------------------------ HTTP


class HttpClient(Client):
    """Plain requests over a kept connection."""

    label = "HTTP, kept connections"

    def __init__(self, http_port: int, grpc_port: int) -> None:
        super().__init__(http_port, grpc_port)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        if self._writer is not None:
            await asyncio.sleep(0)  # what has come meanwhile is seen
            if self._reader.at_eof() or self._reader.exception() is not None:
                await self.close()
        if self._writer is None:
            self.connected_s = math.inf
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.http_port)
            self.connected_s = time.monotonic()

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None

    async def send_head(self, path: str, size: int, more: str = "") -> None:
        """`more` are further lines of the head."""
        await self.connect()
        fields = f"content-length: {size}\r\n{more}"
        await self.send(f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n".encode())

    async def send(self, part: bytes) -> None:
        assert self._writer is not None
        self._writer.write(part)
        await self._writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        line, *rows = (await self._reader.readuntil(b"\r\n\r\n")).decode()[:-4].split("\r\n")
        return int(line.split()[1]), dict(row.lower().split(": ", 1) for row in rows)

    async def answer(self) -> tuple[int, bytes]:
        status, fields = await self.head()
        body = await self._reader.readexactly(int(fields["content-length"]))
        if fields.get("connection") == "close":
            await self.close()
        return status, body

    async def post(self, path: str, document: Any, more: str = "") -> tuple[int, bytes]:
        body = json.dumps(document).encode()
        await self.send_head(path, len(body), more)
        await self.send(body)
        return await self.answer()

    async def ask(self) -> None:
        own = next(_IDS)
        inputs = [tensor(name, "FP32", [own] * 16, [1, 16]) for name in ("INPUT0", "INPUT1")]
        status, body = await self.post("/v2/models/add_sub/infer", {"inputs": inputs})
        check(status == 200, f"{status} {body[:200]!r}")
        check(json.loads(body)["outputs"][0]["data"] == [2 * own] * 16, "another's answer")


def check(is_right: bool, text: str) -> None:
    if not is_right:
        raise FailedError(text)


class NewHttpClient(HttpClient):
    """Plain requests."""

    label = "HTTP, a connection for each request"

    async def ask(self) -> None:
        await super().ask()
        await self.close()


class BusyHttpClient(HttpClient):
    """Requests that leave no moment of a change out."""

    label = "HTTP, kept connections without a pause"
    pause_s = 0.0


class QuietHttpClient(HttpClient):
    """Requests over a connection that was silent for a while, or that has ended meanwhile."""

    label = "HTTP, connections that are silent for up to 4 s"

    async def ask(self) -> None:
        await self.connect()
        await asyncio.sleep(random.uniform(0, _SILENT_S))
        await super().ask()


class UploadingClient(HttpClient):
    """Large tensors that take their time."""

    label = "HTTP, uploads of 64 MB within 4 s"

    pause_s = 0.2
    _PART = bytes(_UPLOAD_BYTES // _UPLOAD_PARTS)

    async def ask(self) -> None:
        size = _UPLOAD_BYTES
        shape = {"name": "INPUT0", "datatype": "FP32", "shape": [size // 4]}
        large = {**shape, "parameters": {"binary_data_size": size}}
        outputs = [{"name": "OUTPUT0", "parameters": {"classification": 1}}]
        head = json.dumps({"inputs": [large], "outputs": outputs}).encode()
        more = f"inference-header-content-length: {len(head)}\r\n"
        await self.send_head("/v2/models/identity_fp32/infer", size + len(head), more)
        await self.send(head)
        for _ in range(_UPLOAD_PARTS):
            await self.send(self._PART)
            await asyncio.sleep(4 / _UPLOAD_PARTS)
        status, body = await self.answer()
        check(status == 200, f"{status} {body[:200]!r}")


class EventsClient(HttpClient):
    """Streams of server-sent events."""

    label = "HTTP, streams of events of 10 s"

    pause_s = 0.5
    #: The responses of a stream, and the time between two.
    count, delay_us = 20, 500_000

    async def ask(self) -> None:
        wish = {"COUNT": self.count, "DELAY_US": self.delay_us}
        path, body = "/v2/models/tokens/generate_stream", json.dumps(wish).encode()
        await self.send_head(path, len(body))
        await self.send(body)
        status, fields = await self.head()
        check(status == 200, str(status))
        numbers = []
        async for chunk in self._chunks():
            for line in chunk.splitlines():
                if line.startswith(b"data: "):
                    numbers.append(json.loads(line[6:]).get("INDEX"))
        if fields.get("connection") == "close":
            await self.close()
        check(list(range(self.count)) == numbers[: self.count], f"cut: {numbers[-3:]}")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)


class HttpSequenceClient(HttpClient):
    """Sequences over a kept connection."""

    label = "HTTP, sequences of 6 requests"

    async def ask(self) -> None:
        own = next(_IDS) + (os.getpid() << 20)
        for step in range(STEPS):
            ends = {"sequence_start": step == 0, "sequence_end": step == STEPS - 1}
            inputs = [tensor("VALUE", "INT32", [1], [1, 1])]
            document = {"parameters": {"sequence_id": own, **ends}, "inputs": inputs}
            more = f"{SEQUENCE_HEADER}: {own}\r\n"
            status, body = await self.post("/v2/models/sequences/infer", document, more)
            check(status == 200, f"step {step}: {status} {body[:200]!r}")
            outputs = {output["name"]: output["data"] for output in json.loads(body)["outputs"]}
            check([step + 1] == outputs["SUM"], f"step {step}: {outputs}")
            await self.pause_between()


class SharedMemoryClient(HttpClient):
    """Tensors in a region that it registers."""

    label = "HTTP, tensors in system shared memory"

    def __init__(self, http_port: int, grpc_port: int) -> None:
        super().__init__(http_port, grpc_port)
        #: How often a server did not know the region any more.
        self.lost = 0
        self._region = f"replacements-{os.getpid()}-{next(_IDS)}"
        self._memory: mmap.mmap | None = None

    async def ask(self) -> None:
        own = next(_IDS)
        if self._memory is None:
            with open(f"/dev/shm/{self._region}", "w+b") as file:
                file.truncate(2 * _SHARED_BYTES)
                self._memory = mmap.mmap(file.fileno(), 2 * _SHARED_BYTES)
            await self._register()
        self._memory[:_SHARED_BYTES] = struct.pack("<16f", *[own] * 16)
        place = {
            "shared_memory_region": self._region,
            "shared_memory_byte_size": _SHARED_BYTES,
        }
        inputs = [
            {"name": name, "datatype": "FP32", "shape": [1, 16], "parameters": place}
            for name in ("INPUT0", "INPUT1")
        ]
        parameters = place | {"shared_memory_offset": _SHARED_BYTES}
        document = {"inputs": inputs, "outputs": [{"name": "OUTPUT0", "parameters": parameters}]}
        status, body = await self.post("/v2/models/add_sub/infer", document)
        if status in (400, 404) and b"shared memory region" in body:
            self.lost += 1
            await self._register()
            return
        check(status == 200, f"{status} {body[:200]!r}")
        written = struct.unpack("<16f", self._memory[_SHARED_BYTES:])
        check((2.0 * own,) * 16 == written, f"{written[:2]}")

    async def _register(self) -> None:
        name = self._region
        region = {"key": f"/{name}", "offset": 0, "byte_size": 2 * _SHARED_BYTES}
        status, body = await self.post(f"/v2/systemsharedmemory/region/{name}/register", region)
        check(status == 200 or b"already in" in body, f"{status} {body[:200]!r}")

    async def close(self) -> None:
        await super().close()
        if self.is_over and self._memory is not None:
            self._memory.close()
            self._memory = None
            os.unlink(f"/dev/shm/{self._region}")


# ------------------------------------------------------------------------ gRPC


def add_sub(own: int) -> Any:
    array = ("FP32", (1, 16), struct.pack("<16f", *[own] * 16))
    return grpc_request("add_sub", INPUT0=array, INPUT1=array)


def check_add_sub(response: Any, own: int) -> None:
    values = struct.unpack("<16f", response.raw_output_contents[0])
    check((2.0 * own,) * 16 == values, "another's answer")


class GrpcClient(Client):
    """Plain calls over a kept connection."""

    label = "gRPC, unary calls without retries"
    retries = 0

    def __init__(self, http_port: int, grpc_port: int) -> None:
        super().__init__(http_port, grpc_port)
        self._channel: Any = None

    @property
    def channel(self) -> Any:
        if self._channel is None:
            options = [
                ("grpc.enable_retries", self.retries),
                ("grpc.use_local_subchannel_pool", 1),
                # for how long a connection may be made: it waits for a server that is not there yet
                ("grpc.min_reconnect_backoff_ms", int(PATIENCE_S * 1000)),
            ]
            self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc_port}", options)
        return self._channel

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def infer(self, request: Any, sequence: object = "") -> Any:
        call = self.channel.unary_unary(INFER)
        metadata = [(SEQUENCE_HEADER, str(sequence))] if sequence else []
        data = await call(request.SerializeToString(), timeout=PATIENCE_S, metadata=metadata)
        return RESPONSE.FromString(data)

    async def ask(self) -> None:
        own = next(_IDS)
        check_add_sub(await self.infer(add_sub(own)), own)


class NewGrpcClient(GrpcClient):
    """Plain calls."""

    label = "gRPC, a connection for each call"

    async def ask(self) -> None:
        await super().ask()
        await self.close()


class QuietGrpcClient(GrpcClient):
    """Connections that are made, and silent for a while before their only call."""

    label = "gRPC, connections that are silent for up to 4 s"

    async def ask(self) -> None:
        await self.channel.channel_ready()
        await asyncio.sleep(random.uniform(0, _SILENT_S))
        await super().ask()
        await self.close()


class UploadingGrpcClient(GrpcClient):
    """Large tensors in one message."""

    label = "gRPC, uploads of 64 MB"

    pause_s = 2.0

    async def ask(self) -> None:
        call = self.channel.unary_unary(INFER)
        response = RESPONSE.FromString(await call(_upload(), timeout=PATIENCE_S))
        check([1] == response.outputs[0].shape, f"{response.outputs[0].shape}")


@cache
def _upload() -> bytes:
    """Return the message; made once, since all other clients of this process wait meanwhile."""
    # of some order: the largest of many that are equal takes the server long to find
    data = os.urandom(1 << 20) * (_UPLOAD_BYTES >> 20)
    request = grpc_request("identity_fp32", INPUT0=("FP32", (_UPLOAD_BYTES // 4,), data))
    request.outputs.add(name="OUTPUT0").parameters["classification"].int64_param = 1
    return bytes(request.SerializeToString())


class GrpcSequenceClient(GrpcClient):
    """Sequences over a kept connection."""

    label = "gRPC, sequences of 6 calls"

    async def ask(self) -> None:
        own = next(_IDS) + (os.getpid() << 20)
        for step in range(STEPS):
            total = _sum_of(await self.infer(_step(own, step), own))
            check(step + 1 == total, f"step {step}: {total}")
            await self.pause_between()


def _step(sequence: int, step: int) -> Any:
    request = grpc_request("sequences", VALUE=("INT32", (1, 1), struct.pack("<i", 1)))
    request.parameters["sequence_id"].int64_param = sequence
    request.parameters["sequence_start"].bool_param = step == 0
    request.parameters["sequence_end"].bool_param = step == STEPS - 1
    return request


def _sum_of(response: Any) -> int:
    names = [output.name for output in response.outputs]
    (total,) = struct.unpack("<i", response.raw_output_contents[names.index("SUM")])
    return int(total)


class DecoupledClient(GrpcClient):
    """Streams with one request and many responses."""

    label = "gRPC, streams of responses of 10 s"

    pause_s = 0.5
    count, delay_us = 20, 500_000

    async def ask(self) -> None:
        requests = iter([tokens(self.count, self.delay_us).SerializeToString()])
        stream = self.channel.stream_stream(STREAM)(requests, timeout=PATIENCE_S)
        numbers = []
        async for data in stream:
            response = STREAM_RESPONSE.FromString(data)
            check(not response.error_message, response.error_message)
            numbers.append(token_index(response))
        check(list(range(self.count)) == numbers, f"cut: {numbers[-3:]}")


class TalkClient(GrpcClient):
    """Streams with many requests."""

    label = "gRPC, streams of 10 s with 20 requests, a sequence among them"

    pause_s = 0.5
    requests = 20

    async def ask(self) -> None:
        stream = self.channel.stream_stream(STREAM)(timeout=PATIENCE_S)
        own = next(_IDS) + (os.getpid() << 20)
        for number in range(self.requests):
            request = _step(own, number) if number < STEPS else add_sub(own % 1000)
            with suppress(asyncio.InvalidStateError):  # it has ended; reading it says why
                await stream.write(request.SerializeToString())
            data = await stream.read()
            check(data is not grpc.aio.EOF, f"ended at {number}")
            response = STREAM_RESPONSE.FromString(data)
            check(not response.error_message, f"{number}: {response.error_message}")
            if number < STEPS:
                check(number + 1 == _sum_of(response.infer_response), f"step {number}")
            else:
                check_add_sub(response.infer_response, own % 1000)
            await self.pause_between()
        await stream.done_writing()
        check(await stream.read() is grpc.aio.EOF, "too much")


class MinuteClient(DecoupledClient):
    """Streams that are as long as the old server may take."""

    label = "gRPC, streams of responses of 60 s"

    count = 120


class LongTalkClient(TalkClient):
    """Streams with more requests."""

    label = "gRPC, streams of 30 s with 60 requests, a sequence among them"

    requests = 60


#: Kinds whose requests depend on each other over several calls, and those of open streams.
OF_SEQUENCES = (HttpSequenceClient, GrpcSequenceClient)
OF_STREAMS = (EventsClient, DecoupledClient, TalkClient)

#: How many there are of each kind.
Crowd = Mapping[type[Client], int]
#: Together some 200 requests a second, and 20 streams.
CROWD: Crowd = {
    HttpClient: 4,
    BusyHttpClient: 1,
    NewHttpClient: 2,
    QuietHttpClient: 2,
    UploadingClient: 1,
    EventsClient: 3,
    HttpSequenceClient: 2,
    SharedMemoryClient: 1,
    GrpcClient: 3,
    NewGrpcClient: 1,
    QuietGrpcClient: 2,
    UploadingGrpcClient: 1,
    GrpcSequenceClient: 2,
    DecoupledClient: 10,
    TalkClient: 10,
}

#: The same with longer streams; a replacement takes as long as the longest.
LONG_CROWD: Crowd = {
    **CROWD,
    DecoupledClient: 5,
    MinuteClient: 5,
    TalkClient: 5,
    LongTalkClient: 5,
}


@asynccontextmanager
async def crowd(http_port: int, grpc_port: int, numbers: Crowd) -> AsyncIterator[list[Client]]:
    """So many clients of each kind, while the block runs; it ends when the last is answered."""
    clients = [make(http_port, grpc_port) for make, count in numbers.items() for _ in range(count)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    try:
        yield clients
    finally:
        for client in clients:
            client.is_over = True
        await asyncio.gather(*tasks)
