"""Runs the samples of `model_warmup`, after initialize() and before the stub reports ModelLoaded.

They take the way of every batch through `executions`, with a `WarmupSink` in place of the link: so
the broker neither sees nor counts them. Called by the loop, which waits for what threads and
coroutines of the model still owe. Where files may lie is the supervisor's decision.
"""

from __future__ import annotations

import os
from typing import Any, Callable

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BYTES, Datatype, count_elements
from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.signature import Signature
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
from zmqtriton_stub.execution.executions import Executions
from zmqtriton_stub.execution.response_counts import ResponseCounter
from zmqtriton_stub.execution.responses import OpenRequest, OutcomeWithBody
from zmqtriton_stub.execution.streams import OpenStream
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.model import PythonModel

_FOLDER = "warmup"
#: A string without characters is its length only.
_EMPTY_STRING = 4
_BOOL = 1
#: A batch that is too large is reported once for each request, as Triton does, up to this number.
_MAX_TEXTS = 64


class WarmupSink:
    """The link of the samples, which no client has sent: keeps the errors, drops the rest."""

    def __init__(self, link: BrokerConnection) -> None:
        self.instance = link.instance
        self.pending: dict[tuple[int, int], OpenRequest] = {}
        self.answered = UnconfirmedAnswers()
        #: Counts of the samples' responses, which are never reported.
        self.tallies = ResponseCounter()
        self.errors: list[str] = []
        #: Requests that the model wants to execute once more.
        self.again: list[OpenRequest] = []
        self._link = link
        self.descriptor = 0  # of no connection, but there is a broker
        self.postpone = link.postpone
        self.wait = link.wait
        self.turn = link.turn
        self.poll_while_executing = link.poll_while_executing

    @property
    def is_closed(self) -> bool:
        return self._link.is_closed

    def send(self, message: list[bytes]) -> None:
        results = wire.decode(message[0])
        if type(results) is not wire.Results:
            self._link.send(message)
            return
        for outcome in results.outcomes:
            self._take(outcome)
        self.again += [self.pending[route] for route in results.rescheduled]
        self._link.wake()

    def put(self, answer: OutcomeWithBody) -> None:
        outcome, _ = answer
        memory = self.instance.memory
        if memory is not None and not outcome.flags:
            memory.arena.leases.send(memory.own(outcome.blocks))
        self._take(outcome)
        stream = self.pending.get((outcome.peer, outcome.id))
        if isinstance(stream, OpenStream):
            stream.grant(outcome.number + 1)
        self._link.wake()

    def _take(self, outcome: wire.Outcome) -> None:
        if outcome.code:
            self.errors.append(outcome.text)
        if outcome.blocks and self.instance.memory is not None:
            self.instance.memory.hear_of_blocks(wire.Release(outcome.blocks))

    def tell_tallies(self) -> None:
        """Do nothing: samples are not counted."""


class Warmup:
    """The samples of one model, for one instance."""

    def __init__(self, config: dict[str, Any], directory: str) -> None:
        self._config = config
        self._samples: list[dict[str, Any]] = config.get("model_warmup") or []
        self._directory = os.path.join(directory, _FOLDER)
        #: Requests of the present sample that a sender of the model may still answer.
        self.pending: dict[tuple[int, int], OpenRequest] = {}

    def run(
        self,
        model: PythonModel,
        link: BrokerConnection,
        progress: ProgressView,
        wait: Callable[[], None],
    ) -> None:
        """Run all samples, one after the other.

        Raises with Triton's text at the first that fails.
        """
        for sample in self._samples:
            count = int(sample.get("batch_size", 0))
            if not count:
                continue
            self._check_size(sample, count, link.instance)
            body = wire.encode_body(self._request(sample))
            for _ in range(max(1, int(sample.get("count", 0)))):
                self._run(sample, [body] * count, (model, link, progress), wait)
        if link.instance.states is not None:
            link.instance.states.clear()  # of the samples, which are of no sequence

    def _run(
        self,
        sample: dict[str, Any],
        bodies: list[bytes],
        parts: tuple[PythonModel, BrokerConnection, ProgressView],
        wait: Callable[[], None],
    ) -> None:
        model, link, progress = parts
        sink: Any = WarmupSink(link)
        self.pending = sink.pending
        executions = Executions(link.instance, model, sink, progress)
        owed = OpenStream if link.instance.is_decoupled else OpenRequest
        batch = []
        for own_id, body in enumerate(bodies, 1):
            pending = owed(sink, wire.BatchedRequest(0, 0, own_id, 0, 0, 0, 0), body)
            sink.pending[pending.route] = pending
            batch.append(pending)
        executions.begin(0, batch)
        del batch, pending  # whoever of the model holds a sender decides when it ends
        while sink.pending or executions.running:
            again, sink.again = sink.again, []
            for pending in again:
                pending.resume(pending.work, bodies[0])
            if again:
                executions.begin(0, again)
            else:
                wait()
        if sink.errors:
            raise _failed(sample, sink.errors)

    def _check_size(self, sample: dict[str, Any], count: int, instance: StubInstance) -> None:
        max_batch_size = int(self._config.get("max_batch_size", 0))
        if count > max(1, max_batch_size):
            text = f"batch size {count} for '{instance.name}', max allowed is {max_batch_size}"
            raise _failed(sample, [text] * min(count, _MAX_TEXTS))

    def _request(self, sample: dict[str, Any]) -> wire.RequestBody:
        """Return the body that all requests of a sample's batch have.

        Inputs beyond those of the configuration, for instance controls of a sequence, are given to
        the model as they are.
        """
        inputs: dict[str, Any] = sample.get("inputs") or {}
        signature = Signature(self._config)
        own = [self._tensor(n, inputs[n]) for n in signature.inputs if n in inputs]
        body = wire.RequestBody("", {}, [], own)
        signature.check(body)
        others = [self._tensor(n, inputs[n]) for n in inputs if n not in signature.inputs]
        return body._replace(inputs=own + others)

    def _tensor(self, name: str, setting: dict[str, Any]) -> wire.Tensor:
        datatype = BY_CONFIG_NAME[setting["data_type"]]
        shape = [int(dim) for dim in setting.get("dims") or []]
        size = count_elements(shape) * (datatype.size or _EMPTY_STRING)
        if self._config.get("max_batch_size"):
            shape = [1, *shape]
        if "input_data_file" in setting:
            data = self._read(setting["input_data_file"], datatype, size)
        elif setting.get("random_data") is not None and datatype.number != BYTES:
            data = _random(datatype, size)
        else:
            data = bytes(size)
        return wire.Tensor(name, datatype.number, shape, data)

    def _read(self, name: str, datatype: Datatype, size: int) -> bytes:
        """Read a tensor's data from its file.

        The rest of the file is ignored, except for strings.
        """
        path = os.path.join(self._directory, name)
        try:
            with open(path, "rb") as file:
                data = file.read() if datatype.number == BYTES else file.read(size)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise InternalError(f"failed to open text file for read {path}: {why}") from None
        if len(data) < size and datatype.number != BYTES:
            raise InvalidArgument(
                f"[request id: <id_unknown>] warmup setting expects {size} bytes, but the data "
                f"provided from {name} only has {len(data)} bytes"
            )
        return data


def _random(datatype: Datatype, size: int) -> bytes:
    data = os.urandom(size)
    return bytes(byte & 1 for byte in data) if datatype.number == _BOOL else data


def _failed(sample: dict[str, Any], errors: list[str]) -> ZmqTritonError:
    text = f"failed to run warmup sample '{sample.get('name', '')}': "
    return InvalidArgument(text + "".join(f"{error}; " for error in errors))
