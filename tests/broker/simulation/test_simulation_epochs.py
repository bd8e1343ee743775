"""Random lives of brokers that die, seeded, with all that is around them.

Whatever dies or is told to end, each request of a living frontend gets one final answer, none is
executed twice, none fails that no stub has begun, nobody reads memory that was given to another,
and in the end all memory is free.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, model, step
from tests.broker.imagined_peers import FakeFrontend, FakePeer, FakeStub
from tests.broker.world import TOKEN, Page
from zmqtriton.broker.core import BrokerCore
from zmqtriton.broker.sending import PeerSending
from zmqtriton.supervisor.server_processes.introductions import BrokerReplay
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.execution_progress import FENCE_NS
from zmqtriton_stub.broker import unconfirmed_answers

pytestmark = pytest.mark.slow

#: A model, one whose answers leave in the order of their requests, and an ensemble of both.
MODEL, ORDERED, ENSEMBLE = 2, 4, 1
_STEPS = [step("m", {"I": "x"}, {"O": "t"}), step("o", {"I": "t"}, {"O": "y"})]
_ORDER = {"max_batch_size": 4, "dynamic_batching": {"preserve_ordering": True}}
SERVED = [
    wire.AddGeneration(MODEL, "m", 1, json.dumps(model("m"))),
    wire.AddGeneration(ORDERED, "o", 1, json.dumps({**model("o"), **_ORDER, "max_batch_size": 0})),
    wire.AddGeneration(ENSEMBLE, "row", 1, json.dumps(ensemble(_STEPS, "row"))),
]
#: How many messages of a broker the kernel keeps for a frontend.
_ROOM = 2


class FakeRouter:
    """The kernel takes what it has room for; the rest waits here, and dies with the broker."""

    def __init__(self, processes: dict[int, FakePeer], room: int) -> None:
        self.by_serial: dict[int, int] = {}
        self.unflushed = True
        self._processes = processes
        self._room = room
        self._waiting: dict[int, deque[tuple[Any, list[bytes]]]] = {}

    @property
    def blocked(self) -> set[int]:
        return {serial for serial, waiting in self._waiting.items() if waiting}

    def undelivered(self) -> set[int]:
        return self.blocked

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> None:
        if serial in self.by_serial:
            self._waiting.setdefault(serial, deque()).append((message, bodies))

    def send_list(self, serial: int, kind: Any, rows: list[Any]) -> None:
        self.send(serial, kind(rows), [])

    def send_rows(
        self,
        serial: int,
        kind: Any,
        rows: list[tuple[Any, bytes]],
        *before: list[Any],
        max_rows: int = 0,
    ) -> None:
        self.send(serial, kind([row for row, _ in rows], *before), [body for _, body in rows])

    def flush(self) -> None:
        for serial, waiting in self._waiting.items():
            process = self._processes.get(serial)
            while waiting and process is not None and len(process.incoming) < self._room:
                process.incoming.append(waiting.popleft())

    def disconnect(self, serial: int) -> None:
        self.by_serial.pop(serial, None)
        self._waiting.pop(serial, None)


class Broker:
    """A core, and what the service does around it."""

    def __init__(self, epoch: int, processes: dict[int, FakePeer], memory: bytearray) -> None:
        self.core = BrokerCore()
        self.core.begun.adopt(memory)
        self.core.configure(epoch)
        self.epoch = epoch
        #: For the supervisor.
        self.news: deque[Any] = deque()
        #: The clients and models of the requests that were given to stubs.
        self.executed_ids: set[str] = set()
        self._requests = requests = FakeRouter(processes, _ROOM)
        self._stubs = stubs = FakeRouter(processes, 1_000)
        routers: Any = (requests, stubs)
        lifeline: Any = self
        self._sending = PeerSending(self.core, lifeline, *routers)

    def send(self, message: Any) -> None:
        """Take a message to the supervisor, as its lifeline."""
        self.news.append(message)

    def receive_from(self, process: FakePeer, now: int) -> None:
        """The next message of a process."""
        message, bodies = process.outgoing.popleft()
        core, serial, kind = self.core, process.serial, type(message)
        router = self._stubs if type(process) is FakeStub else self._requests
        if kind is wire.Hello:
            if message.epoch != self.epoch:
                return
            core.authenticate(message)
            router.by_serial[serial] = serial
            router.send(serial, wire.Welcome(self.epoch), [])
            if type(process) is FakeStub:
                core.connected(message, bodies, now)
            else:
                core.peers[serial].has_resent = True
        elif serial not in router.by_serial:
            return  # it was on its way to the one before
        elif kind is wire.Infer:
            core.blocks.release(serial, message.released)
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
        for works in self.core.outbox.batched_requests.values():
            self.executed_ids.update(wire.decode_request(body).request_id for _, body in works)
        self._sending.release_at_ns = 1  # no release waits: there is no clock here
        self._sending.flush()

    def bury(self, gone: wire.PeerDied, now: int) -> None:
        self.core.remove_peer(gone, now)
        for router in (self._requests, self._stubs):
            router.disconnect(gone.serial)


class Epochs:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000
        self.serials = iter(range(1, 1_000_000))
        self.ids = iter(range(1, 1_000_000))
        self.processes: dict[int, FakePeer] = {}
        self.executed: Counter[Any] = Counter()
        self.executed_ids: set[str] = set()
        #: Deaths that this broker was not told of yet.
        self.untold: list[wire.PeerDied] = []
        #: What a supervisor keeps for the next broker.
        self.replay = BrokerReplay()
        self.begun_memory = bytearray(1 << 12)
        for message in SERVED:
            self.replay.record(message)
        #: Frontends of which the broker may not have all yet that they repeat.
        self.unsettled: set[int] = set()
        self.dead: dict[int, FakePeer] = {}
        self.slow: set[int] = set()
        self.deaf: set[int] = set()
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
            self._fork(self.random.choice([MODEL, MODEL, ORDERED]))

    def _fork(self, generation: int) -> None:
        stub = FakeStub(next(self.serials), generation, self.exists, self.executed)
        self._introduce(stub)
        stub.next_epoch = self.epoch
        if self.broker is not None:
            stub.connect()

    def _introduce(self, process: FakePeer) -> None:
        self.processes[process.serial] = process
        role = "stub" if type(process) is FakeStub else "http"
        name = f"p_{process.serial}"
        self._say(wire.ExpectPeer(process.serial, TOKEN, role, name, 0))
        if type(process) is FakeStub:
            self._say(wire.AttachInstance(process.generation, process.serial, name))

    def _say(self, message: Any) -> None:
        """Tell the broker, and keep it for the next one."""
        self.replay.record(message)
        if self.broker is not None:
            self._tell(message)

    def _tell(self, message: Any) -> None:
        assert self.broker is not None
        core, kind = self.broker.core, type(message)
        if kind is wire.ExpectPeer:
            core.expect(message)
        elif kind is wire.AddGeneration:
            core.add_generation(message)
        elif kind is wire.AttachInstance:
            stub = self.processes.get(message.serial) or self.dead[message.serial]
            assert type(stub) is FakeStub
            core.attach(message, self.now, stub.page)
        elif kind is wire.Retire:
            core.retire(message)
        else:
            assert kind is wire.PeerDied
            self.broker.bury(message, self.now)

    def kill(self, process: FakePeer) -> None:
        if process.serial in self.processes:
            del self.processes[process.serial]
            gone = wire.PeerDied(process.serial, "killed")
            self.replay.record(gone)
            self.untold.append(gone)
            self.unsettled.discard(process.serial)
            self.dead[process.serial] = process

    def supervise(self) -> None:
        """Act on what the broker has told the supervisor."""
        while self.broker is not None and self.broker.news:
            message = self.broker.news.popleft()
            if type(message) is wire.Settled:
                self.replay.settle(message)
            elif type(message) is wire.Drained:
                stub = self.processes.get(message.serial)
                if type(stub) is FakeStub:
                    assert not stub.executing, "it has something to answer"
                    stub.is_finalizing = True

    def settle_broker(self) -> None:
        """Send the retirements once all frontends have repeated what they had."""
        was_settled = not self.unsettled
        for serial in list(self.unsettled):
            if not self.processes[serial].outgoing:
                self.unsettled.discard(serial)
        if self.broker is not None and not self.unsettled and not was_settled:
            for message in self.replay.retirements():
                self._tell(message)

    def tell_of_death(self) -> None:
        if self.broker is None or not self.untold:
            return
        gone = self.untold.pop(0)
        dead, core = self.dead[gone.serial], self.broker.core
        core.stop_giving_to(gone.serial)
        while dead.outgoing:
            self.broker.receive_from(dead, self.now)
        self.broker.bury(gone, self.now)
        self.broker.flush(self.now)

    def kill_broker(self) -> None:
        if self.broker is not None:
            self.supervise()
            self.executed_ids |= self.broker.executed_ids
        self.broker = None
        for frontend in self.frontends:
            frontend.lose_broker()

    def new_broker(self) -> None:
        if self.broker is not None:
            return
        self.epoch += 1
        self.broker = Broker(self.epoch, self.processes, self.begun_memory)
        for message in self.replay.all_messages():
            self._tell(message)
        self.untold.clear()
        self.broker.core.recovery.await_lease_reports()
        self.unsettled = {frontend.serial for frontend in self.frontends}
        for process in self.processes.values():
            if type(process) is FakeStub:
                process.next_epoch = self.epoch
            elif type(process) is FakeFrontend:
                process.connect(self.epoch)
        self.broker.flush(self.now)

    # -------------------------------------------------------------- moves

    def ask(self) -> None:
        frontend = self.random.choice(self.frontends)
        generation = self.random.choice([MODEL, MODEL, ORDERED, ENSEMBLE])
        frontend.send_request(next(self.ids), generation, is_large=self.random.random() < 0.5)

    def cancel(self) -> None:
        frontend = self.random.choice(self.frontends)
        if frontend.waiting and self.random.random() < 0.3:
            frontend.cancel(self.random.choice(sorted(frontend.waiting)))

    def deliver_up(self) -> None:
        speaking = [p for p in self.processes.values() if p.outgoing and p.serial not in self.slow]
        if speaking and self.broker is not None:
            self.broker.receive_from(self.random.choice(speaking), self.now)
            self.broker.flush(self.now)

    def deliver_down(self) -> None:
        hearing = [p for p in self.processes.values() if p.incoming and p.serial not in self.deaf]
        if hearing:
            # A stub amid execute() takes nothing, but may look around.
            self.random.choice(hearing).receive_next()

    def slow_down(self) -> None:
        """Make some messages late, so that others may do much meanwhile."""
        self.slow = {s for s in self.processes if self.random.random() < 0.4}
        self.deaf = {f.serial for f in self.frontends if self.random.random() < 0.4}

    def begin(self) -> None:
        for stub in self._one_of_the_stubs():
            stub.begin_batch()

    def answer(self) -> None:
        choice = self.random.choice(["nothing", "error", "own", "own", "given"])
        for stub in self._one_of_the_stubs():
            stub.finish_batch(choice)

    def look_around(self) -> None:
        for stub in self._one_of_the_stubs():
            if stub.next_epoch and not stub.is_finalizing:
                stub.connect()

    def _one_of_the_stubs(self) -> list[FakeStub]:
        return self.random.sample(self.stubs, min(1, len(self.stubs)))

    def let_go(self) -> None:
        self.random.choice(self.frontends).release_next()

    def kill_stub(self) -> None:
        if self.stubs:
            self.kill(self.random.choice(self.stubs))

    def retire_stub(self) -> None:
        """Have a stub end in order."""
        attached = [stub for stub in self.stubs if not stub.is_finalizing]
        if attached:
            stub = self.random.choice(attached)
            message = wire.Retire(stub.generation, stub.serial)
            self.replay.record(message)
            if self.broker is not None and not self.unsettled:
                self._tell(message)

    def end_stub(self) -> None:
        """A stub has run its finalizer."""
        for stub in self.stubs:
            if stub.is_finalizing:
                self.kill(stub)
                return

    def kill_frontend(self) -> None:
        if len(self.frontends) > 1:
            self.kill(self.random.choice(self.frontends))

    def step(self, moves: list[Any]) -> None:
        self.random.choice(moves)()
        self.now += self.random.randint(1_000, 100_000)
        if self.random.random() < 0.05:
            self.now += 3 * FENCE_NS  # an execution takes long, and is waited for meanwhile
        if self.broker is not None:
            self.settle_broker()
            self.broker.core.tick(self.now)
            self.broker.flush(self.now)
            self.supervise()
        for stub in self.stubs:
            stub.check_inputs()

    def rest(self) -> None:
        """Nobody is late, and time passes until nobody has anything left to repeat."""
        self.slow.clear()
        for stub in self.stubs:
            if stub.next_epoch and not stub.is_finalizing:
                stub.connect()
        while self.broker is not None and any(p.outgoing for p in self.processes.values()):
            self.deliver_up()
        self.now += 6_000_000_000

    def kill_settled_broker(self) -> None:
        """Kill the broker, unless it still owes the supervisor a word about a stub that ended."""
        broker = self.broker
        if broker is None or self.untold or self.unsettled:
            return
        # what is owed is in no message yet
        if not (broker.news or broker._sending._held_up or broker.core.recovery._once_over):
            self.kill_broker()

    def run_in_order(self, steps: int) -> None:
        """Stubs end in order only; brokers die as they like."""
        moves = [self.deliver_up] * 8 + [self.deliver_down] * 8 + [self.ask] * 4
        moves += [self.begin] * 4 + [self.answer] * 4 + [self.look_around] * 2 + [self.let_go] * 2
        moves += [self.new_stub] * 2 + [self.new_broker, self.tell_of_death, self.end_stub]
        rare = [self.retire_stub, self.retire_stub, self.kill_settled_broker, self.rest]
        for _ in range(steps):
            self.step(rare if self.random.random() < 0.1 else moves)

    def run(self, steps: int, deaths: float) -> None:
        moves = [self.deliver_up] * 8 + [self.deliver_down] * 8 + [self.ask] * 4
        moves += [self.begin] * 4 + [self.answer] * 4 + [self.look_around] * 2 + [self.let_go] * 2
        moves += [self.new_stub, self.new_frontend, self.cancel, self.new_broker, self.new_broker]
        moves += [self.tell_of_death] * 2 + [self.slow_down, self.end_stub]
        rare = [self.kill_stub, self.kill_frontend, self.retire_stub]
        rare += [self.kill_broker] * 2
        for _ in range(steps):
            self.step(rare if self.random.random() < deaths else moves)

    # ---------------------------------------------------------------- the end

    def heal(self) -> None:
        """Nothing dies any more; goes on until nothing moves."""
        self.slow.clear()
        self.deaf.clear()
        self.new_broker()
        for _ in range(10_000):
            before = self._pulse()
            self.supervise()
            self.settle_broker()
            self.end_stub()
            while self.untold:
                self.tell_of_death()
            for generation in (MODEL, ORDERED):
                if not any(stub.generation == generation for stub in self.stubs):
                    self._fork(generation)
            for stub in self.stubs:
                stub.begin_batch()
                stub.finish_batch("own")
                if stub.next_epoch and not stub.is_finalizing:
                    stub.connect()
            for process in self.processes.values():
                process.release_next()
            while any(p.outgoing or p.incoming for p in self.processes.values()):
                self.deliver_up()
                self.deliver_down()
                assert self.broker is not None
                self.broker.flush(self.now)
            if before == self._pulse():
                return
        raise AssertionError("it never rests")

    def _pulse(self) -> Any:
        return self.executed.total(), [
            (p.serial, len(p.blocks_in_use), p.arena.used) for p in self.processes.values()
        ]

    def check(self) -> None:
        twice = [how for how, times in self.executed.items() if times > 1 and how[1] != "named"]
        assert [] == twice
        assert self.broker is not None
        self.executed_ids |= self.broker.executed_ids
        for frontend in self.frontends:
            for own_id, code in frontend.codes.items():
                # A cancelled request ends as it may: nobody waits for its answer.
                if code == Unavailable.number and own_id not in frontend.cancelled:
                    self.check_refusal(f"{frontend.serial}-{own_id}", frontend.texts[own_id])
        core = self.broker.core
        for frontend in self.frontends:
            assert set() == frontend.waiting
            assert all(times == 1 for times in frontend.finals.values())
        assert (0, 0) == (core.limits.unanswered, core.limits.unanswered_bytes)
        assert {0} == {one.pending for one in core.generations.schedulers.values()}
        assert all(not peer.requests for peer in core.peers.values())
        assert 0 == core.blocks.leases.count
        assert {p.serial: 0 for p in self.processes.values()} == {
            p.serial: p.arena.used for p in self.processes.values()
        }

    def check_refusal(self, name: str, text: str) -> None:
        """Only what may have run is refused: a request, or a step of a run, that was begun."""
        assert name in self.executed_ids, text
        if not text.startswith("in ensemble"):
            assert any(self.executed[name, how] for how in (MODEL, ORDERED)), text


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


@pytest.mark.parametrize("deaths", [0.02, 0.1])
@pytest.mark.parametrize(
    "seed",
    [
        *range(12),
        1672,
        1912,
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation_epochs.py::test_across_brokers_each_request_is_answered_once_and_memory_comes_back"
                ),
            )
            for seed in range(12, 50)
        ),
    ],
)
def test_across_brokers_each_request_is_answered_once_and_memory_comes_back(
    seed: int, deaths: float, epochs: Epochs
) -> None:
    epochs.run(600, deaths)

    settle(epochs)


@pytest.mark.parametrize("seed", range(12))
def test_after_ends_in_order_nothing_is_refused_for_what_a_stub_may_have_begun(
    seed: int, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Page, "has_names", False)

    epochs.run_in_order(600)

    settle(epochs)
    texts = {text for frontend in epochs.frontends for text in frontend.texts.values()}
    assert not any("before it could tell" in text for text in texts)
    assert epochs.epoch > 1
