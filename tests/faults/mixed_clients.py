"""Clients of every kind, each in a loop: what each request came to, and whether that was right."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, Queue
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from websockets import exceptions
from websockets.sync.client import ClientConnection, connect

from tests.faults.days.judging import Failure, Timeline
from tests.support.clients import infer_inputs
from tests.support.journal import journal_arrays, journal_inputs
from tests.support.server import Server, tensor

RIGHT, _WITHIN_S = "right", 60.0
#: Of streams, and of sequences.
TOKENS, _STEPS = 40, 6
#: The words of gRPC's clients for a connection that ended, or that there was none.
_LOST = re.compile(
    r"onnect|ocket closed|Broken pipe|Stream removed|GOAWAY|EOF|recvmsg|sendmsg|Cancelling all"
    # the stream has broken before the first request was made on it
    r"|no longer in valid state"
)


class WrongAnswerError(Exception):
    """Raised for an answer that is somebody else's, incomplete, or out of order."""


class Ask(NamedTuple):
    """One request of a client."""

    kind: type[Client]
    #: On the clock of time.monotonic().
    begun: float
    wait_s: float
    #: "right", or what went wrong.
    outcome: str


class Client(ABC):
    """Asks until it is told to stop. A failure that the server has told is an outcome, too."""

    model, frontend = "journal", "http"
    #: The output that has the id.
    output = "ID"

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.prefix = f"{type(self).__name__}{number}"
        #: Sent with each request.
        self.headers: Mapping[str, str] = {}
        #: Between two requests, on average.
        self.pause_s = 0.0
        self.numbers = itertools.count()
        #: What became of the requests: "right", or the error.
        self.outcomes: Counter[str] = Counter()
        #: All requests of it, and of those that run with it.
        self.asks: list[Ask] = []
        #: The last of them.
        self.newest = ""
        self.wrong: list[str] = []
        #: Those without an answer.
        self.hung: list[str] = []
        #: Those that the server, or the end of a connection, has failed.
        self.failures: list[Failure] = []
        #: The stamps that its model may have, where that is known.
        self.stamps: Timeline[int] | None = None
        #: The last request: when it was made, its id if it has one, what it came to, and why.
        self.sent_ns, self.own_id, self.outcome, self.reason = 0, "", "", ""
        #: How often the model may have executed each request.
        self.executions_of: dict[str, int] = {}
        #: When the newest request that was answered right was made.
        self.right_ns = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._run, name=self.prefix, daemon=True)

    @abstractmethod
    def ask(self) -> None:
        """Make one request; set the outcome if it is not right and not a failure.

        Raises InferenceServerException for an error of the server, TimeoutError where there is no
        answer, WrongAnswerError, and the errors of connections.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one."""

    def _run(self) -> None:
        while not self.is_over.wait(random.uniform(0, 2 * self.pause_s)):
            self.newest = self.request()
            self.outcomes[self.newest] += 1
            begun, now = self.sent_ns / 1e9, time.monotonic()
            self.asks.append(Ask(type(self), begun, now - begun, self.reason or self.newest))
            if self.newest == RIGHT:
                self.right_ns = self.sent_ns
            else:
                self.is_over.wait(0.02)
        self.close()

    def request(self) -> str:
        """Make one request; return "right", or the kind of its failure, and keep the reason."""
        self.sent_ns, self.own_id, self.outcome, self.reason = time.monotonic_ns(), "", RIGHT, ""
        try:
            self.ask()
        except InferenceServerException as error:
            self.outcome = str(error.status() or error.message())
            self.reason = f"{error.status()} {error.message()}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not right
            self.close()
            self.reason = f"{type(error).__name__}: {error}"
            is_hung = isinstance(error, TimeoutError)
            if is_hung or not isinstance(error, (OSError, http.client.HTTPException)):
                texts = self.hung if is_hung else self.wrong
                texts.append(f"{self.sent_ns / 1e9:.3f} {self.prefix}: {error!r}")
                return "hung" if is_hung else "wrong"
            self.outcome = f"connection: {type(error).__name__}"
        if self.reason:
            of = self.prefix, self.model, self.frontend, self.own_id
            times = self.sent_ns, time.monotonic_ns()
            is_lost = self.outcome.startswith("connection") or _LOST.search(self.reason) is not None
            self.failures.append(Failure(*of, *times, self.reason, is_lost))
        return self.outcome

    def new_id(self, executions: int = 1) -> str:
        self.own_id = f"{self.prefix}-{next(self.numbers)}"
        self.executions_of[self.own_id] = executions
        return self.own_id

    def check_outputs(self, outputs: list[dict[str, Any]]) -> None:
        """Check the id and the stamp of an answer."""
        got = {output["name"]: output["data"] for output in outputs}
        check_same([self.own_id], got.get(self.output))
        [stamp] = got.get("STAMP", [None])
        self.check_stamp(stamp)

    def check_stamp(self, stamp: int | None) -> None:
        """Raise WrongAnswerError if no such state of the model may have answered."""
        if stamp is not None and self.stamps is not None:
            allowed = self.stamps.allowed(self.sent_ns, time.monotonic_ns())
            if stamp not in allowed:
                raise WrongAnswerError(f"of state {stamp}, may be of {sorted(allowed)}")


def check_same(expected: object, got: object) -> None:
    """Raise WrongAnswerError if an answer is not the one that was expected."""
    if got != expected:
        raise WrongAnswerError(f"{got} for {expected}")


class HttpClient(Client):
    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._connection: http.client.HTTPConnection | None = None

    def send(
        self, method: str, path: str, body: str | bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Send a request; return status and content of its answer."""
        if self._connection is None:
            port = self.server.http_port
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WITHIN_S)
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read() or b"{}"

    def post(self, path: str, document: Any) -> Any:
        status, content = self.send("POST", path, json.dumps(document), self.headers)
        answer = json.loads(content)
        if status != 200:
            raise InferenceServerException(answer.get("error", ""), str(status))
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self) -> None:
        own_id = self.new_id(2 if self.model == "twice_journal" else 1)
        document = {"inputs": journal_inputs(own_id, 5)}
        self.check_outputs(self.post(f"/v2/models/{self.model}/infer", document)["outputs"])


class EnsembleClient(HttpClient):
    model, output = "twice_journal", "AGAIN"


class BlsClient(HttpClient):
    model = "asking"


class SequenceClient(HttpClient):
    """One sequence after the other; after an error the next one."""

    model = "sequences"
    _ids = itertools.count(1000)

    def ask(self) -> None:
        sequence, total = next(self._ids), 0
        for step in range(_STEPS):
            value = tensor("VALUE", "INT32", [step + 1], [1, 1])
            flags = {"sequence_start": step == 0, "sequence_end": step == _STEPS - 1}
            document = {"inputs": [value], "parameters": {"sequence_id": sequence, **flags}}
            answer = self.post("/v2/models/sequences/infer", document)
            total += step + 1
            check_same([total], next(o["data"] for o in answer["outputs"] if o["name"] == "SUM"))


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

    def ask(self) -> None:
        own_id = self.new_id()
        inputs = infer_inputs(grpcclient, **journal_arrays(own_id, 5))
        try:
            answer = self.client.infer(
                "journal", inputs, client_timeout=_WITHIN_S, headers=self.headers
            )
        except InferenceServerException as error:
            if "DEADLINE" in str(error.status()):
                raise TimeoutError(f"no answer to {own_id}") from error
            raise
        check_same([own_id.encode()], answer.as_numpy("ID").ravel().tolist())
        stamps = answer.as_numpy("STAMP")
        self.check_stamp(None if stamps is None else int(stamps.ravel()[0]))


class StreamClient(GrpcClient):
    """One stream of responses after the other, each with a connection of its own."""

    model = "tokens"

    def arrays(self) -> dict[str, Any]:
        """Return the inputs of a stream of TOKENS responses."""
        return {"COUNT": np.array([TOKENS], np.int32), "DELAY_US": np.array([1000], np.int32)}

    def check_response(self, result: Any, count: int) -> None:
        """Raise WrongAnswerError if it is not the one of this number."""
        check_same([count], result.as_numpy("INDEX").ravel().tolist())

    def ask(self) -> None:
        responses: Queue[Any] = Queue()
        is_whole = False
        try:
            self.client.start_stream(
                lambda result, error: responses.put((result, error)), headers=self.headers
            )
            inputs = infer_inputs(grpcclient, **self.arrays())
            self.client.async_stream_infer(self.model, inputs, enable_empty_final_response=True)
            self._read(responses)
            is_whole = True
        finally:
            with suppress(InferenceServerException, RuntimeError):
                # a stream that is cancelled leaves a thread of the client behind
                self.client.stop_stream(cancel_requests=not is_whole)
            self.close()
        # it ends once; the end of its connection comes later, and may be a bad one
        rest = [result or error for result, error in responses.queue if not _is_lost(error)]
        check_same([], rest)

    def _read(self, responses: Queue[Any]) -> None:
        for count in itertools.count():
            try:
                result, error = responses.get(timeout=_WITHIN_S)
            except Empty:
                raise TimeoutError(f"the stream stands still after {count}") from None
            if error is not None:
                raise error
            response = result.get_response()
            if response.outputs:
                self.check_response(result, count)
            if response.parameters["triton_final_response"].bool_param:
                check_same(TOKENS, count + bool(response.outputs))
                return


def _is_lost(error: InferenceServerException | None) -> bool:
    return error is not None and error.status() is not None


class SocketClient(Client):
    """Requests on one WebSocket, one after the other."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self._socket: ClientConnection | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close_socket()
            self._socket = None

    def ask(self) -> None:
        try:
            self._ask()
        except exceptions.InvalidStatus as error:
            answer = error.response
            raise InferenceServerException(answer.body.decode(), str(answer.status_code)) from None
        except (exceptions.ConnectionClosed, exceptions.InvalidHandshake, EOFError) as error:
            raise ConnectionResetError(repr(error)) from error

    def _ask(self) -> None:
        self.send(journal_inputs(self.new_id(), 5))
        self.check_outputs(self.receive()["outputs"])

    def send(self, inputs: list[dict[str, Any]]) -> None:
        if self._socket is None:
            url = f"ws://127.0.0.1:{self.server.http_port}/v2/models/{self.model}/stream"
            opening = connect(url, additional_headers=self.headers, open_timeout=_WITHIN_S)
            # never left: that would wait for the other end's closing frame
            self._socket = ExitStack().enter_context(opening)
        self._socket.send(json.dumps({"id": self.own_id, "inputs": inputs}))

    def receive(self) -> Any:
        """Return the next response to the last request."""
        assert self._socket is not None
        answer = json.loads(self._socket.recv(timeout=_WITHIN_S))
        # one that has come twice, or late, is found here, too
        if answer.get("id") != self.own_id:
            raise WrongAnswerError(f"{answer} for {self.own_id}")
        if "error" in answer:
            raise InferenceServerException(answer["error"], str(answer["status"]))
        return answer


class SocketStreamClient(SocketClient):
    """One stream after the other on one WebSocket."""

    model = "tokens"

    def _ask(self) -> None:
        self.own_id = f"{self.prefix}-{next(self.numbers)}"
        count, delay = (
            tensor("COUNT", "INT32", [TOKENS]),
            tensor("DELAY_US", "INT32", [1000]),
        )
        self.send([count, delay])
        for number in itertools.count():
            answer = self.receive()
            for output in answer.get("outputs", []):
                if output["name"] == "INDEX":
                    check_same([number], output["data"])
            if answer["parameters"]["triton_final_response"]:
                check_same(TOKENS, number + bool(answer.get("outputs")))
                return


class ReloadClient(HttpClient):
    """Loads a model again and again; whoever asks it meanwhile is answered."""

    model = "add_sub"

    def ask(self) -> None:
        if next(self.numbers) % 10 == 0:
            try:
                self.post("/v2/repository/models/add_sub/load", {})
            except InferenceServerException as error:  # no request has failed
                self.outcome = f"load {error.status()}"
            return
        inputs = [
            tensor(name, "FP32", [number] * 16, [1, 16])
            for number, name in enumerate(("INPUT0", "INPUT1"), start=1)
        ]
        answer = self.post("/v2/models/add_sub/infer", {"inputs": inputs})
        got = {output["name"]: output["data"][0] for output in answer["outputs"]}
        check_same({"OUTPUT0": 3.0, "OUTPUT1": -1.0}, got)


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
    headers: Mapping[str, str] | None = None,
    pause_s: float = 0.0,
) -> Iterator[list[Client]]:
    """Run all kinds of clients during the block; every request must have ended after it."""
    clients = [kind(server, n) for kind, count in kinds for n in range(count)]
    asks: list[Ask] = []
    for client in clients:
        client.stamps, client.headers, client.pause_s = stamps, headers or {}, pause_s
        client.asks = asks
        client.thread.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.is_over.set()
        for client in clients:
            client.thread.join(2 * _WITHIN_S)
        hanging = [client.prefix for client in clients if client.thread.is_alive()]
        assert hanging == [], "requests without an answer"
