"""Clients of programs: each is a connection of its own that returns the arrays of each response."""

from __future__ import annotations

import http.client
import json
import mmap
import os
import queue
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gevent
import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException
from websockets import exceptions
from websockets.sync.client import ClientConnection, connect

import zmqtriton
from tests.faults.programs.drawing import Program
from tests.support.clients import infer_inputs
from tests.support.server import Server
from zmqtriton_floor.errors import ZmqTritonError

Arrays = list[Any]
#: Seconds after which a request counts as unanswered.
PATIENCE_S = 30.0
_JSON_ELEMENTS = 4_000


class Question(NamedTuple):
    """A request."""

    program: Program
    call: int
    inputs: Arrays

    @property
    def path(self) -> str:
        return f"/v2/models/{self.program.name}"

    @property
    def tensors(self) -> dict[str, Any]:
        named = {f"IN{number}": array for number, array in enumerate(self.inputs)}
        return {"CALL": np.array([self.call], np.uint64), **named}

    @property
    def outputs(self) -> list[str]:
        return [f"OUT{number}" for number in range(self.program.outputs)]

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in self.inputs)


class RefusedError(Exception):
    """Raised for an error of the server."""


class LostError(Exception):
    """Raised for the end of a connection."""


class UnansweredError(Exception):
    """Raised where there is no answer in time."""


class Way:
    """A connection."""

    #: True if it can have several responses.
    is_streamed: ClassVar[bool] = False
    #: True if it can have exactly one.
    is_single: ClassVar[bool] = True
    #: Elements of a request at most.
    most_elements: ClassVar[int] = 1 << 20

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._number = number

    def can_ask(self, question: Question) -> bool:
        can_receive = self.is_streamed if question.program.is_streamed else self.is_single
        return can_receive and question.size <= 8 * self.most_elements

    def ask(self, question: Question) -> list[Arrays]:
        """Return the outputs of each response."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection. The next request opens another one."""

    def end(self) -> None:
        """Give back what outlives connections."""


# ------------------------------------------------------------------------ HTTP


class HttpWay(Way):
    """Tensors in binary over a connection of HTTP."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, question: Question) -> list[Arrays]:
        body, size = _binary(question.tensors, question.outputs)
        headers = {"Inference-Header-Content-Length": str(size)}
        answer, data = self._exchange(f"{question.path}/infer", body, headers)
        return [_read_binary(data, int(answer.headers["Inference-Header-Content-Length"]))]

    def _exchange(
        self, path: str, body: bytes | bytearray, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is None:
            port = self._server.http_port
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
            data = answer.read()
        except TimeoutError as error:
            raise UnansweredError(f"no answer over HTTP: {path}") from error
        except (OSError, http.client.HTTPException) as error:
            raise LostError(f"HTTP: {error!r}") from error
        if answer.status != 200:
            raise RefusedError(f"{answer.status} {data[:400]!r}")
        return answer, data


def _binary(tensors: dict[str, Any], outputs: list[str]) -> tuple[bytearray, int]:
    """Return the body of a request, and the length of its JSON."""
    entries = [
        {
            "name": name,
            "datatype": "UINT64",
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in tensors.items()
    ]
    wishes = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    text = json.dumps({"inputs": entries, "outputs": wishes}).encode()
    body = bytearray(text)
    for array in tensors.values():
        body += memoryview(array).cast("B")
    return body, len(text)


def _read_binary(data: bytes, size: int) -> Arrays:
    place, arrays = size, {}
    for output in json.loads(data[:size])["outputs"]:
        length = output["parameters"]["binary_data_size"]
        # no copy: the place need not be a multiple of 8
        arrays[output["name"]] = np.frombuffer(data, np.uint64, length // 8, place)
        place += length
    return in_order(arrays)


def in_order(arrays: dict[str, Any]) -> Arrays:
    """Return outputs by their numbers."""
    return [arrays[name] for name in sorted(arrays)]


class JsonWay(HttpWay):
    """Tensors in JSON."""

    most_elements = _JSON_ELEMENTS

    def ask(self, question: Question) -> list[Arrays]:
        entries = [
            {"name": name, "datatype": "UINT64", "shape": array.shape, "data": array.tolist()}
            for name, array in question.tensors.items()
        ]
        body = json.dumps({"inputs": entries}).encode()
        _, data = self._exchange(f"{question.path}/infer", body, {})
        outputs = json.loads(data)["outputs"]
        return [in_order({o["name"]: np.array(o["data"], np.uint64) for o in outputs})]


class GenerateWay(HttpWay):
    """The protocol generate, with arrays in JSON."""

    most_elements = _JSON_ELEMENTS

    def ask(self, question: Question) -> list[Arrays]:
        document = {name: array.tolist() for name, array in question.tensors.items()}
        _, data = self._exchange(f"{question.path}/generate", json.dumps(document).encode(), {})
        answer = json.loads(data)
        names = question.outputs
        # an array of one element is a number
        return [[np.atleast_1d(np.array(answer[name], np.uint64)) for name in names]]


class RegionWay(HttpWay):
    """Tensors in a region of shared memory, in which outputs may take the places of inputs."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._size = 16 << 20
        self._name = f"programs_{os.getpid()}_{number}"
        self._path = Path("/dev/shm", self._name)
        with self._path.open("w+b") as file:
            self._path.chmod(0o600)
            file.truncate(self._size)
            self._memory = mmap.mmap(file.fileno(), self._size)
        self._is_registered = False
        self._turn = 0

    def close(self) -> None:
        super().close()
        self._is_registered = False

    def end(self) -> None:
        self._path.unlink(missing_ok=True)

    def ask(self, question: Question) -> list[Arrays]:
        if not self._is_registered:
            self._register()
        self._turn += 1
        entries, place = [], 0
        for name, array in question.tensors.items():
            self._memory[place : place + array.nbytes] = memoryview(array).cast("B")
            entries.append(_entry(name, array.shape, self._name, place, array.nbytes))
            place += -(-array.nbytes // 64) * 64
        room = -(-question.size // 64) * 64
        is_over = self._turn % 2 == 0
        start = 64 if is_over else place
        places = {name: start + number * room for number, name in enumerate(question.outputs)}
        wishes = [
            {"name": name, "parameters": _place(self._name, offset, room)}
            for name, offset in places.items()
        ]
        body = json.dumps({"inputs": entries, "outputs": wishes}).encode()
        _, data = self._exchange(f"{question.path}/infer", body, {})
        arrays = {}
        for output in json.loads(data)["outputs"]:
            name, [count] = output["name"], output["shape"]
            memory = np.frombuffer(self._memory, np.uint64, count, places[name])
            arrays[name] = memory.copy()
        return [in_order(arrays)]

    def can_ask(self, question: Question) -> bool:
        needed = question.size * (question.program.outputs + 1) + (1 << 12)
        return super().can_ask(question) and needed < self._size

    def _register(self) -> None:
        document = {"key": f"/{self._name}", "offset": 0, "byte_size": self._size}
        path = f"/v2/systemsharedmemory/region/{self._name}/register"
        with suppress(RefusedError):  # it is registered already
            self._exchange(path, json.dumps(document).encode(), {})
        self._is_registered = True


def _place(name: str, offset: int, size: int) -> dict[str, Any]:
    place = {"shared_memory_region": name, "shared_memory_offset": offset}
    return {**place, "shared_memory_byte_size": size}


def _entry(name: str, shape: Any, region: str, offset: int, size: int) -> dict[str, Any]:
    parameters = _place(region, offset, size)
    return {"name": name, "datatype": "UINT64", "shape": shape, "parameters": parameters}


class TritonHttpWay(Way):
    """The client of tritonclient over HTTP."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._client: Any = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def end(self) -> None:
        # each thread has an event loop of gevent's
        gevent.get_hub().destroy(destroy_loop=True)

    def ask(self, question: Question) -> list[Arrays]:
        module = tritonclient.http
        if self._client is None:
            self._client = module.InferenceServerClient(
                self._server.url.removeprefix("http://"),
                network_timeout=PATIENCE_S,
                connection_timeout=PATIENCE_S,
            )
        try:
            wishes = [module.InferRequestedOutput(name) for name in question.outputs]
            inputs = infer_inputs(module, **question.tensors)
            result = self._client.infer(question.program.name, inputs, outputs=wishes)
        except InferenceServerException as error:
            raise RefusedError(f"{error.status()} {error.message()}") from error
        except TimeoutError as error:
            raise UnansweredError("no answer over tritonclient.http") from error
        except Exception as error:  # gevent and geventhttpclient have errors of their own
            raise LostError(f"tritonclient.http: {error!r}") from error
        return [[result.as_numpy(name) for name in question.outputs]]


# ------------------------------------------------------------------------ gRPC


_LOST_GRPC = re.compile(
    r"onnect|ocket closed|Broken pipe|Stream removed|GOAWAY|EOF|recvmsg|sendmsg"
)


def _of_grpc(error: InferenceServerException) -> Exception:
    text = f"{error.status()} {error.message()}"
    if "DEADLINE" in text:
        return UnansweredError(f"no answer over gRPC: {text}")
    return (LostError if _LOST_GRPC.search(text) else RefusedError)(f"gRPC: {text}")


class GrpcWay(Way):
    """The client of tritonclient over gRPC."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._client: Any = None

    @property
    def _connected(self) -> Any:
        if self._client is None:
            own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
            self._client = tritonclient.grpc.InferenceServerClient(
                self._server.grpc_address, channel_args=own
            )
        return self._client

    def close(self) -> None:
        if self._client is not None:
            with suppress(InferenceServerException, RuntimeError):
                self._client.close()
            self._client = None

    def ask(self, question: Question) -> list[Arrays]:
        inputs = infer_inputs(tritonclient.grpc, **question.tensors)
        try:
            result = self._connected.infer(question.program.name, inputs, client_timeout=PATIENCE_S)
        except InferenceServerException as error:
            raise _of_grpc(error) from error
        return [[result.as_numpy(name) for name in question.outputs]]


class StreamWay(GrpcWay):
    """Requests of one stream of gRPC."""

    is_streamed = True

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._responses: queue.Queue[Any] | None = None

    def close(self) -> None:
        if self._client is not None:
            with suppress(InferenceServerException, RuntimeError):
                self._client.stop_stream(cancel_requests=True)
        self._responses = None
        super().close()

    def ask(self, question: Question) -> list[Arrays]:
        try:
            self._send(question)
            return self._receive(question)
        except queue.Empty:
            raise UnansweredError("no answer on a stream of gRPC") from None
        except InferenceServerException as error:
            self.close()
            raise _of_grpc(error) from error

    def _send(self, question: Question) -> None:
        responses = self._responses
        if responses is None:
            responses = self._responses = queue.Queue()
            self._connected.start_stream(lambda result, error: responses.put((result, error)))
        self._connected.async_stream_infer(
            question.program.name,
            infer_inputs(tritonclient.grpc, **question.tensors),
            request_id=str(question.call),
            enable_empty_final_response=True,
        )

    def _receive(self, question: Question) -> list[Arrays]:
        assert self._responses is not None
        answers: list[Arrays] = []
        while True:
            result, error = self._responses.get(timeout=PATIENCE_S)
            if error is not None:
                raise error
            response = result.get_response()
            if response.id != str(question.call):
                raise RefusedError(f"a response to {response.id} comes to {question.call}")
            if response.outputs:
                answers.append([result.as_numpy(name) for name in question.outputs])
            if response.parameters["triton_final_response"].bool_param:
                return answers


# ------------------------------------------------------------------ WebSockets


class SocketWay(Way):
    """Binary messages on a WebSocket."""

    is_streamed = True

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._sockets: dict[str, ClientConnection] = {}

    def close(self) -> None:
        for socket in self._sockets.values():
            socket.close_socket()
        self._sockets.clear()

    def ask(self, question: Question) -> list[Arrays]:
        try:
            return self._ask(question)
        except TimeoutError as error:
            raise UnansweredError("no answer on a WebSocket") from error
        except exceptions.InvalidStatus as error:
            raise RefusedError(f"WebSocket: {error.response.status_code}") from error
        except (OSError, EOFError, exceptions.WebSocketException) as error:
            raise LostError(f"WebSocket: {error!r}") from error

    def _ask(self, question: Question) -> list[Arrays]:
        socket = self._socket(question)
        body, size = _binary(question.tensors, question.outputs)
        socket.send(size.to_bytes(4, "little") + body)
        answers: list[Arrays] = []
        while True:
            message = socket.recv(timeout=PATIENCE_S)
            if isinstance(message, str):
                document, place = json.loads(message), 0
            else:
                place = 4 + int.from_bytes(message[:4], "little")
                document = json.loads(message[4:place])
            if "error" in document:
                raise RefusedError(f"{document['status']} {document['error']}")
            if document.get("outputs"):
                assert isinstance(message, bytes)
                answers.append(_read_binary(message[4:], place - 4))
            if document["parameters"]["triton_final_response"]:
                return answers

    def _socket(self, question: Question) -> ClientConnection:
        socket = self._sockets.get(question.program.name)
        if socket is None:
            url = f"ws://127.0.0.1:{self._server.http_port}{question.path}/stream"
            socket = connect(url, open_timeout=PATIENCE_S, max_size=None).__enter__()
            self._sockets[question.program.name] = socket
        return socket


# --------------------------------------------------- without a port of the network


class GuestWay(Way):
    """A frontend in this process. Its answers are views of the memory of models."""

    is_streamed = True

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._connection: Any = None
        self._turn = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, question: Question) -> list[Arrays]:
        if self._connection is None:
            self._connection = zmqtriton.connect(path=runtime_directory(self._server))
        self._turn += 1
        tensors = question.tensors
        is_lent = self._turn % 2 == 0
        if is_lent:
            tensors = {name: self._lent(array) for name, array in tensors.items()}
        else:
            tensors = {name: array.copy() for name, array in tensors.items()}
        try:
            model = self._connection.model(question.program.name)
            responses = model.infer(inputs=tensors, deadline_s=PATIENCE_S)
            if not is_lent:
                # the request has left: the caller may use its arrays for something else
                for array in tensors.values():
                    array[:] = 0
            return [self._outputs(response) for response in responses if response.outputs]
        except TimeoutError as error:
            raise UnansweredError("no answer to a guest") from error
        except ZmqTritonError as error:
            raise RefusedError(f"guest: {error.http_status} {error.text}") from error

    def _lent(self, array: Any) -> Any:
        room = self._connection.empty(array.shape, array.dtype)
        room[:] = array
        return room

    @staticmethod
    def _outputs(response: Any) -> Arrays:
        if response.error is not None:
            raise RefusedError(f"guest: {response.error.text}")
        return in_order(dict(response.outputs))


def runtime_directory(server: Server) -> str:
    return f"{server.directory.parent}/r"


#: By feature.
WAYS: dict[str, type[Way]] = {
    "http": HttpWay,
    "grpc": GrpcWay,
    "tritonclient": TritonHttpWay,
    "stream": StreamWay,
    "json": JsonWay,
    "generate": GenerateWay,
    "regions": RegionWay,
    "sockets": SocketWay,
    "guests": GuestWay,
}
