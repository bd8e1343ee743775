"""Clients of every kind, each in a loop: what each request came to, and whether that was right."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, Queue
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from websockets import exceptions
from websockets.sync.client import ClientConnection, connect

from tests.faults.days.judging import Failure, Timeline
from tests.support.server import Server

MODELS = ("journal", "twice_journal", "tokens", "sequences", "add_sub")
RIGHT, _WITHIN_S = "right", 60.0
#: Of streams, and of sequences.
_TOKENS, _STEPS = 40, 6
#: The words of gRPC's clients for a connection that ended, or that there was none.
_LOST = re.compile(
    r"onnect|ocket closed|Broken pipe|Stream removed|GOAWAY|EOF|recvmsg|sendmsg|Cancelling all"
    # the stream has broken before the first request was made on it
    r"|no longer in valid state"
)


class WrongAnswerError(Exception):
    """Raised for an answer that is somebody else's, incomplete, or out of order."""


class HungError(WrongAnswerError):
    """Raised where there is no answer at all."""


class Client(ABC):
    """Asks until it is told to stop. A failure that the server has told is an outcome, too."""

    model, frontend = "journal", "http"
    #: The output that has the id.
    output = "ID"

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.prefix = f"{type(self).__name__}{number}"
        #: Sent with each request.
        self.headers: dict[str, str] = {}
        self.numbers = itertools.count()
        #: What became of the requests: "right", or the error.
        self.outcomes: Counter[str] = Counter()
        #: The last of them.
        self.newest = ""
        self.wrong: list[str] = []
        self.hung: list[str] = []
        #: Those that the server, or the end of a connection, has failed.
        self.failures: list[Failure] = []
        #: The stamps that its model may have, where that is known.
        self.stamps: Timeline[int] | None = None
        #: The last request: when it was made, its id if it has one, and why it failed.
        self.sent_ns, self.own_id, self.reason = 0, "", ""
        #: How often the model may have executed each request.
        self.executions_of: dict[str, int] = {}
        #: When the newest request that was answered right was made.
        self.right_ns = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.prefix, daemon=True)

    @abstractmethod
    def ask(self) -> str:
        """Make one request; return "right" or the server's error. Raises WrongAnswerError."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def join(self) -> bool:
        """True if the last request has ended."""
        self._thread.join(2 * _WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.is_set():
            self.sent_ns, self.own_id, self.reason = time.monotonic_ns(), "", ""
            try:
                outcome = self.ask()
            except WrongAnswerError as error:
                kind = self.hung if isinstance(error, HungError) else self.wrong
                kind.append(f"{self.sent_ns / 1e9:.3f} {self.prefix}: {error}")
                outcome = "wrong"
                self.close()
            except TimeoutError as error:
                self.hung.append(f"{self.sent_ns / 1e9:.3f} {self.prefix}: {error!r}")
                outcome = "hung"
                self.close()
            except (OSError, http.client.HTTPException) as error:
                outcome, self.reason = f"connection: {type(error).__name__}", repr(error)
                self._failed(is_lost=True)
                self.close()
            self.outcomes[outcome] += 1
            self.newest = outcome
            if outcome == RIGHT:
                self.right_ns = self.sent_ns
            else:
                if self.reason and not outcome.startswith("connection"):
                    self._failed(is_lost=_LOST.search(self.reason) is not None)
                self._is_over.wait(0.02)
        self.close()

    def _failed(self, *, is_lost: bool) -> None:
        of = self.prefix, self.model, self.frontend, self.own_id
        times = self.sent_ns, time.monotonic_ns()
        self.failures.append(Failure(*of, *times, self.reason, is_lost))

    def new_id(self, executions: int = 1) -> str:
        self.own_id = f"{self.prefix}-{next(self.numbers)}"
        self.executions_of[self.own_id] = executions
        return self.own_id

    def check_outputs(self, outputs: list[dict[str, Any]]) -> str:
        """Check the id and the stamp of an answer; return "right"."""
        got = {output["name"]: output["data"] for output in outputs}
        if got.get(self.output) != [self.own_id]:
            raise WrongAnswerError(f"{got} for {self.own_id}")
        [stamp] = got.get("STAMP", [None])
        self.check_stamp(stamp)
        return RIGHT

    def check_stamp(self, stamp: int | None) -> None:
        """Raise WrongAnswerError if no such state of the model may have answered."""
        if stamp is not None and self.stamps is not None:
            allowed = self.stamps.allowed(self.sent_ns, time.monotonic_ns())
            if stamp not in allowed:
                raise WrongAnswerError(f"of state {stamp}, may be of {sorted(allowed)}")


class HttpClient(Client):
    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, document: Any) -> tuple[int, Any]:
        if self._connection is None:
            port = self.server.http_port
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
        self._connection.request("POST", path, json.dumps(document), self.headers)
        answer = self._connection.getresponse()
        document = json.loads(answer.read() or b"{}")
        if answer.status != 200:
            self.reason = f"{answer.status} {document.get('error', '')}"
        return answer.status, document

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self) -> str:
        own_id = self.new_id(2 if self.model == "twice_journal" else 1)
        tensors = [
            {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": [own_id]},
            {"name": "MS", "datatype": "INT32", "shape": [1, 1], "data": [5]},
        ]
        status, answer = self.post(f"/v2/models/{self.model}/infer", {"inputs": tensors})
        if status != 200:
            return str(status)
        return self.check_outputs(answer["outputs"])


class EnsembleClient(HttpClient):
    model, output = "twice_journal", "AGAIN"


class BlsClient(HttpClient):
    model = "asking"


class SequenceClient(HttpClient):
    """One sequence after the other; after an error the next one."""

    model = "sequences"
    _ids = itertools.count(1000)

    def ask(self) -> str:
        sequence, total = next(self._ids), 0
        for step in range(_STEPS):
            tensor = {"name": "VALUE", "datatype": "INT32", "shape": [1, 1], "data": [step + 1]}
            flags = {"sequence_start": step == 0, "sequence_end": step == _STEPS - 1}
            document = {"inputs": [tensor], "parameters": {"sequence_id": sequence, **flags}}
            status, answer = self.post("/v2/models/sequences/infer", document)
            if status != 200:
                return str(status)
            total += step + 1
            got = next(o["data"] for o in answer["outputs"] if o["name"] == "SUM")
            if got != [total]:
                raise WrongAnswerError(f"{got} for {total} at step {step}")
        return RIGHT


class GrpcClient(Client):
    frontend = "grpc"

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._client: Any = None

    @property
    def client(self) -> Any:
        if self._client is None:
            self._client = grpcclient.InferenceServerClient(self.server.grpc_address)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            with suppress(InferenceServerException, RuntimeError):
                self._client.close()
            self._client = None

    def ask(self) -> str:
        own_id = self.new_id()
        inputs = [
            _tensor("ID", np.array([[own_id.encode()]], np.object_), "BYTES"),
            _tensor("MS", np.array([[5]], np.int32), "INT32"),
        ]
        try:
            answer = self.client.infer(
                "journal", inputs, client_timeout=_WITHIN_S, headers=self.headers
            )
        except InferenceServerException as error:
            if "DEADLINE" in str(error.status()):
                raise HungError(f"no answer to {own_id}") from error
            self.reason = f"{error.status()} {error.message()}"
            return str(error.status())
        got = answer.as_numpy("ID").ravel().tolist()
        if got != [own_id.encode()]:
            raise WrongAnswerError(f"{got} for {own_id}")
        stamps = answer.as_numpy("STAMP")
        self.check_stamp(None if stamps is None else int(stamps.ravel()[0]))
        return RIGHT


class StreamClient(GrpcClient):
    """One stream of responses after the other, each with a connection of its own."""

    model = "tokens"

    def ask(self) -> str:
        responses: Queue[Any] = Queue()
        client = grpcclient.InferenceServerClient(self.server.grpc_address)
        outcome = ""
        try:
            client.start_stream(
                lambda result, error: responses.put((result, error)), headers=self.headers
            )
            inputs = [
                _tensor("COUNT", np.array([_TOKENS], np.int32), "INT32"),
                _tensor("DELAY_US", np.array([1000], np.int32), "INT32"),
            ]
            client.async_stream_infer("tokens", inputs, enable_empty_final_response=True)
            outcome = self._read(responses)
        except InferenceServerException as error:
            self.reason = f"{error.status()} {error.message()}"
            outcome = str(error.status())
        finally:
            with suppress(InferenceServerException, RuntimeError):
                # a stream that is cancelled leaves a thread of the client behind
                client.stop_stream(cancel_requests=outcome != RIGHT)
            client.close()
        return outcome

    def _read(self, responses: Queue[Any]) -> str:
        count = 0
        while True:
            try:
                result, error = responses.get(timeout=_WITHIN_S)
            except Empty:
                raise HungError(f"the stream stands still after {count}") from None
            if error is not None:
                self.reason = f"{error.status()} {error.message()}"
                return str(error.status() or error.message())
            response = result.get_response()
            if response.outputs:
                index = result.as_numpy("INDEX").ravel().tolist()
                if index != [count]:
                    raise WrongAnswerError(f"{index} at {count}")
                count += 1
            if response.parameters["triton_final_response"].bool_param:
                if count != _TOKENS:
                    raise WrongAnswerError(f"the stream has ended after {count}")
                return RIGHT


class SocketClient(Client):
    """Requests on one WebSocket, one after the other."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._socket: ClientConnection | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close_socket()
            self._socket = None

    def ask(self) -> str:
        try:
            return self._ask()
        except exceptions.InvalidStatus as error:
            self.reason = f"{error.response.status_code} {error.response.body.decode()}"
            return str(error.response.status_code)
        except (exceptions.ConnectionClosed, exceptions.InvalidHandshake, EOFError) as error:
            raise ConnectionResetError(repr(error)) from error

    def _ask(self) -> str:
        own_id = self.new_id()
        answer = self.send(own_id, {"ID": ("BYTES", [1, 1], own_id), "MS": ("INT32", [1, 1], 5)})
        if answer is None:
            return self.reason.split()[0]
        return self.check_outputs(answer["outputs"])

    def send(self, own_id: str, inputs: dict[str, tuple[str, list[int], Any]]) -> Any:
        """Send a request; return its first response, None for an error."""
        if self._socket is None:
            url = f"ws://127.0.0.1:{self.server.http_port}/v2/models/{self.model}/stream"
            opening = connect(url, additional_headers=self.headers, open_timeout=_WITHIN_S)
            # never left: that would wait for the other end's closing frame
            self._socket = ExitStack().enter_context(opening)
        tensors = [
            {"name": name, "datatype": datatype, "shape": shape, "data": [value]}
            for name, (datatype, shape, value) in inputs.items()
        ]
        self._socket.send(json.dumps({"id": own_id, "inputs": tensors}))
        return self.receive(own_id)

    def receive(self, own_id: str) -> Any:
        assert self._socket is not None
        answer = json.loads(self._socket.recv(timeout=_WITHIN_S))
        # one that has come twice, or late, is found here, too
        if answer.get("id") != own_id:
            raise WrongAnswerError(f"{answer} for {own_id}")
        if "error" in answer:
            self.reason = f"{answer['status']} {answer['error']}"
            return None
        return answer


class SocketStreamClient(SocketClient):
    """One stream after the other on one WebSocket."""

    model = "tokens"

    def _ask(self) -> str:
        self.own_id = own_id = f"{self.prefix}-{next(self.numbers)}"
        inputs = {"COUNT": ("INT32", [1], _TOKENS), "DELAY_US": ("INT32", [1], 1000)}
        answer, count = self.send(own_id, inputs), 0
        while answer is not None:
            for output in answer.get("outputs", []):
                if output["name"] == "INDEX" and output["data"] != [count]:
                    raise WrongAnswerError(f"{output} at {count}")
            count += bool(answer.get("outputs"))
            if answer["parameters"]["triton_final_response"]:
                if count != _TOKENS:
                    raise WrongAnswerError(f"the stream has ended after {count}")
                return RIGHT
            answer = self.receive(own_id)
        return self.reason.split()[0]


class ReloadClient(HttpClient):
    """Loads a model again and again; whoever asks it meanwhile is answered."""

    model = "add_sub"

    def ask(self) -> str:
        if next(self.numbers) % 10 == 0:
            status, _ = self.post("/v2/repository/models/add_sub/load", {})
            self.reason = ""  # no request has failed
            return RIGHT if status == 200 else f"load {status}"
        tensors = [
            {"name": name, "shape": [1, 16], "datatype": "FP32", "data": [number] * 16}
            for number, name in enumerate(("INPUT0", "INPUT1"), start=1)
        ]
        status, answer = self.post("/v2/models/add_sub/infer", {"inputs": tensors})
        if status != 200:
            return str(status)
        got = {output["name"]: output["data"][0] for output in answer["outputs"]}
        if got != {"OUTPUT0": 3.0, "OUTPUT1": -1.0}:
            raise WrongAnswerError(str(got))
        return RIGHT


def _tensor(name: str, data: Any, datatype: str) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, list(data.shape), datatype)
    tensor.set_data_from_numpy(data)
    return tensor


KINDS: tuple[tuple[type[Client], int], ...] = (
    (HttpClient, 4),
    (GrpcClient, 3),
    (StreamClient, 2),
    (SocketClient, 2),
    (SocketStreamClient, 1),
    (SequenceClient, 2),
    (EnsembleClient, 2),
    (BlsClient, 2),
    (ReloadClient, 1),
)


@contextmanager
def mixed_clients(
    server: Server,
    kinds: Sequence[tuple[type[Client], int]] = KINDS,
    stamps: Timeline[int] | None = None,
) -> Iterator[list[Client]]:
    """Run all kinds of clients during the block; every request must have ended after it."""
    clients = [kind(server, n) for kind, count in kinds for n in range(count)]
    for client in clients:
        client.stamps = stamps
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.stop()
        hanging = [client.prefix for client in clients if not client.join()]
        assert hanging == [], "requests without an answer"
