"""Random days with rates, sequences, and models that ask others."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.broker.ensemble_world import ensemble, model, step, tensor
from tests.broker.scheduling.test_rate_limiter import demand
from tests.broker.sequence_world import BODY, F, SequenceHarness
from tests.broker.world import BrokerHarness, Page, outcome, request
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton.config.resources import ResourceKey, ResourceNeed, ResourcePool
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import BrokerSettings, RateLimitResource, RateLimits
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START

pytestmark = pytest.mark.slow


# -------------------------------------------------------------------- simulation rates
# Random lives of models that share resources, seeded: never more than there is, never idle.


_FRONTEND = 1


_RESOURCES = (
    RateLimitResource("R", 4, 0),
    RateLimitResource("S", 3, -1),
    RateLimitResource("T", 9, 0),
)


class Day:
    """Models with instances that need R and S come, are asked, answer, die and go."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = BrokerHarness()
        self.resources = self.random.choice([(), _RESOURCES])
        limits = RateLimits(True, self.resources)
        self.supply = ResourcePool(limits)
        self.world.core.configure(1, BrokerSettings(rate=limits))
        self.world.add_frontend(_FRONTEND)
        self.numbers = iter(range(2, 1_000_000))
        #: Living generations, and the instances of them with what they need.
        self.models: dict[int, dict[int, ResourceNeed]] = {}
        #: Requests that are not answered, by generation.
        self.open: dict[int, set[int]] = {}
        #: At the last look.
        self.used: dict[ResourceKey, int] = {}
        for _ in range(3):
            self.load()

    def load(self) -> None:
        if len(self.models) == 5:
            return
        number = next(self.numbers)
        self.world.add_generation(number, config={"name": f"m{number}"})
        self.models[number], self.open[number] = {}, set()
        for _ in range(self.random.randint(1, 3)):
            self.new_instance(number)

    def new_instance(self, generation: int) -> None:
        serial = next(self.numbers)
        needs = {name: self.random.randint(0, 3) for name in "RS" if self.random.random() < 0.7}
        text = demand(self.random.randint(1, 3), **{n: c for n, c in needs.items() if c})
        self.models[generation][serial] = ResourceNeed.from_json(text)
        self.world.add_stub(serial, generation, Page(), demand=text)

    def ask(self) -> None:
        generation = self.random.choice(sorted(self.models))
        for _ in range(self.random.randint(1, 3)):
            own_id = next(self.numbers)
            self.open[generation].add(own_id)
            self.world.infer(_FRONTEND, request(own_id, generation))

    def cancel(self) -> None:
        waiting = sorted(own_id for ids in self.open.values() for own_id in ids)
        if waiting:
            self.world.cancel(_FRONTEND, self.random.choice(waiting))

    def answer(self) -> None:
        busy = [serial for serial, works in self.world.batched_requests.items() if works]
        if busy:
            self.world.finish_batch(self.random.choice(sorted(busy)))

    def kill(self) -> None:
        generation = self.random.choice(sorted(self.models))
        instances = self.models[generation]
        if instances:
            serial = self.random.choice(sorted(instances))
            del instances[serial]
            self.world.kill_peer(serial)
            self.new_instance(generation)

    def unload(self) -> None:
        if len(self.models) > 2:
            generation = self.random.choice(sorted(self.models))
            for serial in self.models.pop(generation):
                self.world.batched_requests.pop(serial, None)
            self.world.remove(generation)

    def run(self, steps: int) -> None:
        moves = [self.ask] * 6 + [self.answer] * 8 + [self.cancel, self.kill]
        for number in range(steps):
            self.random.choice(moves)()
            if not number % 20:
                self.random.choice([self.load, self.unload])()
            self.world.tick(1)
            self.settle()
            self.check()

    def settle(self) -> None:
        for (_, own_id), replies in self.world.replies.items():
            if any(reply.flags & wire.FINAL for reply in replies):
                for ids in self.open.values():
                    ids.discard(own_id)

    def check(self) -> None:
        demands = [d for instances in self.models.values() for d in instances.values()]
        limits = self.supply.limits(demands)
        used: dict[ResourceKey, int] = dict.fromkeys(limits, 0)
        for instances in self.models.values():
            for serial, needs in instances.items():
                batches = {work.batch for work in self.world.batched_requests.get(serial, [])}
                for key, count in needs.amounts.items():
                    used[key] += count * len(batches)
        # Where the greediest one has gone there is less than before; what runs goes on.
        assert all(used[key] <= max(limits[key], self.used.get(key, 0)) for key in used), used
        self.used = used
        self.check_idle({key: limits[key] - used[key] for key in used})

    def check_idle(self, free: dict[ResourceKey, int]) -> None:
        """Whoever could execute stands back for one that cannot, and would be kept from it."""
        idle = self.idle()
        back = [one for one in idle if any(free[key] < n for key, n in one[1].amounts.items())]
        for generation, needs in back:
            back += [
                one
                for one in idle
                if one not in back
                and one[0] != generation
                and one[1].amounts.keys() & needs.amounts
            ]
        assert all(one in back for one in idle), (idle, back, free)

    def idle(self) -> list[tuple[int, ResourceNeed]]:
        """Generation and demand of all that have nothing to do though there is something."""
        executing = {work.id for works in self.world.batched_requests.values() for work in works}
        return [
            (generation, needs)
            for generation, instances in self.models.items()
            if self.open[generation] - executing
            for serial, needs in instances.items()
            if not self.world.batched_requests.get(serial)
        ]

    def end(self) -> None:
        """With time everybody has his turn."""
        for _ in range(10_000):
            busy = [serial for serial, works in self.world.batched_requests.items() if works]
            if not busy:
                break
            self.world.finish_batch(self.random.choice(sorted(busy)))
            self.settle()
            self.check()
        assert not any(self.open[generation] for generation in self.models)


@pytest.mark.row("E38")
@pytest.mark.parametrize("seed", range(30))
def test_resources_are_never_exceeded_and_never_lie_idle(seed: int) -> None:
    day = Day(seed)

    day.run(150)

    day.end()


# ---------------------------------------------------------------- simulation sequences
# Seeded random lives of sequences.
# Whatever dies, expires or is cancelled, a model that keeps a state by id gets every request of a
# sequence after the one before it, and none without it.


IDLE_NS = 1_000_000


_STEPS_NS = [0, 20_000, 100_000, 2 * IDLE_NS]


_IDS: list[int | str] = [1, 2, 3, 4, 5, "a", "b"]


_STRATEGIES: list[tuple[int, dict[str, Any]]] = [
    (1, {"direct": {}}),
    (3, {"direct": {}}),
    (4, {"direct": {"minimum_slot_utilization": 0.6, "max_queue_delay_microseconds": "200"}}),
    (3, {"oldest": {"max_candidate_sequences": 2}}),
    (
        2,
        {
            "oldest": {
                "max_candidate_sequences": 3,
                "preferred_batch_size": [2],
                "max_queue_delay_microseconds": "300",
            }
        },
    ),
]


def sequence_config(slots: int, strategy: dict[str, Any]) -> dict[str, Any]:
    idle = {"max_sequence_idle_microseconds": str(IDLE_NS // 1000)}
    return {"name": "m", "max_batch_size": slots, "sequence_batching": {**strategy, **idle}}


class DayOfSequences:
    """Clients with sequences of few ids, and stubs that come, answer and die."""

    def __init__(self, seed: int, slots: int, strategy: dict[str, Any]) -> None:
        self.random = random.Random(seed)
        self.slots = slots
        self.world = SequenceHarness(sequence_config(slots, strategy), 2, 3)
        self.serials = iter(range(4, 1_000_000))
        self.stubs = [2, 3]
        self.rows: dict[int, wire.Request] = {}
        #: The request of the same id that was sent before this one.
        self.before: dict[int, int] = {}
        self.last: dict[int | str, int] = {}
        #: What was executed by which stub, and is not answered yet.
        self.owed: list[tuple[int, wire.BatchedRequest]] = []
        #: What stubs have been given of each sequence, last.
        self.last_ids: dict[tuple[int, int | str], int] = {}
        self.seen: dict[int, int] = {}

    def send(self) -> None:
        sequence = self.random.choice(_IDS)
        flags = self.random.choice([0, 0, 0, 0, 0, 0, START, START, START, END, START | END])
        own_id = next(self.world.ids)
        key, timeout_us = self.random.choice([0, 0, 0, 7]), self.random.choice([0, 0, 400])
        row = request(own_id, correlation=sequence, flags=flags, batch_key=key)
        self.rows[own_id] = row = row._replace(timeout_us=timeout_us)
        if sequence in self.last:
            self.before[own_id] = self.last[sequence]
        self.last[sequence] = own_id
        self.world.infer(F, row, body=BODY)

    def finish(self) -> None:
        busy = [serial for serial in self.stubs if self.world.batched_requests.get(serial)]
        if busy and self.random.random() < 0.7:
            self.world.finish_batch(self.random.choice(busy))
        elif busy:
            self.return_only(self.random.choice(busy))

    def return_only(self, serial: int) -> None:
        """execute() returns, and the answers come later, as those of a decoupled model do."""
        batch = self.world.take_batch(serial)
        self.owed += [(serial, work) for work in batch]
        self.world.send_results(serial, executed=[wire.Executed(batch[0].batch, 1, 2, 3)])

    def answer(self) -> None:
        if self.owed:
            serial, work = self.owed.pop(self.random.randrange(len(self.owed)))
            self.world.send_results(serial, outcome(work.id, peer=work.peer), body=b"")

    def cancel(self) -> None:
        open_ids = list(self.world.core.peers[F].requests)
        if open_ids:
            self.world.cancel(F, self.random.choice(open_ids))

    def die(self) -> None:
        if self.stubs:
            serial = self.random.choice(self.stubs)
            self.stubs.remove(serial)
            self.world.kill_peer(serial)
            self.owed = [(stub, work) for stub, work in self.owed if stub != serial]

    def come(self) -> None:
        if len(self.stubs) < 3:
            serial = next(self.serials)
            self.stubs.append(serial)
            self.world.add_stub(serial)

    def step(self) -> None:
        weights = {
            self.send: 10,
            self.finish: 8,
            self.answer: 5,
            self.cancel: 1,
            self.die: 0.3,
            self.come: 0.5,
        }
        [event] = self.random.choices(list(weights), weights=list(weights.values()))
        event()
        self.check()
        [passed_ns] = self.random.choices(_STEPS_NS, [4, 10, 4, 0.4])
        self.world.tick(passed_ns)
        self.check()

    def check(self) -> None:
        executing: list[int | str] = []
        for serial in self.stubs:
            works = [
                w for w in self.world.batched_requests.get(serial, []) if w.id < FIRST_PADDING_ID
            ]
            assert len(works) <= self.slots
            works += [w for stub, w in self.owed if stub == serial and w.id < FIRST_PADDING_ID]
            executing += [work.correlation for work in works]
            for work in works:
                if self.seen.setdefault(work.id, serial) != serial:
                    raise AssertionError(f"{work.id} was given to two stubs")
                if self.last_ids.get((serial, work.correlation), 0) < work.id:
                    self.check_order(serial, work)
        assert len(executing) == len(set(executing)), "two of one sequence at once"

    def check_order(self, serial: int, work: wire.BatchedRequest) -> None:
        earlier = self.last_ids.get((serial, work.correlation), 0)
        self.last_ids[serial, work.correlation] = work.id
        if not work.flags & START:
            assert self.before[work.id] == earlier, "one is missing, or comes too late"
            assert not self.rows[earlier].flags & END

    def end(self) -> None:
        """All that waits is executed, and then nothing is left."""
        self.come()
        self.check()
        core = self.world.core
        for _ in range(10_000):
            if not core.peers[F].requests:
                break
            self.finish()
            self.check()
            self.answer()
            self.check()
            self.world.tick(IDLE_NS)
            self.check()
        while self.owed:  # of what filled empty places
            self.answer()
        self.world.tick(IDLE_NS)
        self.world.tick(IDLE_NS)

        assert {1} == {len(self.world.finals(F, own_id)) for own_id in self.rows}
        scheduler = core.generations.schedulers[1]
        assert (0, 0) == (scheduler.pending, scheduler.generation.unanswered)
        assert (0, 0) == (core.traffic.malformed, scheduler.due_ns)
        assert [] == scheduler.queued()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("slots", "strategy"), _STRATEGIES)
def test_sequences_keep_their_order_whatever_happens(
    seed: int, slots: int, strategy: dict[str, Any]
) -> None:
    day = DayOfSequences(seed, slots, strategy)

    for _ in range(400):
        day.step()
    day.end()

    assert len(day.seen) > 10


# -------------------------------------------------------------------- simulation calls
# Random lives of models that ask others for their requests: who is cancelled, and who is not.
# A call ends with the last of the requests that it was made for and with its deadline, and not
# before; it gets one final reply, and at most one before it.


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
        name = self.random.choice([*_MODELS, "row"])
        row = request(next(self.numbers), 0, model=name)
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
        is_late = 0 < one.row.deadline_ns <= self.world.now
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
