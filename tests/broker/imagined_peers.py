"""Imagined frontends and stubs that keep what real ones keep across the deaths of brokers.

They use the real accounts (`Unanswered`, `Answered`, `Arena`), and speak in messages that may be
late or lost. For test_simulation_epochs.py, which moves them.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from tests.broker.ensemble_world import tensor
from tests.broker.world import TOKEN, Page, request
from zmqtriton_floor import wire
from zmqtriton_floor.arena import Arena, block_of, held
from zmqtriton_frontends.gateway.broker_connection import Outgoing
from zmqtriton_frontends.gateway.unanswered import Unanswered
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers

Route = tuple[int, int]
Message = tuple[Any, list[bytes]]
#: Whether a block of a living process is not free.
Exists = Callable[[wire.Block], bool]

_BYTES = 100


class Process:
    """What all have: memory, a connection in two directions, and what is read of others'."""

    def __init__(self, serial: int, exists: Exists) -> None:
        self.serial = serial
        self.arena = Arena(serial, first_bytes=4096, step_bytes=4096)
        #: On their way; lost with the broker, or with this process.
        self.up: deque[Message] = deque()
        self.down: deque[Message] = deque()
        self.reading: list[wire.Block] = []
        self._exists = exists

    def allocate(self) -> wire.Reference:
        allocation = self.arena.allocate(_BYTES)
        if allocation is None:
            wanted = self.arena.wanted(_BYTES)
            self.arena.add(wanted, os.memfd_create("arena", os.MFD_ALLOW_SEALING))
            allocation = self.arena.allocate(_BYTES)
        assert allocation is not None
        return allocation.reference

    def say(self, message: Any, bodies: list[bytes] | None = None) -> None:
        self.up.append((message, bodies or []))

    def take(self) -> None:
        """The next message."""
        raise NotImplementedError

    def hear_of_blocks(self, message: Any) -> None:
        blocks = [block.block for block in getattr(message, "blocks", [])]
        if type(message) is wire.Lease:
            self.arena.lend(blocks)
        elif type(message) is wire.Release:
            self.arena.take_back(blocks)
        elif type(message) is wire.LeasesReported:
            self.arena.settle()
        else:
            assert type(message) is wire.Welcome, message

    def read(self, references: list[wire.Reference]) -> list[wire.Block]:
        """Nobody else may have got what is read."""
        blocks = [block_of(reference) for reference in references]
        assert all(self._exists(block) for block in blocks), blocks
        return blocks

    def let_go(self) -> None:
        if self.reading:
            self.say(wire.Release([self.reading.pop(0)]))

    def tell_held(self, blocks: list[wire.Block]) -> None:
        for message in held(blocks):
            self.say(message)


def _references(tensors: list[wire.Tensor]) -> list[wire.Reference]:
    return [t.data for t in tensors if type(t.data) is wire.Reference]


class Frontend(Process):
    def __init__(self, serial: int, exists: Exists) -> None:
        super().__init__(serial, exists)
        self.finals: Counter[int] = Counter()
        self.codes: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.is_connected = False
        self._unanswered = Unanswered()
        self._outgoing = Outgoing()
        self._blocks: dict[int, list[int]] = {}

    def ask(self, own_id: int, generation: int, *, is_large: bool) -> None:
        data: Any = self.allocate() if is_large else b""
        if is_large:
            self._blocks[own_id] = [data.block]
        name = "x" if generation % 2 else "I"
        body = wire.encode_body(wire.RequestBody("", {}, [], [tensor(name, data)]))
        self._outgoing.requests.append(request(own_id, generation))
        self._outgoing.bodies.append(body)
        self.waiting.add(own_id)
        self._flush()

    def cancel(self, own_id: int) -> None:
        if own_id in self.waiting:
            self._unanswered.cancelled(own_id)
            self._outgoing.cancels.append(own_id)
            self._flush()

    def _flush(self) -> None:
        if self.is_connected:
            self._unanswered.sent(self._outgoing.requests, self._outgoing.bodies)
            for header, *bodies in self._outgoing.messages():
                self.say(wire.decode(header), bodies)

    def take(self) -> None:
        message, bodies = self.down.popleft()
        if type(message) is not wire.Replies:
            self.hear_of_blocks(message)
            return
        for row, body in zip(message.replies, bodies, strict=True):
            references = _references(wire.decode_response(body).outputs) if body else []
            if row.id not in self.waiting:
                # From a broker that has died since, which may have been told of it by now.
                self.say(wire.Release([block_of(r) for r in references]))
                continue
            self.reading += self.read(references)
            if row.flags & wire.FINAL:
                self._end(row)

    def _end(self, row: wire.Reply) -> None:
        self.finals[row.id] += 1
        self.codes[row.id] = row.code
        self.waiting.discard(row.id)
        self._unanswered.answered(row.id)
        self.arena.free(self._blocks.pop(row.id, []))

    def lose_broker(self) -> None:
        self.is_connected = False
        self.up.clear()

    def connect(self, epoch: int) -> None:
        self.is_connected = True
        self.down.clear()
        self.say(wire.Hello(self.serial, TOKEN, epoch))
        self.arena.lend(block for blocks in self._blocks.values() for block in blocks)
        self.arena.doubt()
        self.tell_held(self.reading)
        for message, bodies in self._unanswered.again():
            self.say(message, bodies)
        self._flush()


class Stub(Process):
    def __init__(self, serial: int, exists: Exists, executed: Counter[Route]) -> None:
        super().__init__(serial, exists)
        self.page = Page()
        self.answered = UnconfirmedAnswers()
        #: What was begun, by number, and what waits behind it.
        self.executing: int = 0
        self.batches: deque[tuple[int, list[Route]]] = deque()
        self.begun: list[Route] = []
        #: Everything without an answer: the blocks of its inputs.
        self.pending: dict[Route, list[wire.Reference]] = {}
        self.epoch = 0
        #: Of a broker that it has not said hello to yet.
        self.next_epoch = 0
        self._executed = executed
        #: What this broker was told of as read here.
        self._told: dict[Route, list[wire.Block]] = {}

    def take(self) -> None:
        message, bodies = self.down.popleft()
        if type(message) is wire.Execute:
            for work, body in zip(message.requests, bodies, strict=True):
                route = (work.peer, work.id)
                if not self.batches or self.batches[-1][0] != work.batch:
                    self.batches.append((work.batch, []))
                self.batches[-1][1].append(route)
                self.pending[route] = _references(wire.decode_request(body).inputs)
        elif type(message) is not wire.CancelExecution:
            self.hear_of_blocks(message)

    def begin(self) -> None:
        if self.executing or not self.batches:
            return
        self.executing, self.begun = self.batches.popleft()
        self.page.begun = self.executing
        self._executed.update(self.begun)

    def check(self) -> None:
        for route in self.begun:
            self.read(self.pending[route])

    def answer(self, choice: str) -> None:
        """Ends what it executes: with nothing, an error, memory of its own or what it was given."""
        if not self.executing:
            return
        outcomes, bodies = [], []
        for route in self.begun:
            references = self.pending.pop(route)
            if choice == "own":
                references = [self.allocate()]
            elif choice in ("nothing", "error"):
                references = []
            blocks = [block_of(r) for r in references]
            outputs = [tensor("O", reference) for reference in references]
            body = b"" if choice == "error" else wire.encode_body(wire.ResponseBody({}, outputs))
            code = 2 if choice == "error" else 0
            outcome = wire.Outcome(*route, code, "", wire.FINAL, 0, blocks)
            own = [block.block for block in blocks if block.owner == self.serial]
            if choice == "given":
                self.arena.lease(own)
            self.answered.add(outcome, body, is_lasting=len(own) == len(blocks))
            self.arena.send(own)
            outcomes.append(outcome)
            bodies.append(body)
        executed = wire.Executed(self.executing, 1, 1, 1)
        self.say(wire.Results(outcomes, [executed]), bodies)
        for route in self.begun:
            if self._told.get(route):
                self.say(wire.Release(self._told.pop(route)))
        self.executing, self.begun = 0, []

    def connect(self) -> None:
        """Says hello to the next broker."""
        self.epoch, self.next_epoch = self.next_epoch, 0
        self.up.clear()
        self.down.clear()
        for _, routes in self.batches:
            for route in routes:
                del self.pending[route]
        self.batches.clear()
        outcomes, bodies = self.answered.recall()
        told = [b.block for o in outcomes for b in o.blocks if b.owner == self.serial]
        self.arena.doubt(told)
        received = [wire.RequestKey(*route) for route in self.pending]
        fields = (received, outcomes, int(bool(self.executing)))
        self.say(wire.Hello(self.serial, TOKEN, self.epoch, *fields), bodies)
        # Steps of ensembles: the earlier broker kept what they read.
        self._told = {
            route: [block_of(r) for r in references]
            for route, references in self.pending.items()
            if not route[0]
        }
        self.tell_held([block for blocks in self._told.values() for block in blocks])
