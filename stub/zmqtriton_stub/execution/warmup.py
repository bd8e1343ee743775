"""Runs the samples of `model_warmup`, after initialize() and before the stub reports ModelLoaded.

They are executed like every batch, over a connection of their own to a simulated broker, so the
real one neither sees nor counts them. Called by the loop, which waits for answers that threads and
coroutines of the model still owe. The supervisor decides where files may be.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_CONFIG_NAME, BYTES, Datatype, count_elements
from zmqtriton_floor.errors import InternalError, InvalidArgument, ZmqTritonError
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.signature import Signature
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.broker.line import BrokerLine, PlayedDealer
from zmqtriton_stub.execution.executions import Executions
from zmqtriton_stub.execution.responses import OpenRequest
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.model import PythonModel

_FOLDER = "warmup"
#: A string without characters is its length only.
_EMPTY_STRING = 4
_BOOL = 1
#: A batch that is too large is reported once for each request, as Triton does, up to this number.
_MAX_TEXTS = 64


class Warmup:
    """The samples of one model, for one instance."""

    def __init__(self, config: dict[str, Any], directory: str) -> None:
        self._config = config
        self._directory = os.path.join(directory, _FOLDER)
        #: Requests of the present sample that a sender of the model may still answer.
        self.pending: dict[tuple[int, int], OpenRequest] = {}
        self._errors: list[str] = []
        #: Requests that the model wants to execute once more.
        self._again: list[wire.RequestKey] = []

    def run(
        self,
        model: PythonModel,
        instance: StubInstance,
        progress: ProgressView,
        wait: Callable[[], None],
    ) -> None:
        """Run all samples, one after the other.

        Raises an error with Triton's text at the first sample that fails.
        """
        watch = model.watch
        dealer = PlayedDealer(lambda message, _: self._answer(message, watch.wake))
        line = BrokerLine(watch.loop, lambda _: dealer)
        link = BrokerConnection(instance, line, watch, pending=self.pending)
        executions = Executions(instance, model, link, progress)
        with line.lock:
            line.connect("", link)
        for sample in self._config.get("model_warmup") or []:
            count = int(sample.get("batch_size", 0))
            if not count:
                continue
            self._check_size(sample, count, instance)
            body = wire.encode_body(self._request(sample))
            for _ in range(max(1, int(sample.get("count", 0)))):
                self._again = [wire.RequestKey(0, own_id) for own_id in range(1, count + 1)]
                while self._again or self.pending or executions.running:
                    keys, self._again = self._again, []
                    if keys:
                        works = [wire.BatchedRequest(0, *key, 0, 0, 0, 0) for key in keys]
                        dealer.say(wire.Execute(works), *[body] * len(works))
                        link.turn()
                        executions.begin(link.batches.popleft())
                    else:
                        wait()
                if self._errors:
                    raise _failed(sample, self._errors)
        line.close()
        if instance.states is not None:
            instance.states.clear()  # of the samples, which are of no sequence

    def _answer(self, message: Any, wake: Callable[[], None]) -> Iterator[tuple[Any, ...]]:
        """Take a message of the stub; yield the broker's: each response counts as read at once."""
        if type(message) is not wire.Results:
            return
        for outcome in message.outcomes:
            if outcome.code:
                self._errors.append(outcome.text)
            if outcome.blocks:
                yield (wire.Release(outcome.blocks),)
            if not outcome.flags:
                yield (wire.StreamAcks([wire.StreamAck(0, outcome.id, outcome.number + 1)]),)
        self._again += message.rescheduled
        wake()

    def _check_size(self, sample: dict[str, Any], count: int, instance: StubInstance) -> None:
        max_batch_size = int(self._config.get("max_batch_size", 0))
        if count > max(1, max_batch_size):
            text = f"batch size {count} for '{instance.name}', max allowed is {max_batch_size}"
            raise _failed(sample, [text] * min(count, _MAX_TEXTS))

    def _request(self, sample: dict[str, Any]) -> wire.RequestBody:
        """Return the body of each request in a sample's batch.

        Inputs that the configuration lacks, such as controls of a sequence, are passed to the model
        unchanged.
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
            raise InternalError(
                f"failed to open text file for read {path}: {os.strerror(error.errno or 0)}"
            ) from None
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
