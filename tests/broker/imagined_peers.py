"""Imagined frontends and stubs that keep what real ones keep across the deaths of brokers.

They use the real accounts (`Outbox`, `UnconfirmedAnswers`, `Arena`), and speak in messages that may
be late or lost. For test_simulation_epochs.py, which moves them.
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
from zmqtriton_frontends.gateway.broker_link import BrokerLink, resend_messages
from zmqtriton_stub.broker.unconfirmed_answers import UnconfirmedAnswers

RequestKey = tuple[int, int]
Message = tuple[Any, list[bytes]]
#: Whether a block of a living process is not free.
BlockExists = Callable[[wire.Block], bool]

_BYTES = 100


class FakePeer:
    """The common part of all peers: memory, a connection, and what is read of others'."""

    def __init__(self, serial: int, exists: BlockExists) -> None:
        self.serial = serial
        self.arena = Arena(serial, first_bytes=4096, step_bytes=4096)
        #: On their way; lost with the broker, or with this process.
        self.outgoing: deque[Message] = deque()
        self.incoming: deque[Message] = deque()
        self.blocks_in_use: list[wire.Block] = []
        self._exists = exists

    def allocate(self) -> wire.Reference:
        allocation = self.arena.allocate(_BYTES)
        if allocation is None:
            segment = self.arena.segment_request(_BYTES)
            self.arena.add(segment, os.memfd_create("arena", os.MFD_ALLOW_SEALING))
            allocation = self.arena.allocate(_BYTES)
        assert allocation is not None
        return allocation.reference

    def send(self, message: Any, bodies: list[bytes] | None = None) -> None:
        self.outgoing.append((message, bodies or []))

    def receive_next(self) -> None:
        """The next message."""
        raise NotImplementedError

    def handle_block_message(self, message: Any) -> None:
        blocks = [block.block for block in getattr(message, "blocks", [])]
        if type(message) is wire.Lease:
            self.arena.leases.take_leases(blocks)
        elif type(message) is wire.Release:
            self.arena.leases.take_back(blocks)
        elif type(message) is wire.LeasesReported:
            self.arena.leases.end_doubted()
        else:
            assert type(message) is wire.Welcome, message

    def read(self, references: list[wire.Reference]) -> list[wire.Block]:
        """Nobody else may have got what is read."""
        blocks = [block_of(reference) for reference in references]
        assert all(self._exists(block) for block in blocks), blocks
        return blocks

    def release_next(self) -> None:
        if self.blocks_in_use:
            self.send(wire.Release([self.blocks_in_use.pop(0)]))

    def report_held_blocks(self, blocks: list[wire.Block]) -> None:
        for message in held(blocks):
            self.send(message)


class _FakeLoop:
    """The loop of a frontend, which the test flushes itself."""

    def call_soon(self, call: Callable[[], object]) -> None:
        pass


class _FakeReleases:
    """Blocks that a frontend does not read any more, until it sends the next request."""

    def __init__(self) -> None:
        self.blocks: list[wire.Block] = []

    def take(self) -> list[list[wire.Block]]:
        blocks, self.blocks = self.blocks, []
        return [blocks]


class _FakeDealer:
    """A frontend's connection to the broker: passes on the messages that it is given."""

    is_blocked = False

    def __init__(self, send: Callable[[Any, list[bytes]], None]) -> None:
        self._send = send

    def put(self, frames: list[bytes]) -> None:
        header, *bodies = frames
        self._send(wire.decode(header), bodies)

    def flush(self) -> None:
        pass


class FakeFrontend(FakePeer):
    def __init__(self, serial: int, exists: BlockExists) -> None:
        super().__init__(serial, exists)
        self.finals: Counter[int] = Counter()
        self.codes: dict[int, int] = {}
        self.texts: dict[int, str] = {}
        self.waiting: set[int] = set()
        self.cancelled: set[int] = set()
        self._link = BrokerLink(lambda frames: None, lambda epoch: ([], []))
        self._link.begin(_FakeLoop())  # type: ignore[arg-type]
        self._link._releases = self._releases = _FakeReleases()  # type: ignore[assignment]
        self._blocks: dict[int, list[int]] = {}
        #: Blocks of requests whose answers, which are read, lie there.
        self._kept: list[int] = []

    def release_next(self) -> None:
        if self._kept:
            self.arena.leases.end([self._kept.pop(0)])
        else:
            super().release_next()

    def send_request(self, own_id: int, generation: int, *, is_large: bool) -> None:
        data: Any = self.allocate() if is_large else b""
        if is_large:
            self._blocks[own_id] = [data.block]
        name = "x" if generation % 2 else "I"
        named = f"{self.serial}-{own_id}"
        body = wire.encode_body(wire.RequestBody(named, {}, [], [tensor(name, data)]))
        self.waiting.add(own_id)
        if self.blocks_in_use and own_id % 2:  # the others are released by themselves
            self._releases.blocks.append(self.blocks_in_use.pop(0))
        flags = wire.KEEPS_INPUTS if own_id % 3 else 0
        self._link.request(request(own_id, generation, flags=flags), body)
        self._link.flush()

    def cancel(self, own_id: int) -> None:
        if own_id in self.waiting:
            self.cancelled.add(own_id)
            self._link.cancel(own_id)
            self._link.flush()

    def receive_next(self) -> None:
        message, bodies = self.incoming.popleft()
        if type(message) is not wire.Replies:
            self.handle_block_message(message)
            return
        for row, body in zip(message.replies, bodies, strict=True):
            references = wire.references_in(wire.decode_response(body).outputs) if body else []
            if row.flags & wire.FORWARDED:
                self._take_forwarded(row, references)
                continue
            if row.id not in self.waiting:
                # From a broker that has died since, which may have been told of it by now.
                self.send(wire.Release([block_of(r) for r in references]))
                continue
            self.blocks_in_use += self.read(references)
            if row.flags & wire.FINAL:
                self._end(row)

    def _take_forwarded(self, row: wire.Reply, references: list[wire.Reference]) -> None:
        """Keep what nothing is leased for: the blocks of the request."""
        if row.id in self.waiting:
            kept = self._blocks.pop(row.id)
            assert [(self.serial, block) for block in kept] == [(r[0], r[2]) for r in references]
            self.read(references)
            self._kept += kept
            self._end(row)

    def _end(self, row: wire.Reply) -> None:
        self.finals[row.id] += 1
        self.codes[row.id], self.texts[row.id] = row.code, row.text
        self.waiting.discard(row.id)
        self._link.unanswered.pop(row.id, None)
        self.arena.leases.end(self._blocks.pop(row.id, []))

    def lose_broker(self) -> None:
        """Leave a dead broker: what it had sent is valid, and read."""
        # the death of a broker, which the link would find when it reads
        self._link._dealer = None
        while self.incoming:
            self.receive_next()
        self.outgoing.clear()

    def connect(self, epoch: int) -> None:
        self._link._dealer = _FakeDealer(self.send)  # type: ignore[assignment]
        assert not self.incoming
        self.send(wire.Hello(self.serial, TOKEN, epoch))
        self.arena.leases.lend(block for blocks in self._blocks.values() for block in blocks)
        self.arena.doubt_leases()
        self.report_held_blocks([*self.blocks_in_use, *self._releases.blocks])
        for message, bodies in resend_messages(self._link.unanswered, self.cancelled.__contains__):
            self.send(message, bodies)
        self._link.flush()


class FakeStub(FakePeer):
    def __init__(
        self, serial: int, generation: int, exists: BlockExists, executed: Counter[Any]
    ) -> None:
        """Set up; `executed` counts requests by their keys, and also by client and model."""
        super().__init__(serial, exists)
        self.generation = generation
        #: The supervisor has asked it to end: it says and does nothing more.
        self.is_finalizing = False
        self.page = Page()
        self.answered = UnconfirmedAnswers()
        #: What was begun, by number, and what waits behind it.
        self.executing: int = 0
        self.batches: deque[tuple[int, list[RequestKey]]] = deque()
        self.begun: list[RequestKey] = []
        #: Everything without an answer: the blocks of its inputs.
        self.pending: dict[RequestKey, list[wire.Reference]] = {}
        self._names: dict[RequestKey, str] = {}
        self.epoch = 0
        #: Of a broker that it has not said hello to yet.
        self.next_epoch = 0
        self._executed = executed
        #: What this broker was told of as read here.
        self._reported_blocks: dict[RequestKey, list[wire.Block]] = {}

    def receive_next(self) -> None:
        message, bodies = self.incoming.popleft()
        if type(message) is wire.Execute:
            self.arena.leases.take_back([block.block for block in message.released])
            for work, body in zip(message.requests, bodies, strict=True):
                route = (work.peer, work.id)
                if not self.batches or self.batches[-1][0] != work.batch:
                    self.batches.append((work.batch, []))
                self.batches[-1][1].append(route)
                decoded = wire.decode_request(body)
                self.pending[route] = wire.references_in(decoded.inputs)
                self._names[route] = decoded.request_id
        elif type(message) is not wire.CancelExecution:
            self.handle_block_message(message)

    def begin_batch(self) -> None:
        if self.executing or self.is_finalizing or not self.batches:
            return
        number, begun = self.batches[0]
        if self.page.begin(number, begun):
            self.batches.popleft()
            self.executing, self.begun = number, begun
            self._executed.update(self.begun)
            self._executed.update((self._names[route], self.generation) for route in begun)

    def check_inputs(self) -> None:
        for route in self.begun:
            self.read(self.pending[route])

    def finish_batch(self, choice: str) -> None:
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
                self.arena.leases.add(own)
            self.answered.add(outcome, body, is_lasting=len(own) == len(blocks))
            self.arena.leases.send(own)
            outcomes.append(outcome)
            bodies.append(body)
        self.send(wire.Results(outcomes, [wire.Executed(self.executing, 1, 1, 1)]), bodies)
        for route in self.begun:
            if self._reported_blocks.get(route):
                self.send(wire.Release(self._reported_blocks.pop(route)))
        self.executing, self.begun = 0, []

    def connect(self) -> None:
        """Says hello to the next broker."""
        self.epoch, self.next_epoch = self.next_epoch, 0
        self.outgoing.clear()
        self.incoming.clear()
        for _, routes in self.batches:
            for route in routes:
                del self.pending[route]
        self.batches.clear()
        outcomes, bodies = self.answered.recall()
        self.arena.doubt_leases()
        received = [wire.RequestKey(*route) for route in self.pending]
        fields = (received, outcomes, int(bool(self.executing)))
        self.send(wire.Hello(self.serial, TOKEN, self.epoch, *fields), bodies)
        self._reported_blocks = {
            route: [block_of(r) for r in references] for route, references in self.pending.items()
        }
        self.report_held_blocks(
            [block for blocks in self._reported_blocks.values() for block in blocks]
        )
