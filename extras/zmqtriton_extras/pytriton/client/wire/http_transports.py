"""Calls over HTTP/1.1 on connections kept open from call to call: for threads, and for asyncio.

A call is a path and JSON, followed by tensors as binary data. A request is sent only once, because
a connection that ends afterwards may have carried a request that was executed. So a connection is
checked before the request is sent.
"""

from __future__ import annotations

import asyncio
import base64
import json
import select
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from zmqtriton_extras.pytriton.client.exceptions import PyTritonClientValueError
from zmqtriton_extras.pytriton.client.wire.calls import (
    Array,
    Call,
    Data,
    Headers,
    Inference,
    ServerError,
    TritonUrl,
    check_parameters,
    datatype_name,
    to_array,
    to_data,
)

#: Smaller bodies are copied behind their head, and go in one packet.
_SMALL_BYTES = 65536
#: No server has longer lines in a head.
_LINE_BYTES = 65536
#: Bytes that asyncio reads ahead.
_STREAM_BYTES = 1 << 20
_HEADER_LENGTH = "Inference-Header-Content-Length"


class HttpRequest(NamedTuple):
    method: str
    path: str
    body: Sequence[Data] = ()
    headers: Headers = MappingProxyType({})


class HttpResponse(NamedTuple):
    status: int
    #: Headers by names in lower case.
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


def _encode(url: TritonUrl, request: HttpRequest, headers: Headers) -> list[Any]:
    """Return the pieces to send, first the head."""
    fields = {"Host": url.without_scheme, **request.headers, **headers}
    length = sum(map(len, request.body))
    if request.method != "GET":
        fields["Content-Length"] = str(length)
    lines = [f"{request.method} {request.path} HTTP/1.1"]
    for name, value in fields.items():
        if any(sign in f"{name}{value}" for sign in "\r\n\0"):
            raise PyTritonClientValueError(f"Header {name!r} must not have a line break")
        lines.append(f"{name}: {value}")
    head = "\r\n".join([*lines, "", ""]).encode("utf-8")
    return [b"".join((head, *request.body))] if length < _SMALL_BYTES else [head, *request.body]


#: Asks for a number of bytes, or with None for a line; is sent what it asked for.
_Reading = Generator[int | None, Any, HttpResponse]


def _read_response() -> _Reading:
    status, fields = yield from _read_head()
    while status < 200:
        status, fields = yield from _read_head()
    if "chunked" in fields.get("transfer-encoding", "").lower():
        body = memoryview((yield from _read_chunks()))
    else:
        body = memoryview((yield _to_size(fields.get("content-length", "0"), 10)))
    return HttpResponse(status, fields, body)


def _read_head() -> Generator[int | None, Any, tuple[int, dict[str, str]]]:
    first = yield None
    words = first.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ConnectionError(f"no HTTP answer: {bytes(first[:80])!r}")
    fields = {}
    while (line := (yield None)) not in (b"\r\n", b"\n"):
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.lower()] = value.strip()
    return int(words[1]), fields


def _read_chunks() -> Generator[int | None, Any, bytearray]:
    body = bytearray()
    while size := _to_size((yield None).split(b";")[0], 16):
        body += yield size
        yield None
    while (yield None) not in (b"\r\n", b"\n"):
        continue  # trailers say nothing to us
    return body


def _to_size(text: str | bytes, base: int) -> int:
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if size < 0:
        raise ConnectionError(f"no HTTP answer: a length of {text!r}")
    return size


def _is_kept(response: HttpResponse) -> bool:
    return "close" not in response.headers.get("connection", "").lower()


def _check_line(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        raise ConnectionError("the server has closed the connection; send the request again")
    return line


class _Connection:
    """A connection, used by one thread at a time."""

    def __init__(self, url: TritonUrl, timeout_s: float) -> None:
        self._socket = socket.create_connection((url.hostname, url.port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file: Any = self._socket.makefile("rb", _LINE_BYTES)

    def is_usable(self) -> bool:
        """Return True if nothing has arrived unasked: an end of file, or other bytes."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, pieces: list[Any], timeout_s: float) -> HttpResponse:
        self._socket.settimeout(timeout_s)
        # A server may refuse a request, and close, before it has all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                self._socket.sendall(piece)
        reading = _read_response()
        data: Any = None
        while True:
            try:
                wish = reading.send(data)
            except StopIteration as end:
                response: HttpResponse = end.value
                return response
            data = self._read_line() if wish is None else self._read_bytes(wish)

    def _read_line(self) -> bytes:
        return _check_line(self._file.readline(_LINE_BYTES))

    def _read_bytes(self, number: int) -> bytearray:
        data = bytearray(number)
        if self._file.readinto(data) != number:
            raise ConnectionError("the server has closed the connection; send the request again")
        return data

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class HttpTransport:
    """A pool of connections to a server: one for each thread that uses it at once."""

    def __init__(self, url: TritonUrl) -> None:
        self._url = url
        #: The one that was used last is taken first. Its methods are atomic.
        self._idle: list[_Connection] = []
        self._is_closed = False

    def exchange(self, request: HttpRequest, headers: Headers, timeout_s: float) -> HttpResponse:
        """Send a request and return the answer. Raises OSError."""
        pieces = _encode(self._url, request, headers)
        connection = self._take() or _Connection(self._url, timeout_s)
        try:
            response = connection.exchange(pieces, timeout_s)
        except BaseException:
            connection.close()
            raise
        if _is_kept(response):
            self._idle.append(connection)
        else:
            connection.close()
        if self._is_closed:
            self._close_idle()
        return response

    def _take(self) -> _Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None  # another thread was quicker
            if connection.is_usable():
                return connection
            connection.close()
        return None

    def close(self) -> None:
        self._is_closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while (connection := self._take()) is not None:
            connection.close()


class AsyncHttpTransport:
    """A pool of connections to a server: one for each task of a loop that uses it at once."""

    def __init__(self, url: TritonUrl) -> None:
        self._url = url
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._is_closed = False

    async def exchange(
        self, request: HttpRequest, headers: Headers, timeout_s: float
    ) -> HttpResponse:
        """Send a request and return the answer. Raises OSError."""
        pieces = _encode(self._url, request, headers)
        try:
            return await asyncio.wait_for(self._exchange(pieces), timeout_s)
        except asyncio.TimeoutError:  # another class than TimeoutError in Python 3.10
            raise TimeoutError("timed out") from None

    async def _exchange(self, pieces: list[Any]) -> HttpResponse:
        reader, writer = self._take() or await asyncio.open_connection(
            self._url.hostname, self._url.port, limit=_STREAM_BYTES
        )
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
            response = await _receive(reader)
        except BaseException:
            writer.close()
            raise
        if _is_kept(response) and not self._is_closed:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return response

    def _take(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _receive(reader: asyncio.StreamReader) -> HttpResponse:
    reading = _read_response()
    data: Any = None
    while True:
        try:
            wish = reading.send(data)
        except StopIteration as end:
            response: HttpResponse = end.value
            return response
        try:
            data = (
                _check_line(await reader.readline())
                if wish is None
                else (await reader.readexactly(wish))
            )
        except asyncio.IncompleteReadError:
            raise ConnectionError(
                "the server has closed the connection; send the request again"
            ) from None
