"""Random days of a model whose batches are fitted, and the laws that hold in them.

The laws are checked from outside at each batch: what waited before it, and what it took. What a
request costs is computed here from what the day has drawn, not by the broker's code.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np

from tests.broker.world import MILLISECOND, S2, S3, BrokerHarness, F, S, request
from zmqtriton.broker.requests.inflight import InflightRequest
from zmqtriton_floor import wire

INT32, STRING = 8, 13
_COSTS = ("", "elements(tokens)", "bytes(text)", "value(steps)", "padded(tokens)", "padded(text)")
_LIKES = ("", "shape(tokens)", "shape(text)", "value(steps)")
_DELAYS_US = (0, 0, 500, 5000)


class Drawn:
    """A request as the day has drawn it."""

    def __init__(self, dice: random.Random) -> None:
        self.rows = dice.choice((1, 1, 1, 2, 3))
        self.tokens = int(dice.lognormvariate(2, 1)) + 1
        self.texts = [dice.randrange(30) for _ in range(self.rows)]
        self.steps = dice.randrange(1, 50)

    def body(self) -> bytes:
        texts = b"".join(size.to_bytes(4, "little") + b"x" * size for size in self.texts)
        tokens, steps = (
            np.full(shape, value, np.int32).tobytes()
            for shape, value in (((self.rows, self.tokens), 1), ((self.rows, 1), self.steps))
        )
        tensors = [
            wire.Tensor("tokens", INT32, [self.rows, self.tokens], tokens),
            wire.Tensor("text", STRING, [self.rows, 1], texts),
            wire.Tensor("steps", INT32, [self.rows, 1], steps),
        ]
        return wire.encode_body(wire.RequestBody("", {}, [], tensors))


def cost_of(measure: str, batch: list[Drawn]) -> int:
    """Return what a batch costs, as the guide says it."""
    rows = sum(one.rows for one in batch)
    return {
        "elements(tokens)": lambda: sum(one.rows * one.tokens for one in batch),
        "bytes(text)": lambda: sum(sum(one.texts) for one in batch),
        "value(steps)": lambda: sum(one.rows * one.steps for one in batch),
        "padded(tokens)": lambda: rows * max(one.tokens for one in batch),
        "padded(text)": lambda: rows * max(max(one.texts) for one in batch),
        "": lambda: 0,
    }[measure]()


class FittedDay:
    """One model with some stubs, for as many random events as are wanted."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.cost, self.like = dice.choice(_COSTS), dice.choice(_LIKES)
        self.budget = dice.choice((20, 100, 400))
        self.most = dice.choice((2, 4, 8))
        self.is_ragged = dice.random() < 0.7
        self.stubs = [S, S2, S3][: dice.choice((1, 1, 3))]
        self.delay_us = dice.choice(_DELAYS_US)
        self._burst = dice.choice((1, 3, 20))
        self.world = BrokerHarness.serving(*self.stubs, config=self._config())
        self.drawn: dict[int, Drawn] = {}
        #: How many batches may take others of its level before a request that was seen to wait.
        self._patience: dict[tuple[InflightRequest, bool], int] = {}
        queue: Any = self.world.core.generations.schedulers[1].queue
        self._queue, self._pop = queue, queue.pop_batch
        queue.pop_batch = self._checked_batch

    def _config(self) -> dict[str, Any]:
        dice, texts = self.dice, dict[str, str]()
        if self.cost:
            texts |= {"BATCH_COST": self.cost, "MAX_BATCH_COST": str(self.budget)}
        if self.like:
            texts["BATCH_LIKE"] = self.like
        if dice.random() < 0.2:
            texts["max_executions_per_second"] = "400"
        batching: dict[str, Any] = {"max_queue_delay_microseconds": self.delay_us}
        if dice.random() < 0.5:
            batching |= {"priority_levels": 2, "default_priority_level": 2}
        if dice.random() < 0.3:
            action = dice.choice(("REJECT", "DELAY"))
            policy = {"default_timeout_microseconds": 8000, "timeout_action": action}
            batching["default_queue_policy"] = policy
        if dice.random() < 0.3:
            batching["preferred_batch_size"] = [2]
        return {
            "max_batch_size": self.most,
            "dynamic_batching": batching,
            "input": [
                {"name": "tokens", "data_type": "TYPE_INT32", "dims": [-1]},
                {"name": "text", "data_type": "TYPE_STRING", "dims": [1]},
                {"name": "steps", "data_type": "TYPE_INT32", "dims": [1]},
            ],
            "parameters": {name: {"string_value": text} for name, text in texts.items()},
        }

    def run(self, events: int) -> None:
        for _ in range(events):
            self._event()
        while any(self.world.batched_requests.values()) or [*self._queue.levels]:
            self._step(MILLISECOND)
            self._finish()
        unanswered = [one for one in self.drawn if len(self.world.finals(F, one)) != 1]
        assert not unanswered, f"answers are not whole: {unanswered}"

    def _event(self) -> None:
        chance = self.dice.random()
        if chance < 0.4:
            for _ in range(self.dice.randint(1, self._burst)):
                self._ask()
        elif chance < 0.7:
            self._finish()
        elif chance < 0.75:
            self.world.cancel(F, self.dice.randint(1, len(self.drawn) + 1))
        else:
            self._step(self.dice.randrange(1, 2 * MILLISECOND))

    def _ask(self) -> None:
        own_id, drawn = len(self.drawn) + 1, Drawn(self.dice)
        self.drawn[own_id] = drawn
        deadline_ns = self.world.now + 10 * MILLISECOND if self.dice.random() < 0.2 else 0
        row = request(
            own_id,
            priority=self.dice.choice((0, 0, 1)),
            deadline_ns=deadline_ns,
            batch_size=drawn.rows,
            batch_key=0 if self.is_ragged else drawn.tokens % 3,
        )
        self.world.infer(F, row, body=drawn.body())

    def _finish(self) -> None:
        busy = [stub for stub in self.stubs if self.world.batched_requests.get(stub)]
        if busy:
            self.world.finish_batch(self.dice.choice(busy))

    def _step(self, by_ns: int) -> None:
        due_ns = self.world.core.due_ns
        while due_ns is not None and due_ns <= self.world.now + by_ns:
            by_ns -= max(0, due_ns - self.world.now)
            self.world.tick(max(0, due_ns - self.world.now))
            due_ns = self.world.core.due_ns
        self.world.tick(by_ns)

    # ------------------------------------------------------------ laws

    def _checked_batch(self, now_ns: int) -> list[InflightRequest]:
        waiting = [*self._queue.levels]
        groups = [(one.place, one.is_late) for one in waiting]
        batch = self._pop(now_ns)
        if batch:
            self._check_sizes([self.drawn[one.id] for one in batch])
            assert len({one.batch_key for one in batch}) == 1, "unlike shapes share a batch"
            self._check_order(waiting, groups, batch, now_ns)
        elif waiting:
            is_due = now_ns >= waiting[0].queued_ns + 1000 * self.delay_us
            assert not is_due, "a request waits beyond the delay"
        return batch

    def _check_sizes(self, batch: list[Drawn]) -> None:
        if len(batch) > 1:
            assert sum(one.rows for one in batch) <= self.most, "more rows than allowed"
            assert cost_of(self.cost, batch) <= self.budget, "the budget is exceeded"

    def _check_order(
        self,
        waiting: list[InflightRequest],
        groups: list[Any],
        batch: list[InflightRequest],
        now_ns: int,
    ) -> None:
        assert self.like or waiting[: len(batch)] == batch, "the order is not that of arrival"
        chosen, older = {*batch}, Counter[Any]()
        rest = [group for one, group in zip(waiting, groups, strict=True) if one in chosen]
        taken = {*rest}
        for one, group in zip(waiting, groups, strict=True):
            place = one, group[1]
            patience = min(older[group], self._patience.get(place, older[group]))
            older[group] += 1
            if one in chosen:
                del rest[0]
                continue
            assert {*rest} <= {group}, "priorities are mixed"
            assert not rest or not self._is_near_its_end(one, group[0], now_ns), "its end is near"
            self._patience[place] = patience - (group in taken)
            assert self._patience[place] >= 0, "a request starves"

    def _is_near_its_end(self, one: InflightRequest, level: Any, now_ns: int) -> bool:
        """True if half of the time to its deadline, or in the queue, has passed."""
        limit_ns = level.policy.timeout_ns
        ends_ns = [one.deadline_ns, one.arrived_ns + limit_ns if limit_ns else 0]
        waited_ns = now_ns - one.arrived_ns
        return any(end_ns and 2 * waited_ns >= end_ns - one.arrived_ns for end_ns in ends_ns)
