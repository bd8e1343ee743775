"""One call of execute() and its responses, in the messages of a simulated broker.

A server leaves out outputs that the configuration does not have: a client would notice the mistake,
so a test reports it here. Functions of the test replace the models that a model calls by BLS.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from zmqtriton.sdk.broker import SequenceControls
from zmqtriton.sdk.process import InferenceRequest
from zmqtriton.sdk.wire import NotFound, ZmqTritonError, arrays, datatypes, wire

#: Takes arrays by name, and returns arrays by name, or an iterable of them for a stream.
Answer = Callable[[Mapping[str, Any]], Mapping[str, Any] | Iterable[Mapping[str, Any]]]
_Reply = tuple[wire.Reply, bytes]
#: A row of Results and its body.
OutcomeWithBody = tuple[wire.Outcome, bytes]


class Batch:
    """The requests of one batch; their responses are put into `answers`."""

    def __init__(self, first_id: int, controls: SequenceControls, *, is_iterative: bool) -> None:
        """Set up; the ids of the batch's requests are consecutive numbers."""
        self.first_id = first_id
        self._controls = controls
        self._is_iterative = is_iterative
        #: Outcomes that the model has sent, from any of its threads, in their order.
        self.answers: queue.SimpleQueue[OutcomeWithBody] = queue.SimpleQueue()
        #: The requests as they came, in their order, and the ids of unanswered ones.
        self._requests: list[tuple[wire.BatchedRequest, wire.Request, bytes]] = []
        self._open: set[int] = set()
        #: Requests that the model has rescheduled, to execute them once more.
        self._again: list[int] = []
        #: The numbers of executions that have not ended.
        self._executing: set[int] = set()

    def add(self, request: InferenceRequest, body: wire.RequestBody) -> None:
        """Add a request, which the model gets next."""
        row, encoded = _row(request), wire.encode_body(body)
        own_id = self.first_id + len(self._requests)
        if self._is_iterative:  # each request is a sequence by itself
            flags = row.flags & ~wire.SEQUENCE_END | wire.SEQUENCE_START
            row = row._replace(flags=flags, correlation=row.correlation or own_id)
        work = wire.BatchedRequest(
            0,
            0,
            own_id,
            row.flags,
            row.correlation,
            request.priority,
            request.timeout,
            deadline_ns=row.deadline_ns,
        )
        self._requests.append((work, row, encoded))
        self._again.append(own_id)
        self._open.add(own_id)

    @property
    def is_answered(self) -> bool:
        """True if all requests are answered, and all responses have been taken."""
        return not (self._open or self._executing) and self.answers.empty()

    def next_execution(self, number: int) -> tuple[Any, ...] | None:
        """Return the message of the next execution, and its bodies; None without one."""
        ids, self._again = self._again, []
        if not ids:
            return None
        self._executing.add(number)
        works, bodies = [], []
        for own_id in ids:
            work, row, encoded = self._requests[own_id - self.first_id]
            works.append(work._replace(batch=number, flags=row.flags))
            bodies.append(self._controls.tell(row, encoded))
            again = row._replace(flags=row.flags & ~wire.SEQUENCE_START)
            self._requests[own_id - self.first_id] = work, again, encoded
        return wire.Execute(works), *bodies

    def take(self, results: wire.Results, bodies: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        """Take results of the stub; yield messages about the progress of streams' readers."""
        for outcome, body in zip(results.outcomes, bodies, strict=True):
            if self.first_id <= outcome.id < self.first_id + len(self._requests):
                self.answers.put((outcome, body))
                if outcome.flags & wire.FINAL:
                    self._open.discard(outcome.id)
                else:
                    yield (wire.StreamAcks([wire.StreamAck(0, outcome.id, outcome.number + 1)]),)
        self._again += [key.id for key in results.rescheduled if key.id in self._open]
        self._executing.difference_update(executed.batch for executed in results.executed)

    def end(self) -> Iterator[tuple[Any, ...]]:
        """Yield messages that cancel open requests, and end sequences."""
        yield (wire.CancelExecution([wire.RequestKey(0, own_id) for own_id in self._open]),)
        for work, row, _ in self._requests:
            if row.flags & wire.SEQUENCE_END or self._is_iterative:
                yield wire.Execute([work._replace(flags=wire.SEQUENCE_OVER)]), b""


class PlayedBroker:
    """A simulated broker of one stub."""

    def __init__(self) -> None:
        #: The batches that have not ended.
        self.batches: list[Batch] = []

    def take(self, message: Any, bodies: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        """Take a message of the stub; yield the answers to it. Metrics are not kept."""
        if type(message) is wire.Hello:
            yield (wire.Welcome(message.epoch),)
        elif type(message) is wire.Call and message.id:
            yield (wire.CallResult(message.id, 0, "", "null"),)
        elif type(message) is wire.Results:
            for batch in self.batches:
                yield from batch.take(message, bodies)


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
    """Raise OutputError for a wrong type or shape; batch size None allows any."""
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

    def take(self, message: Any, bodies: Sequence[bytes]) -> Iterator[tuple[Any, ...]]:
        """Take a message about the model's calls; yield the answers to it."""
        if type(message) is wire.Infer:
            for reply, body in self._replies(message.requests[0], bodies[0]):
                yield wire.Replies([reply]), body

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
