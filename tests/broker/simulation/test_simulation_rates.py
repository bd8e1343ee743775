"""Random days with rates, sequences, and models that ask others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, model, step, tensor
from tests.broker.simulation.days import RandomRun
from tests.broker.world import BrokerHarness, request
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor import wire

pytestmark = pytest.mark.slow

_SEEDS = [
    *range(16),
    *(
        pytest.param(
            seed,
            marks=pytest.mark.long(
                "broker/simulation/test_simulation_rates.py::test_resources_are_never_exceeded_and_never_lie_idle",
                "broker/simulation/test_simulation_rates.py::test_sequences_keep_their_order_whatever_happens",
            ),
        )
        for seed in range(16, 30)
    ),
]


@pytest.mark.row("E38")
@pytest.mark.parametrize("seed", _SEEDS)
def test_resources_are_never_exceeded_and_never_lie_idle(seed: int) -> None:
    day = RandomRun(seed, names=["leaf", "plain"], sharing=1.0)

    day.run(150)

    day.run_to_end()


@pytest.mark.parametrize("seed", _SEEDS)
def test_sequences_keep_their_order_whatever_happens(seed: int) -> None:
    day = RandomRun(seed, names=["direct", "oldest"])

    day.run(400)

    day.run_to_end()
    finals = [reply for replies in day.world.replies.values() for reply in replies]
    assert sum(not reply.code for reply in finals) > 10


# -------------------------------------------------------------------- simulation calls
# Random lives of models that ask others for their requests: who is cancelled, and who is not.
# A call ends with the last of the requests that it was made for and with its deadline, and not
# before; it gets one final reply, and at most one before it.


_FRONTEND = 1
_MODELS = ("first", "second", "third")


_BATCHES: dict[str, Any] = {"max_batch_size": 3, "dynamic_batching": {}}


_BODY = wire.encode_body(wire.RequestBody("", {}, [], [tensor("I", shape=[1, 4])]))


class Calls:
    """Models with two stubs each, all of which ask each other while they execute."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = BrokerHarness()
        self.numbers = iter(range(100, 1_000_000))
        self.stubs: dict[int, str] = {}
        for number, name in enumerate(_MODELS, start=1):
            self.world.add_generation(number, config={**model(name), **_BATCHES})
        steps = [step("first", {"I": "I"}, {"O": "t"}), step("second", {"I": "t"}, {"O": "y"})]
        row = {**ensemble(steps, "row", inputs="I"), "max_batch_size": 3}
        self.world.add_generation(4, config=row)
        self.world.add_frontend(_FRONTEND)
        #: What clients and models have cancelled, or what ended with its process.
        self.given_up: set[tuple[int, int]] = set()
        self.dead: set[int] = set()
        self.routes: set[tuple[int, int]] = set()

    # ------------------------------------------------------------------ moves

    def new_stub(self) -> None:
        if len(self.stubs) < 6:
            serial, number = next(self.numbers), self.random.randint(1, 3)
            self.stubs[serial] = _MODELS[number - 1]
            self.world.add_stub(serial, number)

    def kill_stub(self) -> None:
        if self.stubs:
            serial = self.random.choice(sorted(self.stubs))
            del self.stubs[serial]
            self.dead.add(serial)
            self.world.kill_peer(serial)

    def _deadline(self) -> int:
        return self.random.choice([0, 0, self.world.now + self.random.randint(1, 20_000)])

    def ask(self) -> None:
        rows = []
        for _ in range(self.random.randint(1, 3)):
            number = self.random.randint(1, 4)
            rows.append(request(next(self.numbers), number, deadline_ns=self._deadline()))
        self.routes |= {(_FRONTEND, row.id) for row in rows}
        self.world.infer(_FRONTEND, *rows, body=_BODY)

    def call(self) -> None:
        """A stub asks for the batch that it executes, as its client would word it."""
        busy = [serial for serial in self.stubs if self.world.batched_requests.get(serial)]
        if not busy:
            return
        serial = self.random.choice(busy)
        works = self.world.batched_requests[serial]
        batch = [work for work in works if work.batch == works[0].batch]
        deadlines = [work.deadline_ns for work in batch]
        row = request(next(self.numbers), 0, model=self.random.choice([*_MODELS, "row"]))
        if self.random.random() < 0.9:
            row = row._replace(
                deadline_ns=max(deadlines) if all(deadlines) else 0,
                caller_peer=batch[0].peer,
                caller_id=batch[0].id,
            )
        self.routes.add((serial, row.id))
        self.world.infer(serial, row, body=_BODY)

    def cancel(self) -> None:
        peer = self.random.choice([_FRONTEND] * 4 + sorted(self.stubs))
        waiting = sorted(self.world.core.peers[peer].requests)
        if waiting:
            own_id = self.random.choice(waiting)
            self.given_up.add((peer, own_id))
            self.world.cancel(peer, own_id)

    def answer(self) -> None:
        busy = [serial for serial in self.stubs if self.world.batched_requests.get(serial)]
        if busy:
            body = wire.encode_body(wire.ResponseBody({}, [tensor("O", shape=[1, 4])]))
            self.world.finish_batch(self.random.choice(busy), answer=(body, []))

    def run(self, steps: int) -> None:
        moves = [self.ask] * 4 + [self.call] * 6 + [self.answer] * 5 + [self.cancel] * 3
        moves += [self.new_stub, self.new_stub, self.kill_stub]
        for _ in range(steps):
            self.random.choice(moves)()
            self.check()
            self.world.tick(self.random.choice([0, 100, 2_000]))
            self.check()

    # --------------------------------------------------------------- promises

    def check(self) -> None:
        core = self.world.core
        for route, replies in self.world.replies.items():
            finals = [reply for reply in replies if reply.flags & wire.FINAL]
            early = [reply for reply in replies if reply.flags & wire.ABANDONED]
            assert max(len(finals), len(early)) <= 1, (route, replies)
            assert not finals or replies[-1] is finals[0], "something after the last answer"
        for peer in core.peers.values():
            for one in peer.requests.values():
                self._check(one)

    def _check(self, one: InflightRequest) -> None:
        is_late = 0 < one.deadline_ns <= self.world.now
        assert one.is_abandoned or not is_late, "nobody was told at the deadline"
        assert one.is_cancelled or not is_late, "it goes on after its deadline"
        if one.caller is None:
            is_wanted = one.key not in self.given_up and one.peer not in self.dead
            assert one.is_cancelled is not is_wanted or is_late
            return
        if all(caller.is_cancelled for caller in one.caller.requests):
            assert (True, True) == (one.is_cancelled, one.is_abandoned), "it goes on for nobody"
        elif not one.caller.is_cancelled and one.key not in self.given_up and not is_late:
            assert (False, False) == (one.is_cancelled, one.is_abandoned), "somebody wants it"

    def end(self) -> None:
        """Let everything be answered that can be, and then die."""
        while any(self.world.batched_requests.get(serial) for serial in self.stubs):
            self.answer()
            self.world.tick(2_000)
            self.check()
        for serial in list(self.stubs):
            self.world.kill_peer(serial)
        self.world.remove_all()
        living = {route for route in self.routes if route[0] not in self.dead}
        unanswered = [route for route in living if not self.world.finals(*route)]
        assert [route for route in unanswered if route[0] == _FRONTEND] == []
        assert (0, 0) == (self.world.core.limits.unanswered, self.world.core.traffic.malformed)
        assert {} == self.world.core.deadlocks.open_calls


@pytest.mark.row("L18")
@pytest.mark.parametrize(
    "seed",
    [
        *range(25),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation_rates.py::test_calls_end_with_those_that_they_are_made_for"
                ),
            )
            for seed in range(25, 100)
        ),
    ],
)
def test_calls_end_with_those_that_they_are_made_for(seed: int) -> None:
    calls = Calls(seed)

    calls.run(150)

    calls.end()
