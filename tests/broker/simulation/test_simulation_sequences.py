"""Seeded random lives of sequences.

Whatever dies, expires or is cancelled, a model that keeps a state by id gets every request of a
sequence after the one before it, and none without it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.broker.sequence_world import BODY, F, SequenceHarness
from tests.broker.world import request
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton_floor import wire
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START

pytestmark = pytest.mark.slow

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


class Day:
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
        works = self.world.batched_requests[serial]
        batch = [work for work in works if work.batch == works[0].batch]
        self.world.batched_requests[serial] = works[len(batch) :]
        self.owed += [(serial, work) for work in batch]
        self.report(serial, [], [wire.Executed(batch[0].batch, 1, 2, 3)])

    def answer(self) -> None:
        if self.owed:
            serial, work = self.owed.pop(self.random.randrange(len(self.owed)))
            self.report(serial, [wire.Outcome(work.peer, work.id, 0, "", wire.FINAL)], [])

    def report(
        self, serial: int, outcomes: list[wire.Outcome], executed: list[wire.Executed]
    ) -> None:
        bodies = [b""] * len(outcomes)
        self.world.core.results(serial, wire.Results(outcomes, executed), bodies, self.world.now)
        self.world.drain_outbox()

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
    day = Day(seed, slots, strategy)

    for _ in range(400):
        day.step()
    day.end()

    assert len(day.seen) > 10
