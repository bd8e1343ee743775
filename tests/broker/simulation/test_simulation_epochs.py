"""Random lives of brokers that die, seeded, with all that is around them.

Whatever dies, each request of a living frontend gets one final answer, none is executed twice,
nobody reads memory that was given to another, and in the end all memory is free.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, model, step
from tests.broker.imagined_peers import FakeFrontend, FakePeer, FakeStub, RequestKey
from tests.broker.world import TOKEN
from zmqtriton.broker.core import Core
from zmqtriton_floor import wire
from zmqtriton_floor.progress import FENCE_NS
from zmqtriton_stub.broker import unconfirmed_answers

#: A model, and an ensemble that asks it twice.
MODEL, ENSEMBLE = 2, 1
_STEPS = [step("m", {"I": "x"}, {"O": "t"}), step("m", {"I": "t"}, {"O": "y"})]
SERVED = [
    wire.AddGeneration(MODEL, "m", 1, json.dumps(model("m"))),
    wire.AddGeneration(ENSEMBLE, "row", 1, json.dumps(ensemble(_STEPS, "row"))),
]


class Broker:
    """A core, and what the service does around it."""

    def __init__(self, epoch: int, processes: dict[int, FakePeer]) -> None:
        self.core = Core()
        self.core.configure(epoch)
        self.epoch = epoch
        self._processes = processes
        self._known: set[int] = set()

    def hear(self, process: FakePeer, now: int) -> None:
        """The next message of a process."""
        message, bodies = process.outgoing.popleft()
        core, serial, kind = self.core, process.serial, type(message)
        if kind is wire.Hello:
            if message.epoch != self.epoch:
                return
            core.authenticate(message)
            self._known.add(serial)
            process.incoming.append((wire.Welcome(self.epoch), []))
            if type(process) is FakeStub:
                core.connected(message, bodies, now)
            else:
                core.peers[serial].has_resent = True
        elif serial not in self._known:
            return  # it was on its way to the one before
        elif kind is wire.Infer:
            core.infer(serial, message.requests, bodies, now)
        elif kind is wire.Cancel:
            core.cancel(serial, message.ids, now)
        elif kind is wire.Results:
            core.results(serial, message, bodies, now)
        elif kind is wire.Release:
            core.blocks.release(serial, message.blocks)
        else:
            assert kind is wire.HeldBlocks
            core.recovery.take_held_blocks(serial, message)

    def flush(self, now: int) -> None:
        self.core.tick(now)
        out = self.core.outbox
        for kind, boxes in ((wire.Lease, out.leases), (wire.Release, out.releases)):
            for owner in list(boxes):
                if owner in self._known or owner not in self.core.peers:
                    self._send(owner, kind(boxes.pop(owner)))
        for owner in out.reported_owners:
            self._send(owner, wire.LeasesReported())
        for serial, works in out.batched_requests.items():
            self._send(serial, wire.Execute([w for w, _ in works]), [body for _, body in works])
        for serial, routes in out.cancellations.items():
            self._send(serial, wire.CancelExecution(routes))
        for serial, replies in out.replies.items():
            self._send(serial, wire.Replies([r for r, _ in replies]), [b for _, b in replies])
        waiting = out.leases, out.releases
        self.core.outbox.__init__()  # type: ignore[misc]
        self.core.outbox.leases, self.core.outbox.releases = waiting

    def _send(self, serial: int, message: Any, bodies: list[bytes] | None = None) -> None:
        process = self._processes.get(serial)
        if process is not None and serial in self._known:
            process.incoming.append((message, bodies or []))


class Epochs:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000
        self.serials = iter(range(1, 1_000_000))
        self.ids = iter(range(1, 1_000_000))
        self.processes: dict[int, FakePeer] = {}
        self.executed: Counter[RequestKey] = Counter()
        #: Deaths that this broker was not told of yet, and those the next one is told again.
        self.untold: list[wire.PeerDied] = []
        self.buried: list[int] = []
        self.dead: dict[int, FakePeer] = {}
        self.slow: set[int] = set()
        self.broker: Broker | None = None
        self.epoch = 0
        for _ in range(2):
            self.new_frontend()
            self.new_stub()
        self.new_broker()

    @property
    def frontends(self) -> list[FakeFrontend]:
        return [p for p in self.processes.values() if type(p) is FakeFrontend]

    @property
    def stubs(self) -> list[FakeStub]:
        return [p for p in self.processes.values() if type(p) is FakeStub]

    def exists(self, block: wire.Block) -> bool:
        owner = self.processes.get(block.owner)
        return owner is None or owner.arena.size(block.block) > 0

    # ------------------------------------------------------ forks and deaths

    def new_frontend(self) -> None:
        if len(self.frontends) < 3:
            frontend = FakeFrontend(next(self.serials), self.exists)
            self._introduce(frontend)
            if self.broker is not None:
                frontend.connect(self.epoch)

    def new_stub(self) -> None:
        if len(self.stubs) < 3:
            stub = FakeStub(next(self.serials), self.exists, self.executed)
            self._introduce(stub)
            stub.next_epoch = self.epoch
            if self.broker is not None:
                stub.connect()

    def _introduce(self, process: FakePeer) -> None:
        self.processes[process.serial] = process
        if self.broker is not None:
            self._tell_of(process)

    def _tell_of(self, process: FakePeer) -> None:
        assert self.broker is not None
        core, serial = self.broker.core, process.serial
        role = "stub" if type(process) is FakeStub else "http"
        core.expect(wire.ExpectPeer(serial, TOKEN, role, f"p_{serial}", 0))
        if type(process) is FakeStub:
            core.attach(wire.AttachInstance(MODEL, serial, f"p_{serial}"), self.now, process.page)

    def kill(self, process: FakePeer) -> None:
        if process.serial in self.processes:
            del self.processes[process.serial]
            self.untold.append(wire.PeerDied(process.serial, "killed"))
            self.buried.append(process.serial)
            self.dead[process.serial] = process

    def tell_of_death(self) -> None:
        if self.broker is None or not self.untold:
            return
        gone = self.untold.pop(0)
        dead, core = self.dead[gone.serial], self.broker.core
        core.stop_giving_to(gone.serial)
        while dead.outgoing:
            self.broker.hear(dead, self.now)
        core.remove_peer(gone, self.now)
        self.broker.flush(self.now)

    def kill_broker(self) -> None:
        self.broker = None
        for frontend in self.frontends:
            frontend.lose_broker()

    def new_broker(self) -> None:
        if self.broker is not None:
            return
        self.epoch += 1
        self.broker = Broker(self.epoch, self.processes)
        core = self.broker.core
        for message in SERVED:
            core.add_generation(message)
        stubs = [self.dead[s] for s in self.buried if type(self.dead[s]) is FakeStub]
        for process in [*self.processes.values(), *stubs]:
            self._tell_of(process)
        for dead in stubs:
            dead.outgoing.clear()
            core.remove_peer(wire.PeerDied(dead.serial, "killed"), self.now)
        self.untold.clear()
        core.recovery.await_lease_reports()
        for process in self.processes.values():
            if type(process) is FakeStub:
                process.next_epoch = self.epoch
            elif type(process) is FakeFrontend:
                process.connect(self.epoch)
        self.broker.flush(self.now)

    # -------------------------------------------------------------- moves

    def ask(self) -> None:
        frontend = self.random.choice(self.frontends)
        generation = self.random.choice([MODEL, MODEL, ENSEMBLE])
        frontend.send_request(next(self.ids), generation, is_large=self.random.random() < 0.5)

    def cancel(self) -> None:
        frontend = self.random.choice(self.frontends)
        if frontend.waiting and self.random.random() < 0.3:
            frontend.cancel(self.random.choice(sorted(frontend.waiting)))

    def deliver_up(self) -> None:
        speaking = [p for p in self.processes.values() if p.outgoing and p.serial not in self.slow]
        if speaking and self.broker is not None:
            self.broker.hear(self.random.choice(speaking), self.now)
            self.broker.flush(self.now)

    def deliver_down(self) -> None:
        hearing = [p for p in self.processes.values() if p.incoming]
        if hearing:
            process = self.random.choice(hearing)
            # A stub amid execute() takes nothing, but may look around.
            process.receive_next()

    def slow_down(self) -> None:
        """Make some messages late, so that others may do much meanwhile."""
        self.slow = {s for s in self.processes if self.random.random() < 0.4}

    def begin(self) -> None:
        for stub in self._one_of_the_stubs():
            stub.begin_batch()

    def answer(self) -> None:
        choice = self.random.choice(["nothing", "error", "own", "own", "given"])
        for stub in self._one_of_the_stubs():
            stub.finish_batch(choice)

    def look_around(self) -> None:
        for stub in self._one_of_the_stubs():
            if stub.next_epoch:
                stub.connect()

    def _one_of_the_stubs(self) -> list[FakeStub]:
        return self.random.sample(self.stubs, min(1, len(self.stubs)))

    def let_go(self) -> None:
        self.random.choice(self.frontends).release_next()

    def kill_stub(self) -> None:
        if self.stubs:
            self.kill(self.random.choice(self.stubs))

    def kill_frontend(self) -> None:
        if len(self.frontends) > 1:
            self.kill(self.random.choice(self.frontends))

    def step(self, moves: list[Any]) -> None:
        self.random.choice(moves)()
        self.now += self.random.randint(1_000, 100_000)
        if self.random.random() < 0.05:
            self.now += 3 * FENCE_NS  # an execution takes long, and is waited for meanwhile
        if self.broker is not None:
            self.broker.core.tick(self.now)
            self.broker.flush(self.now)
        for stub in self.stubs:
            stub.check_inputs()

    def run(self, steps: int, deaths: float) -> None:
        moves = [self.deliver_up] * 8 + [self.deliver_down] * 8 + [self.ask] * 4
        moves += [self.begin] * 4 + [self.answer] * 4 + [self.look_around] * 2 + [self.let_go] * 2
        moves += [self.new_stub, self.new_frontend, self.cancel, self.new_broker, self.new_broker]
        moves += [self.tell_of_death] * 2 + [self.slow_down]
        rare = [self.kill_stub, self.kill_frontend, self.kill_broker]
        for _ in range(steps):
            self.step(rare if self.random.random() < deaths else moves)

    # ---------------------------------------------------------------- the end

    def heal(self) -> None:
        """Nothing dies any more; goes on until nothing moves."""
        self.slow.clear()
        self.new_broker()
        self.new_stub()
        for _ in range(10_000):
            before = self._pulse()
            while self.untold:
                self.tell_of_death()
            for stub in self.stubs:
                stub.begin_batch()
                stub.finish_batch("own")
                if stub.next_epoch:
                    stub.connect()
            for process in self.processes.values():
                process.release_next()
            while any(p.outgoing or p.incoming for p in self.processes.values()):
                self.deliver_up()
                self.deliver_down()
            if before == self._pulse():
                return
        raise AssertionError("it never rests")

    def _pulse(self) -> Any:
        return self.executed.total(), [
            (p.serial, len(p.blocks_in_use), p.arena.used) for p in self.processes.values()
        ]

    def check(self) -> None:
        assert [] == [route for route, times in self.executed.items() if times > 1]
        assert self.broker is not None
        core = self.broker.core
        for frontend in self.frontends:
            assert set() == frontend.waiting
            assert all(times == 1 for times in frontend.finals.values())
        assert 0 == core.limits.unanswered
        assert 0 == core.limits.unanswered_bytes
        assert {0} == {generation.pending for generation in core.generations}
        assert all(not peer.requests for peer in core.peers.values())
        assert 0 == core.blocks.leases.count
        assert {p.serial: 0 for p in self.processes.values()} == {
            p.serial: p.arena.used for p in self.processes.values()
        }


@pytest.fixture
def epochs(seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Epochs]:
    epochs = Epochs(seed)
    monkeypatch.setattr(unconfirmed_answers, "_now_ns", lambda: epochs.now)

    yield epochs

    # Each arena has descriptors, which must not wait for the garbage collector.
    epochs.processes.clear()
    epochs.dead.clear()


def settle(epochs: Epochs) -> None:
    """Nobody dies any more, and in the end nothing is left."""
    epochs.heal()
    # What stubs have said of requests that nobody asks for again is dropped late.
    for _ in range(3):
        epochs.now += 11_000_000_000
        epochs.step([epochs.look_around])
        epochs.heal()
    epochs.check()
    # Each arena has descriptors, which must not wait for the garbage collector.
    epochs.processes.clear()
    epochs.dead.clear()


@pytest.mark.parametrize("deaths", [0.02, 0.1])
@pytest.mark.parametrize("seed", [*range(50), 1672, 1912])
def test_across_brokers_each_request_is_answered_once_and_memory_comes_back(
    seed: int, deaths: float, epochs: Epochs
) -> None:
    epochs.run(600, deaths)

    settle(epochs)
