"""Stands for the broker and the supervisor in tests that start no process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers
from zmqtriton_stub.execution.response_counts import ResponseCounter
from zmqtriton_stub.execution.responses import OpenRequest, OutcomeWithBody, RequestBatch
from zmqtriton_stub.execution.streams import OpenStream, frames
from zmqtriton_stub.instance import StubInstance

LOAD = wire.LoadModel(
    "m_0_0", "m", 1, "CPU", 0, "/repository/m", "/repository/m/1/model.py", "{}", 0
)


class FakeLink:
    """Keeps what is sent; what would arrive is put into `on_turn`."""

    #: There is a broker.
    descriptor = 0

    def __init__(self, is_decoupled: bool = False) -> None:
        self.sent_to_supervisor: list[Any] = []
        self.instance = StubInstance(LOAD, self.sent_to_supervisor.append)
        self.instance.is_decoupled = is_decoupled
        self.pending: dict[tuple[int, int], OpenRequest] = self.instance.pending
        self.batches: deque[RequestBatch] = deque()
        self.executing: dict[int, RequestBatch] = {}
        self.answered = UnconfirmedAnswers()
        self.look_after = 0
        self.tallies = ResponseCounter()
        self.is_closed = False
        self.messages: list[tuple[Any, list[bytes]]] = []
        self.turn_actions: list[Any] = []
        #: Whether each turn took what had come.
        self.looks: list[bool] = []

    def send(self, message: list[bytes]) -> None:
        self.messages.append((wire.decode(message[0]), message[1:]))

    def put(self, item: list[bytes] | OutcomeWithBody) -> None:
        self.send(item if isinstance(item, list) else frames([item]))

    def postpone(self, step: Callable[[], None]) -> None:
        step()

    def poll(self) -> None:
        """Nothing else is to be looked after."""

    def tell_tallies(self) -> None:
        """Nobody asks for them."""

    def turn(self, *, takes: bool = True) -> None:
        self.looks.append(takes)
        while self.turn_actions:
            self.turn_actions.pop(0)()

    def wait(self, timeout_ms: int) -> None:
        """Nothing arrives by itself."""

    def outcomes(self) -> list[wire.Outcome]:
        """All that were sent so far."""
        return [outcome for message, _ in self.messages for outcome in message.outcomes]

    def add_request(self, body: wire.RequestBody, own_id: int = 5, flags: int = 0) -> OpenRequest:
        """A request that has arrived."""
        work = wire.BatchedRequest(1, 3, own_id, flags, 0, 0, 0)
        link: Any = self
        owed = OpenStream if self.instance.is_decoupled else OpenRequest
        pending = owed(link, work, wire.encode_body(body))
        self.pending[pending.route] = pending
        return pending


def batch_of(*requests: OpenRequest, number: int = 9) -> RequestBatch:
    batch = RequestBatch(requests)
    batch.number = number
    return batch


def fp32(name: str, data: bytes = b"\0\0\x80?", shape: list[int] | None = None) -> wire.Tensor:
    return wire.Tensor(name, 11, shape or [1], data)


def body(*tensors: wire.Tensor, outputs: list[str] | None = None) -> wire.RequestBody:
    return wire.RequestBody("r1", {"a": 1}, outputs or [], list(tensors))
