"""A fork's side: the calls of a process, which the model has forked, to the instance.

The fork has no connection of its own to the server. It shares an inlet with its own forks. Through
the inlet each process passes one end of every connection that it makes, and keeps the other end.
"""

from __future__ import annotations

import array
import itertools
import json
import os
import select
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable, ZmqTritonError, from_number
from zmqtriton_floor.zmtp import Dealer, await_events
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.api.inference import InferenceResponse
from zmqtriton_stub.api.tensor import packed
from zmqtriton_stub.broker.between_threads import ThreadOutbox
from zmqtriton_stub.broker.bls_client import BlsClient, refuse
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.broker.model_metrics import Measured
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.watch import Watch

_GONE = "the instance that this process was forked from has ended"


class ForkClient:
    """Calls to the instance from a fork, from any thread; each call waits for its answer."""

    def __init__(self, inlet: socket.socket | None) -> None:
        """Set up; without an inlet, because there were no descriptors for one, every call fails."""
        self.inlet = inlet
        self._dealer: Dealer | None = None
        self._outbox = ThreadOutbox(self._send)
        #: One call at a time.
        self._calling = threading.Lock()
        self._numbers = itertools.count(1)
        self.metrics = ForkedMetrics(self)

    def connect(self) -> Dealer:
        """Return a new connection to the instance; a closed one if the instance has ended."""
        ours, theirs = socket.socketpair()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
        with theirs, suppress(OSError):  # if nobody takes it, it is closed
            if self.inlet is not None:
                self.inlet.sendmsg([b"\0"], [rights], socket.MSG_NOSIGNAL)
        return Dealer("", ours)

    def abandon(self) -> None:
        """Leave the connection to the parent after another fork; the inlet is shared."""
        if self._dealer is not None:
            self._dealer.abandon()

    def tell(self, message: Any) -> None:
        """Send a message without an answer; it is lost if the instance has ended."""
        self._outbox.put([wire.encode(message)])

    def _send(self, frames: list[bytes]) -> None:
        if self._dealer is None:
            self._dealer = self.connect()
        self._dealer.put(frames)
        self._dealer.finish()

    def call(self, verb: str, arguments: str, *bodies: bytes) -> Any:
        """The result of a call with arguments in JSON. Raises the instance's error."""
        with self._calling:
            self._outbox.put(
                [wire.encode(wire.Call(next(self._numbers), verb, arguments)), *bodies]
            )
            answer = wire.decode(self._receive())
        if type(answer) is not wire.CallResult:
            raise InternalError("the instance's answer does not decode")
        if answer.code:
            raise from_number(answer.code, answer.text)
        return json.loads(answer.result)

    def _receive(self) -> bytes:
        while self._dealer is None:
            time.sleep(0.001)  # another thread is about to make it, and sends for us
        while not self._dealer.has_input():
            if not self._dealer.is_open:
                raise Unavailable(_GONE)
            await_events(self._dealer.fileno(), select.POLLIN)
        return self._dealer.receive()[0]

    def is_cancelled(self, route: tuple[int, int]) -> bool:
        return bool(self.call("is_cancelled", json.dumps(route)))

    def send(self, route: tuple[int, int], response: InferenceResponse | None, flags: int) -> None:
        """Send a response of the model through the instance. Raises the instance's refusal."""
        error = None if response is None else response._error
        bodies: list[bytes] = []
        if response is not None and error is None:
            tensors = [packed(tensor) for tensor in response._output_tensors]
            bodies = [wire.encode_body(wire.ResponseBody(response._parameters, tensors))]
        failure = None if error is None else [error.message(), int(error.code()), error.number]
        try:
            self.call("send", json.dumps([*route, flags, failure]), *bodies)
        except ZmqTritonError as refusal:
            raise TritonModelException(refusal.text) from None


class ForkedBlsClient(BlsClient):
    """The calls of other models from a fork; the instance passes them on to the broker."""

    def __init__(self, bootstrap: wire.Bootstrap, memory: TensorMemory, line: ForkClient) -> None:
        watch = Watch()
        super().__init__(
            bootstrap, memory, BrokerLine(watch.replies, lambda _: line.connect()), watch
        )
        self._refusal = Unavailable(_GONE)

    def ended(self) -> bool:
        """Refuse all calls: there is no other connection."""
        refuse(self._open, self._refusal)
        return True


class ForkedMetrics:
    """The metrics of the instance, as a fork changes and reads them."""

    def __init__(self, line: ForkClient) -> None:
        self._line = line
        #: Numbers of metrics and families that this process has made. Only these are its to drop,
        #: not those that it has copied from its parent.
        self._own: set[int] = set()
        self._made_by = os.getpid()

    def add_family(self, name: str, description: str, kind: int) -> int:
        return self._make("family", name, description, kind)

    def add(self, family: int, kind: int, labels: dict[str, str], buckets: list[float]) -> Measured:
        return Measured(
            self._make("metric", family, kind, labels, buckets), family, labels, buckets
        )

    def _make(self, verb: str, *arguments: Any) -> int:
        number = int(self._line.call(verb, json.dumps(arguments)))
        self._own.add(number)
        return number

    def change(self, measured: Measured, verb: str, value: float) -> None:
        self._line.tell(wire.Call(0, "change", json.dumps([measured.number, verb, value])))

    def drop(self, number: int) -> None:
        """Drop a metric or a family that this process has made; a destructor may call this."""
        if number in self._own and self._made_by == os.getpid():
            self._own.discard(number)
            self._line.tell(wire.Call(0, "drop", json.dumps(number)))

    def value(self, measured: Measured) -> float:
        return float(self._line.call("value", json.dumps(measured.number)))
