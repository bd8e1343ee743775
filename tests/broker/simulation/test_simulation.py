"""Random days of the broker."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, model, step, tensor
from tests.broker.simulation.days import RandomRun
from tests.broker.world import BrokerHarness, Page, request
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.scheduling import execution_rate
from zmqtriton.broker.scheduling.scheduler import Scheduler
from zmqtriton_floor import wire

pytestmark = pytest.mark.slow


# -------------------------------------------------------------------------- simulation
# Random lives of a broker, seeded: whatever dies, each admitted request gets one final answer.


#: Ensembles of m: in a row, side by side, and one in another; one tensor is read twice.
ENSEMBLES = [
    ensemble(
        [step("m", {"I": "x"}, {"O": "t"}), step("m", {"I": "t"}, {"O": "y"})],
        "row",
    ),
    ensemble(
        [
            step("m", {"I": "x"}, {"O": "p"}),
            step("m", {"I": "p"}, {"O": "q"}),
            step("m", {"I": "p"}, {"O": "y"}),
            step("m", {"I": "q"}, {"O": "z"}),
        ],
        "fork",
        outputs="yz",
    ),
    ensemble(
        [step("row", {"x": "x"}, {"y": "t"}), step("fork", {"x": "t"}, {"y": "y"})],
        "nested",
    ),
]


LEVELS = 3


BODY = wire.encode_body(wire.RequestBody("", {}, [], [tensor("x")]))


#: What dynamic batching may be asked for, beside preferred sizes and delays.
POLICIES: list[dict[str, Any]] = [
    {},
    {"default_queue_policy": {"max_queue_size": 2}},
    {"default_queue_policy": {"default_timeout_microseconds": 1}},
    {
        "priority_levels": LEVELS,
        "default_priority_level": 2,
        "default_queue_policy": {
            "timeout_action": "DELAY",
            "default_timeout_microseconds": 2,
            "allow_timeout_override": True,
        },
        "priority_queue_policy": {"3": {"max_queue_size": 1, "default_timeout_microseconds": 1}},
    },
    {
        "preserve_ordering": True,
        "default_queue_policy": {"max_queue_size": 2, "default_timeout_microseconds": 2},
    },
]


class Day:
    """Frontends, stubs, models and ensembles that act, hang and die at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = BrokerHarness()
        self.serials = iter(range(1, 1_000_000))
        self.generations = iter(range(1, 1_000_000))
        self.ids = iter(range(1, 1_000_000))
        self.frontends: list[int] = []
        self.stubs: dict[int, int] = {}
        #: Generations of m, and of ensembles.
        self.living: list[int] = []
        self.ensembles: list[int] = []
        self.routes: set[tuple[int, int]] = set()
        self.orphans: set[tuple[int, int]] = set()
        self.pages: dict[int, Page] = {}
        self.executed: Counter[tuple[int, int]] = Counter()
        self.lent: Counter[wire.Block] = Counter()
        #: How many priorities a generation has.
        self.levels: dict[int, Any] = {}
        self.trace: list[str] = []
        self.load()
        self.new_frontend()

    def load(self) -> None:
        number = next(self.generations)
        limit = {"max_execution_seconds": {"string_value": self.random.choice(["0", "0.000001"])}}
        config: dict[str, Any] = {**model("m"), "parameters": limit}
        if self.random.random() < 0.5:
            delay_us = self.random.choice([0, 1])
            batching = {"preferred_batch_size": [3], "max_queue_delay_microseconds": delay_us}
            batching |= self.random.choice(POLICIES)
            config |= {"max_batch_size": 4, "dynamic_batching": batching}
            self.levels[number] = batching.get("priority_levels", 0)
        self.world.add_generation(number, config=config)
        self.living.append(number)

    def load_ensemble(self) -> None:
        number = next(self.generations)
        self.world.add_generation(number, config=self.random.choice(ENSEMBLES))
        self.ensembles.append(number)

    def unload_ensemble(self) -> None:
        if self.ensembles:
            self._take_out(self.ensembles.pop(0))

    def unload(self) -> None:
        if len(self.living) > 1:
            self._take_out(self.living.pop(0))

    def _take_out(self, number: int) -> None:
        self.world.core.retire(wire.Retire(number))
        if self.random.random() < 0.5:
            self.world.core.remove(wire.RemoveGeneration(number, "unloaded"), self.world.now)
            self.stubs = {s: g for s, g in self.stubs.items() if g != number}
        self.world.drain_outbox()

    def new_frontend(self) -> None:
        serial = next(self.serials)
        self.world.add_frontend(serial)
        self.frontends.append(serial)

    def new_stub(self) -> None:
        if len(self.stubs) < 5:
            serial, generation = next(self.serials), self.random.choice(self.living)
            self.pages[serial] = Page()
            self.world.add_stub(serial, generation, self.pages[serial])
            self.stubs[serial] = generation

    def ask(self) -> None:
        peer = self.random.choice(self.frontends)
        rows = []
        for _ in range(self.random.randint(1, 4)):
            deadline = self.random.choice([0, self.world.now + self.random.randint(1, 3_000)])
            generation = self.random.choice([*self.living, *self.ensembles, 999_999])
            limits = {"deadline_ns": deadline, "timeout_us": self.random.choice([0, 0, 1])}
            limits["priority"] = self.random.randint(0, LEVELS + 1)
            rows.append(request(next(self.ids), generation, **limits))
            self.routes.add((peer, rows[-1].id))
        self.world.infer(peer, *rows, body=BODY)

    def cancel(self) -> None:
        peer, own_id = self.random.choice(sorted(self.routes)) if self.routes else (0, 0)
        if peer in self.frontends:
            self.world.cancel(peer, own_id)

    def answer(self) -> None:
        busy = [s for s, works in self.world.batched_requests.items() if works and s in self.stubs]
        if busy:
            serial = self.random.choice(busy)
            block = wire.Block(serial, 1, next(self.ids))
            output = tensor("O", wire.Reference(*block, 0, 99_999))
            body = wire.encode_body(wire.ResponseBody({}, [output]))
            code = self.random.choice([0, 0, 0, 2])
            answer = (b"", []) if code else (body, [block])
            for work in self.world.finish_batch(serial, code=code, answer=answer):
                self.executed[work.peer, work.id] += 1
                self.lent.update(answer[1])

    def kill_stub(self) -> None:
        if self.stubs:
            serial = self.random.choice(sorted(self.stubs))
            works = self.world.batched_requests.get(serial, [])
            # What was sent ahead and not begun will be executed by another one.
            begun = self.random.choice([work.batch for work in works]) if works else 0
            self.pages[serial].last_begun_batch = begun
            for work in works:
                if work.batch <= begun:
                    self.executed[work.peer, work.id] += 1
            del self.stubs[serial]
            self.world.kill_peer(serial)

    def kill_frontend(self) -> None:
        if len(self.frontends) > 1:
            peer = self.frontends.pop(self.random.randrange(len(self.frontends)))
            self.orphans |= {route for route in self.routes if route[0] == peer}
            self.world.kill_peer(peer)

    def run(self, steps: int) -> None:
        moves = [self.ask] * 6 + [self.answer] * 6 + [self.cancel] * 2 + [self.new_stub] * 2
        moves += [self.kill_stub, self.kill_frontend, self.new_frontend, self.load, self.unload]
        moves += [self.load_ensemble, self.load_ensemble, self.unload_ensemble]
        for _ in range(steps):
            move = self.random.choice(moves)
            move()
            self.trace.append(f"{move.__name__} {sorted(self.world.replies)[-1:]}")
            self.world.tick(self.random.randint(0, 500))
            self.check()

    def check(self) -> None:
        for route, replies in self.world.replies.items():
            finals = [r for r in replies if r.flags & wire.FINAL]
            early = [r for r in replies if r.flags & wire.ABANDONED]
            assert (len(finals), len(early)) in ((1, 0), (0, 1), (1, 1)), (route, replies)
        assert all(count == 1 for count in self.executed.values())
        for instance in [i for i in self.world.core.instances.values() if i.is_idle]:
            scheduler = self.world.core.generations.schedulers[instance.generation]
            assert not scheduler.queued() or scheduler.due_ns > self.world.now
        for scheduler in self.world.core.generations.schedulers.values():
            self.check_queue(scheduler)

    def check_queue(self, scheduler: Scheduler) -> None:
        """Nobody who was never dispatched is overtaken within a priority, or waits too long."""
        waiting = [r for r in scheduler.queued() if not r.dispatched_ns]
        running = [r for i in scheduler.instances.values() for r in i.open_requests.values()]
        levels = self.levels.get(scheduler.generation.number, 0)

        def level(one: InflightRequest) -> int:
            return one.row.priority if 0 < one.row.priority <= levels else 2

        for one in waiting:
            assert one.place is not None
            expiry_ns = scheduler.expiry_ns(one)
            assert not expiry_ns or expiry_ns > self.world.now
            overtaking = [
                r
                for r in running
                if level(r) == level(one) and r.arrived_ns > one.arrived_ns and not one.is_late
            ]
            assert not overtaking, (one.key, [r.key for r in overtaking])
        assert scheduler.pending == len(scheduler.queued())

    def end(self) -> None:
        """Every model is removed, so everything must be answered now."""
        self.world.remove_all()
        self.check()
        assert self.routes - self.orphans <= set(self.world.replies)
        assert 0 == self.world.core.limits.unanswered
        assert all(not peer.requests for peer in self.world.core.peers.values())
        for peer in self.frontends:
            self.world.kill_peer(peer)
        assert 0 == self.world.core.blocks.leases.count
        released = Counter(b for blocks in self.world.released_blocks.values() for b in blocks)
        assert released <= self.lent
        living = {block for block in self.lent if block.owner in self.stubs}
        assert all(released[block] == self.lent[block] for block in living)


@pytest.mark.parametrize(
    "seed",
    [
        *range(60),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation.py::test_each_admitted_request_gets_exactly_one_final_answer"
                ),
            )
            for seed in range(60, 300)
        ),
    ],
)
def test_each_admitted_request_gets_exactly_one_final_answer(seed: int) -> None:
    day = Day(seed)

    day.run(200)

    day.end()


def test_the_same_seed_is_the_same_day() -> None:
    first, second = Day(5), Day(5)

    first.run(100)
    second.run(100)

    assert first.trace == second.trace


# ---------------------------------------------------------------------- simulation all
# A few of the days of days.py; tests/faults/simulation.py lives ten thousand of them.


@pytest.mark.parametrize(
    "seed",
    [
        *range(15),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation.py::test_everything_that_is_promised_holds_at_any_moment"
                ),
            )
            for seed in range(15, 60)
        ),
    ],
)
def test_everything_that_is_promised_holds_at_any_moment(seed: int) -> None:
    day = RandomRun(seed)

    day.run(150)

    day.run_to_end()


@pytest.mark.parametrize(
    "seed",
    [
        *range(10),
        *(
            pytest.param(
                seed,
                marks=pytest.mark.long(
                    "broker/simulation/test_simulation.py::test_it_holds_where_models_have_a_pace"
                ),
            )
            for seed in range(10, 40)
        ),
    ],
)
def test_it_holds_where_models_have_a_pace(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_rate, "_CATCH_UP_NS", 0)
    day = RandomRun(seed, pace="400000")

    day.run(150)

    day.run_to_end()


def test_the_same_seed_is_the_same_day_with_everything() -> None:
    first, second = RandomRun(5), RandomRun(5)

    first.run(100)
    second.run(100)

    assert first.world.replies == second.world.replies
    assert first.world.batched_requests == second.world.batched_requests
