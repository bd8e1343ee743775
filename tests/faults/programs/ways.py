"""Clients of programs: each is a connection of its own that returns the arrays of each response."""

from __future__ import annotations

import http.client
import json
import mmap
import os
import queue
import re
import time
from collections.abc import Sequence
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
from zmqtriton_extras.door.client.connection import Door
from zmqtriton_floor.errors import ZmqTritonError

Arrays = list[Any]
#: Seconds after which a client gives up.
PATIENCE_S = 30.0
_JSON_ELEMENTS = 4_000


class Place(NamedTuple):
    """The place of a request in a sequence."""

    sequence: int
    is_start: bool
    is_end: bool

    @property
    def parameters(self) -> dict[str, Any]:
        flags = {"sequence_start": self.is_start, "sequence_end": self.is_end}
        return {"sequence_id": self.sequence, **flags}


class Question(NamedTuple):
    """A request."""

    program: Program
    call: int
    inputs: Arrays
    place: Place | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        return {} if self.place is None else self.place.parameters

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
    has_sequences: ClassVar[bool] = False
    #: True if its answers lie in memory of the server, and may change after they were right.
    lends_answers: ClassVar[bool] = False
    #: Elements of a request at most.
    most_elements: ClassVar[int] = 1 << 20
    #: Seconds after which a request counts as unanswered.
    patience_s: ClassVar[float] = PATIENCE_S

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self._connection: Any = None

    @property
    def _connected(self) -> Any:
        """Return the connection, a new one if there is none."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> Any:
        """Return a new connection."""
        raise NotImplementedError

    def can_ask(self, program: Program) -> bool:
        """Return whether it leads to a program."""
        can_receive = self.is_streamed if program.is_streamed else self.is_single
        return can_receive and (not program.state or self.has_sequences)

    def has_room(self, question: Question) -> bool:
        """Return whether it can carry a request of this size."""
        return question.size <= 8 * self.most_elements

    def ask(self, question: Question) -> list[Arrays]:
        """Return the outputs of each response."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection. The next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def end(self) -> None:
        """Give back what outlives connections."""


# ------------------------------------------------------------------------ HTTP


class HttpWay(Way):
    """Tensors in binary over a connection of HTTP."""

    has_sequences = True

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._server.http_port, timeout=PATIENCE_S)

    def ask(self, question: Question) -> list[Arrays]:
        answer, data = self._exchange(f"{question.path}/infer", *self._body(question))
        return [_read_binary(data, int(answer.headers["Inference-Header-Content-Length"]))]

    @staticmethod
    def _body(question: Question) -> tuple[bytearray, dict[str, str]]:
        body, size = _binary(question)
        return body, {"Inference-Header-Content-Length": str(size)}

    def _exchange(
        self,
        path: str,
        body: bytes | bytearray,
        headers: dict[str, str],
        expected: int = 200,
        method: str = "POST",
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = self._connected
        try:
            connection.request(method, path, body or None, headers)
            answer = connection.getresponse()
            data = answer.read()
        except TimeoutError as error:
            raise UnansweredError(f"no answer over HTTP: {path}") from error
        except (OSError, http.client.HTTPException) as error:
            raise LostError(f"HTTP: {error!r}") from error
        if answer.status != expected:
            raise RefusedError(f"{answer.status} {data[:400]!r}")
        return answer, data


def _binary(question: Question) -> tuple[bytearray, int]:
    """Return the body of a request, and the length of its JSON."""
    tensors = question.tensors
    entries = [
        {
            "name": name,
            "datatype": "UINT64",
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in tensors.items()
    ]
    is_binary = {"binary_data": True}
    document: dict[str, Any] = {
        "inputs": entries,
        "outputs": [{"name": name, "parameters": is_binary} for name in question.outputs],
    }
    if question.parameters:
        document["parameters"] = question.parameters
    text = json.dumps(document).encode()
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


class JobWay(HttpWay):
    """Jobs: the answer is asked for until it is there."""

    has_sequences = False
    # it waits for the requests of all other clients, as long as a model is never without any
    patience_s = 300.0

    def ask(self, question: Question) -> list[Arrays]:
        body, headers = self._body(question)
        headers["Prefer"] = "respond-async"
        _, promise = self._exchange(f"{question.path}/infer", body, headers, 202)
        path = f"/v2/jobs/{json.loads(promise)['id']}"
        deadline_s = time.monotonic() + self.patience_s
        while (job := self._get(path))["state"] in ("queued", "running"):
            if time.monotonic() > deadline_s:
                raise UnansweredError(f"a job is {job['state']}")
            time.sleep(0.01)
        if job["state"] != "succeeded":
            raise RefusedError(f"job: {job['reason']}")
        answer, data = self._exchange(f"{path}/result", b"", {}, method="GET")
        self._exchange(path, b"", {}, method="DELETE")
        return [_read_binary(data, int(answer.headers["Inference-Header-Content-Length"]))]

    def _get(self, path: str) -> Any:
        return json.loads(self._exchange(path, b"", {}, method="GET")[1])


class RouteWay(HttpWay):
    """The route of a program, which asks its model."""

    has_sequences = False

    def can_ask(self, program: Program) -> bool:
        return super().can_ask(program) and program.has_route

    def ask(self, question: Question) -> list[Arrays]:
        body = b"".join(
            memoryview(array).cast("B")
            for array in (
                np.array([question.call, len(question.inputs)], np.uint64),
                *question.inputs,
            )
        )
        path = f"/models/{question.program.name}/program"
        answer, data = self._exchange(path, body, {"Content-Type": "application/octet-stream"})
        ends = np.cumsum([int(length) for length in answer.headers["x-lengths"].split(",")])
        return [np.split(np.frombuffer(data, np.uint64), ends[:-1])]


class JsonWay(HttpWay):
    """Tensors in JSON."""

    has_sequences = False
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

    has_sequences = False
    most_elements = _JSON_ELEMENTS

    def ask(self, question: Question) -> list[Arrays]:
        document = {name: array.tolist() for name, array in question.tensors.items()}
        _, data = self._exchange(f"{question.path}/generate", json.dumps(document).encode(), {})
        answer = json.loads(data)
        # an array of one element is a number
        return [[np.atleast_1d(np.array(answer[name], np.uint64)) for name in question.outputs]]


class Region:
    """A client's shared memory, with the tensors of one request at a time."""

    SIZE = 16 << 20

    def __init__(self, name: str) -> None:
        self.name = f"programs_{os.getpid()}_{name}"
        self._path = Path("/dev/shm", self.name)
        with self._path.open("w+b") as file:
            self._path.chmod(0o600)
            file.truncate(self.SIZE)
            self._memory = mmap.mmap(file.fileno(), self.SIZE)
        self.is_registered = False
        #: The places of inputs by name, and those of outputs in their order.
        self.inputs: dict[str, int] = {}
        self.outputs: list[int] = []
        #: The bytes that each output may have.
        self.room = 0

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._memory.close()

    def has_room(self, question: Question) -> bool:
        return question.size * (question.program.outputs + 1) + (1 << 12) < self.SIZE

    def put(self, question: Question, *, is_over: bool) -> None:
        """Write the inputs, and choose places for the outputs, over the inputs or behind them."""
        self.inputs, end = {}, 0
        for name, array in question.tensors.items():
            self._memory[end : end + array.nbytes] = memoryview(array).cast("B")
            self.inputs[name] = end
            end += -(-array.nbytes // 64) * 64
        self.room = -(-question.inputs[0].nbytes // 64) * 64
        start = self.inputs["IN0"] if is_over else end
        self.outputs = [start + n * self.room for n in range(question.program.outputs)]

    def read(self, lengths: Sequence[int]) -> Arrays:
        """Return a copy of each output, which has this many elements."""
        pairs = zip(self.outputs, lengths, strict=True)
        return [np.frombuffer(self._memory, np.uint64, n, place).copy() for place, n in pairs]

    def parameters(self, offset: int, size: int) -> dict[str, Any]:
        place = {"shared_memory_region": self.name, "shared_memory_offset": offset}
        return {**place, "shared_memory_byte_size": size}


class _WithRegion(Way):
    """A part of those that have tensors in a region of shared memory."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._region = Region(f"{type(self).__name__}{number}")

    def close(self) -> None:
        super().close()
        self._region.is_registered = False

    def end(self) -> None:
        self._region.remove()

    def has_room(self, question: Question) -> bool:
        return super().has_room(question) and self._region.has_room(question)


class RegionWay(_WithRegion, HttpWay):
    """Tensors in a region of shared memory, in which outputs may take the places of inputs."""

    has_sequences = False
    _turn = 0

    def ask(self, question: Question) -> list[Arrays]:
        region = self._region
        if not region.is_registered:
            self._register()
        self._turn += 1
        region.put(question, is_over=self._turn % 2 == 0)
        entries = [
            {
                "name": name,
                "datatype": "UINT64",
                "shape": array.shape,
                "parameters": region.parameters(region.inputs[name], array.nbytes),
            }
            for name, array in question.tensors.items()
        ]
        wishes = [
            {"name": name, "parameters": region.parameters(place, region.room)}
            for name, place in zip(question.outputs, region.outputs, strict=True)
        ]
        body = json.dumps({"inputs": entries, "outputs": wishes}).encode()
        _, data = self._exchange(f"{question.path}/infer", body, {})
        lengths = {o["name"]: o["shape"][0] for o in json.loads(data)["outputs"]}
        return [region.read(in_order(lengths))]

    def _register(self) -> None:
        region = self._region
        document = {"key": f"/{region.name}", "offset": 0, "byte_size": region.SIZE}
        path = f"/v2/systemsharedmemory/region/{region.name}/register"
        with suppress(RefusedError):  # it is registered already
            self._exchange(path, json.dumps(document).encode(), {})
        region.is_registered = True


class TritonHttpWay(Way):
    """The client of tritonclient over HTTP."""

    has_sequences = True

    def _connect(self) -> Any:
        return tritonclient.http.InferenceServerClient(
            self._server.url.removeprefix("http://"),
            network_timeout=PATIENCE_S,
            connection_timeout=PATIENCE_S,
        )

    def end(self) -> None:
        # each thread has an event loop of gevent's
        gevent.get_hub().destroy(destroy_loop=True)

    def ask(self, question: Question) -> list[Arrays]:
        module, client = tritonclient.http, self._connected
        try:
            wishes = [module.InferRequestedOutput(name) for name in question.outputs]
            inputs = infer_inputs(module, **question.tensors)
            result = client.infer(
                question.program.name, inputs, outputs=wishes, **question.parameters
            )
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

    has_sequences = True

    def _connect(self) -> Any:
        own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        return tritonclient.grpc.InferenceServerClient(self._server.grpc_address, channel_args=own)

    def close(self) -> None:
        with suppress(InferenceServerException, RuntimeError):
            super().close()

    def ask(self, question: Question) -> list[Arrays]:
        inputs = infer_inputs(tritonclient.grpc, **question.tensors)
        try:
            result = self._connected.infer(
                question.program.name, inputs, client_timeout=PATIENCE_S, **question.parameters
            )
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
        if self._connection is not None:
            with suppress(InferenceServerException, RuntimeError):
                self._connection.stop_stream(cancel_requests=True)
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
            self._inputs(question),
            outputs=self._outputs(question),
            request_id=str(question.call),
            enable_empty_final_response=True,
            **question.parameters,
        )

    def _inputs(self, question: Question) -> list[Any]:
        return infer_inputs(tritonclient.grpc, **question.tensors)

    def _outputs(self, question: Question) -> list[Any]:
        return [tritonclient.grpc.InferRequestedOutput(name) for name in question.outputs]

    def _arrays(self, question: Question, result: Any) -> Arrays:
        return [result.as_numpy(name) for name in question.outputs]

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
                answers.append(self._arrays(question, result))
            if response.parameters["triton_final_response"].bool_param:
                return answers


class RegionStreamWay(_WithRegion, StreamWay):
    """Requests of a stream in a region of shared memory; outputs take the places of inputs.

    All responses have the same places, so the last one alone can be read.
    """

    has_sequences = False

    def ask(self, question: Question) -> list[Arrays]:
        if not self._region.is_registered:
            name = self._region.name
            with suppress(InferenceServerException):  # it is registered already
                self._connected.register_system_shared_memory(name, f"/{name}", Region.SIZE)
            self._region.is_registered = True
        self._region.put(question, is_over=True)
        responses = super().ask(question)
        return [[None] * len(arrays) for arrays in responses[:-1]] + [
            self._region.read([len(array) for array in arrays]) for arrays in responses[-1:]
        ]

    def _inputs(self, question: Question) -> list[Any]:
        tensors = []
        for name, array in question.tensors.items():
            tensor = tritonclient.grpc.InferInput(name, list(array.shape), "UINT64")
            tensor.set_shared_memory(self._region.name, array.nbytes, self._region.inputs[name])
            tensors.append(tensor)
        return tensors

    def _outputs(self, question: Question) -> list[Any]:
        tensors = super()._outputs(question)
        for tensor, offset in zip(tensors, self._region.outputs, strict=True):
            tensor.set_shared_memory(self._region.name, self._region.room, offset)
        return tensors

    def _arrays(self, question: Question, result: Any) -> Arrays:
        return [range(result.get_output(name).shape[0]) for name in question.outputs]


# ------------------------------------------------------------------ WebSockets


class SocketWay(Way):
    """Binary messages on a WebSocket."""

    is_streamed = has_sequences = True

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
        body, size = _binary(question)
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


def outputs_of(response: Any) -> Arrays:
    """Return the outputs of a response of `infer`, which may have none."""
    if response.error is not None:
        raise RefusedError(response.error.text)
    return in_order(dict(response.outputs))


class _ModelsWay(Way):
    """A connection whose models have a method `infer`."""

    is_streamed = has_sequences = True
    #: Who is asked, for the text of an error.
    asked: ClassVar[str]

    def ask(self, question: Question) -> list[Arrays]:
        connection = self._connected
        place = question.place or Place(0, is_start=False, is_end=False)
        try:
            tensors = {name: self._made(array) for name, array in question.tensors.items()}
            responses = connection.model(question.program.name).infer(
                inputs=tensors,
                deadline_s=PATIENCE_S,
                correlation_id=place.sequence,
                sequence_start=place.is_start,
                sequence_end=place.is_end,
            )
            self._sent(tensors)
            return [arrays for response in responses if (arrays := outputs_of(response))]
        except TimeoutError as error:
            raise UnansweredError(f"no answer of the {self.asked}") from error
        except ZmqTritonError as error:
            raise RefusedError(f"{self.asked}: {error.http_status} {error.text}") from error

    def _made(self, array: Any) -> Any:
        """Return an input that the request may have."""
        return array

    def _sent(self, tensors: dict[str, Any]) -> None:
        """Leave the arrays of a request as they are."""


class GuestWay(_ModelsWay):
    """A frontend in this process, whose caller uses its arrays again at once.

    The answers are views of the memory of models.
    """

    lends_answers = True
    asked = "guest"

    def _connect(self) -> Any:
        return zmqtriton.connect(path=runtime_directory(self._server))

    def _made(self, array: Any) -> Any:
        return array.copy()

    def _sent(self, tensors: dict[str, Any]) -> None:
        """Use the arrays of a request that has left for something else."""
        for array in tensors.values():
            array[:] = 0


class LentWay(GuestWay):
    """The same with inputs in the server's memory, which the caller drops after the answer."""

    def _made(self, array: Any) -> Any:
        room = self._connected.empty(array.shape, array.dtype)
        room[:] = array
        return room

    def _sent(self, tensors: dict[str, Any]) -> None:
        """Leave them: models read this memory until they have answered."""


class DoorWay(_ModelsWay):
    """The door over ZeroMQ."""

    asked = "door"

    def _connect(self) -> Door:
        return Door(f"{runtime_directory(self._server)}/door")


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
    "region_streams": RegionStreamWay,
    "jobs": JobWay,
    "routes": RouteWay,
    "sockets": SocketWay,
    "guests": GuestWay,
    "lent": LentWay,
    "door": DoorWay,
}
