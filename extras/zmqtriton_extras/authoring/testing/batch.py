"""One call of execute() and its answers: stands where a stub has its connection to the broker.

A server leaves out what a model makes and its configuration does not know: a client would find the
mistake, a test finds it here. Functions of the test play the models that a model calls by BLS: the
stub's own client speaks, to a connection that answers at once in the same process.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zmqtriton.broker.sequences.controls import SequenceControls
from zmqtriton.sdk.models import api
from zmqtriton.sdk.process import InferenceRequest
from zmqtriton.sdk.wire import NotFound, ZmqTritonError, arrays, datatypes, wire
from zmqtriton_floor.settings.codec import encode
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_stub.broker.between_threads import Bell
from zmqtriton_stub.broker.bls_client import BlsClient
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
from zmqtriton_stub.execution.response_counts import ResponseCounter
from zmqtriton_stub.execution.responses import OpenRequest, OutcomeWithBody, state_lock
from zmqtriton_stub.execution.streams import OpenStream
from zmqtriton_stub.instance import StubInstance

#: Takes arrays by name, and returns arrays by name, or an iterable of them for a stream.
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any] | Iterable[Mapping[str, Any]]]
#: Token of the connection to the broker, which is not checked in tests.
_TOKEN = bytes(16)
_Reply = tuple[wire.Reply, bytes]


class Batch:
    """The requests of one batch; their responses come out of `answers`."""

    def __init__(self, instance: StubInstance, controls: SequenceControls) -> None:
        self.instance = instance
        self.is_closed = False
        self.descriptor = 0  # of no connection, but there is a broker
        self.pending: dict[tuple[int, int], OpenRequest] = {}
        self.answered = UnconfirmedAnswers()
        self.tallies = ResponseCounter()
        self.poll_while_executing: Callable[[], None] = lambda: None
        #: Outcomes that the model has sent, from any of its threads, in their order.
        self.answers: queue.SimpleQueue[OutcomeWithBody] = queue.SimpleQueue()
        #: Names of all outputs that the model has made, also those that no request wants.
        self.output_names: set[str] = set()
        self._controls = controls
        #: The requests as they came, by their keys.
        self._requests: dict[tuple[int, int], tuple[wire.Request, bytes]] = {}
        #: Requests that the model has rescheduled, to execute them once more.
        self._again: list[OpenRequest] = []

    def add(self, number: int, request: InferenceRequest, body: wire.RequestBody) -> None:
        """Add a request, which the model gets next."""
        row, encoded = _row(request), wire.encode_body(body)
        if self.instance.is_iterative:  # each request is a sequence by itself
            flags = row.flags & ~wire.SEQUENCE_END | wire.SEQUENCE_START
            row = row._replace(flags=flags, correlation=row.correlation or number + 1)
        work = wire.BatchedRequest(
            0,
            0,
            number,
            row.flags,
            row.correlation,
            request.priority,
            request.timeout,
            deadline_ns=row.deadline_ns,
        )
        owed = _NotedStream if self.instance.is_decoupled else _Noted
        pending = owed(self, work, self._controls.tell(row, encoded))
        self.pending[pending.route] = pending
        self._requests[pending.route] = row, encoded

    @property
    def is_answered(self) -> bool:
        """True if nothing is owed, and all that was sent has been taken."""
        with state_lock:  # a thread of the model may be between the two
            return not self.pending and self.answers.empty()

    def take_rescheduled(self) -> list[OpenRequest]:
        """Take the requests that the model wants to execute once more, ready for that."""
        again, self._again = self._again, []
        for pending in again:
            row, encoded = self._requests[pending.route]
            row = row._replace(flags=row.flags & ~wire.SEQUENCE_START)
            work = pending.work._replace(flags=row.flags)
            pending.resume(work, self._controls.tell(row, encoded))
        return again

    def end(self) -> None:
        """Cancel open requests, since the test waits no longer; drop states of ended sequences."""
        for pending in list(self.pending.values()):
            pending.cancel()
        for row, _ in self._requests.values():
            is_over = row.flags & wire.SEQUENCE_END or self.instance.is_iterative
            if is_over and self.instance.states is not None:
                self.instance.states.end(row.correlation)

    # ------------------------------------------------------------- BrokerLink

    def send(self, message: list[bytes]) -> None:
        results = wire.decode(message[0])
        if type(results) is not wire.Results:
            return  # of memory and metrics nobody else is told
        for answer in zip(results.outcomes, message[1:], strict=True):
            self.answers.put(answer)
        self._again += [self.pending[key.peer, key.id] for key in results.rescheduled]

    def put(self, item: OutcomeWithBody) -> None:
        self.answers.put(item)
        outcome, _ = item
        stream = self.pending.get((outcome.peer, outcome.id))
        if isinstance(stream, OpenStream):
            stream.grant(outcome.number + 1)

    def tell_tallies(self) -> None:
        """Do nothing: tests are not counted."""

    def postpone(self, step: Callable[[], None]) -> None:
        step()  # no thread here waits with the lock for another one

    def turn(self, *, takes: bool = True) -> None:
        """Do nothing: a sent response has arrived."""

    def wait(self, timeout_ms: int) -> None:
        """Do nothing: a reader never lags behind."""


class _Noted(OpenRequest):
    """A request that notes the outputs of its responses."""

    __slots__ = ()
    _link: Batch

    def encode(self, response: api.InferenceResponse, flags: int = wire.FINAL) -> OutcomeWithBody:
        # before those are left out that the configuration does not have
        self._link.output_names.update(tensor.name() for tensor in response.output_tensors())
        return super().encode(response, flags)


class _NotedStream(_Noted, OpenStream):
    __slots__ = ()


def _row(request: InferenceRequest) -> wire.Request:
    flags = wire.SEQUENCE_START if request.sequence_start else 0
    flags |= wire.SEQUENCE_END if request.sequence_end else 0
    within_s = request.deadline_s
    deadline_ns = 0 if within_s is None else time.monotonic_ns() + int(within_s * 1e9)
    return wire.Request(
        0,
        0,
        "",
        -1,
        flags,
        request.priority,
        request.timeout,
        deadline_ns,
        0,
        0,
        request.correlation_id,
    )


class OutputError(AssertionError):
    """Raised if an output contradicts the model's configuration."""


def check_names(names: Iterable[str], config: Mapping[str, Any]) -> None:
    """Raise OutputError for an output that a server would leave out."""
    declared = [entry["name"] for entry in config.get("output", ())]
    batching = config.get("sequence_batching") or {}
    states = [entry["output_name"] for entry in batching.get("state", ())]
    for name in names:
        if name not in declared + states:
            raise OutputError(
                f"model '{config['name']}' has made an output '{name}', which is not in its "
                f"configuration: declare it, or return one of {', '.join(declared)}"
            )


def check_tensors(
    tensors: Iterable[wire.Tensor], config: Mapping[str, Any], batch_size: int | None
) -> None:
    """Raise OutputError for a wrong type or shape; the batch size is None if it may be any."""
    entries = {entry["name"]: entry for entry in config.get("output", ())}
    is_batching = bool(config.get("max_batch_size"))
    for tensor in tensors:
        entry = entries[tensor.name]
        what = f"output '{tensor.name}' of model '{config['name']}'"
        declared = datatypes.BY_CONFIG_NAME[entry["data_type"]]
        if tensor.datatype != declared.number:
            raise OutputError(
                f"{what} is {datatypes.BY_NUMBER[tensor.datatype].name}, and its configuration "
                f"says {declared.name} ({declared.config_name})"
            )
        dims = [int(dim) for dim in entry["dims"]]
        if is_batching:
            dims.insert(0, -1 if batch_size is None else batch_size)
        if not _fits(tensor.shape, dims):
            note = ", of which the first is the batch" if is_batching else ""
            raise OutputError(
                f"{what} has the shape {list(tensor.shape)}, but its configuration says "
                f"{dims}{note}"
            )


def _fits(shape: list[int], dims: list[int]) -> bool:
    return len(shape) == len(dims) and all(
        dim in (-1, size) for size, dim in zip(shape, dims, strict=True)
    )


class CalledModels:
    """The answers of other models, by their names."""

    def __init__(self, model: str, answers: Mapping[str, Answer]) -> None:
        self._model = model
        self._answers = answers
        #: Exception of a function of the test. The model gets it as an error; it is also raised
        #: in the test.
        self.raised: BaseException | None = None

    def make_client(self) -> BlsClient:
        """Return the client of `exec` and `async_exec`; its answers come from this object."""
        memory: Any = _NoMemory()
        bootstrap = wire.Bootstrap(0, _TOKEN, "", "", 1, encode(StubSettings()))
        return BlsClient(bootstrap, memory, dict, lambda: None, dial=self._dial)

    def _dial(self, bootstrap: wire.Bootstrap) -> Any:
        return _Connection(self._replies)

    def _replies(self, row: wire.Request, body: bytes) -> Iterator[_Reply]:
        """Yield the replies to one call; the last one is final."""
        try:
            answer = self._answer(row, body)
            if isinstance(answer, Mapping):
                yield wire.Reply(row.id, 0, "", wire.FINAL), _body(answer)
                return
            number = 0
            for number, outputs in enumerate(answer, 1):
                yield wire.Reply(row.id, 0, "", 0, number - 1), _body(outputs)
            yield wire.Reply(row.id, 0, "", wire.FINAL, number), b""
        except ZmqTritonError as error:
            yield wire.Reply(row.id, error.number, error.text, wire.FINAL), b""
        except BaseException as error:  # noqa: BLE001 - raised again where the test has called
            self.raised = error
            text = f"{type(error).__name__}: {error}"
            yield wire.Reply(row.id, ZmqTritonError.number, text, wire.FINAL), b""

    def _answer(
        self, row: wire.Request, body: bytes
    ) -> Mapping[str, Any] | Iterable[Mapping[str, Any]]:
        if row.model not in self._answers:
            raise NotFound(
                f"model '{self._model}' calls '{row.model}', and this test has no answer for it: "
                f"load_model(..., bls={{'{row.model}': function}})"
            )
        return self._answers[row.model](arrays.to_arrays(wire.decode_request(body).inputs))


def _body(outputs: Mapping[str, Any]) -> bytes:
    return wire.encode_body(wire.ResponseBody({}, arrays.to_tensors(outputs, {})))


class _Connection:
    """Replaces the DEALER to the broker, with the methods that the client uses."""

    is_open = True

    def __init__(self, answer: Callable[[wire.Request, bytes], Iterable[_Reply]]) -> None:
        self._answer = answer
        self._bell = Bell()  # never rung: replies are here before anybody waits
        self.messages: deque[list[bytes]] = deque()

    def fileno(self) -> int:
        return self._bell.descriptor

    def put(self, frames: Sequence[bytes]) -> None:
        message = wire.decode(frames[0])
        if type(message) is wire.Infer:
            for reply, body in self._answer(message.requests[0], frames[1]):
                self.messages.append([wire.encode(wire.Replies([reply])), body])

    def has_input(self) -> bool:
        return bool(self.messages)

    def finish(self) -> None:
        """Do nothing: a queued response has arrived."""

    def close(self) -> None:
        self.messages.clear()


class _NoMemory:
    """In place of the memory that processes share."""

    def answered(self, blocks: Sequence[wire.Block], after: int = 0) -> None:
        """Do nothing: there are no blocks."""

    def release(self, message: wire.Release) -> None:
        """Do nothing: nothing is leased."""
