"""Seeded random runs of a broker with everything that it schedules.

Models of all kinds come, are asked, answer step by step or at once, die and go, in one server with
a rate limiter, a response cache and limits. promises.py has what must hold meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.broker.ensemble_world import ensemble, model, step, tensor
from tests.broker.scheduling.test_rate_limiter import demand
from tests.broker.simulation.promises import ExpectedModel, Invariants
from tests.broker.world import BrokerHarness, Page, request
from zmqtriton.broker.sequences.controls import FIRST_PADDING_ID
from zmqtriton.config.resources import NO_DEVICE, ResourceNeed
from zmqtriton_floor import wire
from zmqtriton_floor.routing import ALL
from zmqtriton_floor.settings.broker import (
    BrokerSettings,
    Cache,
    RateLimitResource,
    RateLimits,
    RequestLimits,
)
from zmqtriton_floor.wire import SEQUENCE_END as END
from zmqtriton_floor.wire import SEQUENCE_START as START

_IDLE_NS = 1_000_000
_STEPS_NS = {0: 10, 1: 10, 300: 10, 1_500: 10, 5_000: 10, 2 * _IDLE_NS: 1}
_RESOURCES = (
    RateLimitResource("R", 4, 0),
    RateLimitResource("S", 3, NO_DEVICE),
    RateLimitResource("T", 9, 0),
)
_KEYS = [bytes([number]) * 32 for number in range(3)]
_DECOUPLED: dict[str, Any] = {"model_transaction_policy": {"decoupled": True}}
_BOUNDED = {"default_queue_policy": {"max_queue_size": 3}}
_TIMED = {"default_queue_policy": {"default_timeout_microseconds": 2}}
_DELAYED = {"timeout_action": "DELAY", "default_timeout_microseconds": 1}
_BOTH = {"default_queue_policy": {"max_queue_size": 2, "default_timeout_microseconds": 2}}
_LEVELS = {
    "priority_levels": 3,
    "default_priority_level": 2,
    "priority_queue_policy": {"1": _DELAYED, "3": {"max_queue_size": 2}},
}
_LATE_LEVELS = {
    **_LEVELS,
    "default_queue_policy": {**_DELAYED, "allow_timeout_override": True},
    "priority_queue_policy": {"3": {"max_queue_size": 1, "default_timeout_microseconds": 1}},
}
_DIRECT: dict[str, Any] = {"direct": {}}
_PATIENT = {"direct": {"minimum_slot_utilization": 0.7, "max_queue_delay_microseconds": 2}}
_OLDEST = {"oldest": {"max_candidate_sequences": 2}}
_PREFERRING = {
    "oldest": {
        "max_candidate_sequences": 3,
        "preferred_batch_size": [2],
        "max_queue_delay_microseconds": 2,
    }
}


def _batching(**more: Any) -> dict[str, Any]:
    return {"max_batch_size": 4, "dynamic_batching": more}


def _sequences(strategy: dict[str, Any], slots: int = 3, **more: Any) -> dict[str, Any]:
    idle = {"max_sequence_idle_microseconds": str(_IDLE_NS // 1000)}
    return {"max_batch_size": slots, "sequence_batching": {**strategy, **idle, **more}}


def _steps(*names: str, batches: int = 0, max_requests: int = 0, **more: Any) -> dict[str, Any]:
    """A chain of models."""
    tensors = ["x", *"pq"[: len(names) - 1], "y"]
    steps = [
        step(name, {"I": tensors[number]}, {"O": tensors[number + 1]})
        for number, name in enumerate(names)
    ]
    config = {**ensemble(steps, **more), "max_batch_size": batches}
    config["ensemble_scheduling"]["max_inflight_requests"] = max_requests
    return config


#: One tensor is read twice, and there are two outputs.
_FORK = ensemble(
    [
        step("plain", {"I": "x"}, {"O": "p"}),
        step("plain", {"I": "p"}, {"O": "q"}),
        step("plain", {"I": "p"}, {"O": "y"}),
        step("plain", {"I": "q"}, {"O": "z"}),
    ],
    outputs="yz",
)
_NESTED = ensemble(
    [step("mixed", {"x": "x"}, {"y": "t"}), step("fork", {"x": "t"}, {"y": "y"})],
)
#: What a generation of each name may be.
MODEL_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "plain": [
        {},
        {"parameters": {"MAX_REQUESTS": {"string_value": "3"}}},
        {"parameters": {"max_execution_seconds": {"string_value": "0.000001"}}},
    ],
    "wide": [{"parameters": {"MAX_INFLIGHT": {"string_value": "2"}}}],
    "one": [{"max_batch_size": 4}],
    "dynamic": [
        _batching(),
        _batching(preferred_batch_size=[2, 3]),
        _batching(preferred_batch_size=[3], max_queue_delay_microseconds=1),
        _batching(**_LEVELS),
        _batching(**_LATE_LEVELS),
        _batching(preserve_ordering=True, **_BOUNDED),
        _batching(preserve_ordering=True, preferred_batch_size=[3], **_BOTH),
        _batching(max_queue_delay_microseconds=2, **_TIMED),
    ],
    "many": [_DECOUPLED, {**_DECOUPLED, **_batching()}],
    "leaf": [{}],
    "cached": [{"response_cache": {"enable": True}}],
    "direct": [_sequences(_DIRECT), _sequences(_DIRECT, 1), _sequences(_PATIENT)],
    "oldest": [_sequences(_OLDEST), _sequences(_PREFERRING, 2)],
    "iterative": [
        _sequences(_DIRECT, iterative_sequence=True),
        _sequences(_OLDEST, iterative_sequence=True),
    ],
    "row": [_steps("dynamic", "one", batches=4)],
    "stream": [
        _steps("many", "leaf", max_requests=2, **_DECOUPLED),
        _steps("many", "leaf", **_DECOUPLED),
    ],
    "mixed": [_steps("plain", "cached"), _steps("cached", "wide", "plain")],
    "fork": [_FORK],
    "nested": [_NESTED],
    "stateful": [_steps("direct", batches=1), _steps("oldest", batches=1)],
}


class RandomRun:
    def __init__(
        self,
        seed: int,
        pace: str = "",
        names: Sequence[str] = sorted(MODEL_VARIANTS),
        sharing: float = 0.3,
    ) -> None:
        """Set up; with a pace, some models begin so many executions per second and no more.

        Models share resources with the probability `sharing`.
        """
        self.random = random.Random(seed)
        self.sharing = sharing
        self.names = names
        self.pace = pace
        self.paced = self.random.sample(names, 4) if pace else []
        self.settings = self._settings()
        self.world = CheckedHarness()
        self.world.core.configure(1, self.settings, lambda: self.world.now)
        self.promises = Invariants(self.world, self.settings)
        self.world.promises = self.promises
        self.numbers = iter(range(1, 1_000_000))
        self.frontends: list[int] = []
        self.stubs: dict[int, int] = {}
        self.pages: dict[int, Page] = {}
        #: What each model was the last time, and the models that have two versions.
        self.variants: dict[str, dict[str, Any]] = {}
        self.divided: set[str] = set()
        #: Of each stub and route of a decoupled model: how many responses it has sent.
        self.sent: dict[tuple[int, wire.RequestKey], int] = {}
        for name in self.random.sample(names, min(5, len(names))):
            self.load(name)
        self.new_frontend()
        self.moves = self._moves()

    def _settings(self) -> BrokerSettings:
        cache = Cache("00", self.random.choice([300, 100_000]), 1_000_000)
        rate = RateLimits()
        if self.random.random() < self.sharing:
            rate = RateLimits(True, self.random.choice([(), _RESOURCES]))
        limits = RequestLimits(
            max_requests=12 if self.random.random() < 0.2 else 0,
            max_model_requests=5 if self.random.random() < 0.2 else 0,
        )
        return BrokerSettings(cache=cache, rate=rate, limits=limits)

    def _moves(self) -> dict[Any, float]:
        return {
            self.send_requests: 12,
            self.finish_random_batch: 14,
            self.return_batch: 4,
            self.answer_late: 6,
            self.send_partial_response: 2,
            self.cancel: 2,
            self.new_stub: 3,
            self.kill_stub: self.random.choice([0, 0.5, 1.5]),
            self.drain_stub: 0.7,
            self.kill_frontend: 0.3,
            self.new_frontend: 0.5,
            self.load_any: 1,
            self.unload: 1,
            self.divide: 0.7,
        }

    # ------------------------------------------------------------- models

    def load_any(self) -> None:
        self.load(self.random.choice(self.names))

    def load(self, name: str, version: int = 1, variant: dict[str, Any] | None = None) -> None:
        if len(self.promises.live_models) > 12:
            return
        number = next(self.numbers)
        more = variant or self.random.choice(MODEL_VARIANTS[name])
        self.variants[name] = more
        config = more if "ensemble_scheduling" in more else {**model(name, dims=[4]), **more}
        config = {**config, "name": name}
        if name in self.paced and "ensemble_scheduling" not in config:
            limit = {"max_executions_per_second": {"string_value": self.pace}}
            config["parameters"] = {**config.get("parameters", {}), **limit}
        self.world.add_generation(number, version, config)
        self.world.drain_outbox()
        self.promises.live_models[number] = served = ExpectedModel(number, config)
        served.is_limited = self.settings.rate.is_on and self.random.random() < 0.8
        if not served.is_ensemble:
            for _ in range(self.random.randint(0, 2)):
                self.new_stub_of(number)

    def divide(self) -> None:
        """Try a second version of a model, give it another share, or end that."""
        live = self.promises.live_models.values()
        name = self.random.choice(sorted({served.name for served in live}))
        split = wire.TrafficSplit(name, 1, 2, self.random.choice([0, 1_000, 5_000, ALL]))
        if name not in self.divided:
            self.divided.add(name)
            self.world.core.generations.divide(split)
            self.load(name, 2, self.variants[name])
        elif self.random.random() < 0.3:
            self.divided.discard(name)
            self.world.core.generations.divide(wire.TrafficSplit(name, 0, 0, 0))
        else:
            self.world.core.generations.divide(split)

    def unload(self) -> None:
        if len(self.promises.live_models) > 4:
            number = self.random.choice(sorted(self.promises.live_models))
            self.promises.retire_model(number)
            self.world.core.retire(wire.Retire(number))
            if self.random.random() < 0.5:
                self.world.core.remove(wire.RemoveGeneration(number, "unloaded"), self.world.now)
                for serial in [s for s, g in self.stubs.items() if g == number]:
                    self._forget_stub(serial)
            self.world.drain_outbox()

    def new_stub(self) -> None:
        models = [n for n, served in self.promises.live_models.items() if not served.is_ensemble]
        if models and len(self.stubs) < 10:
            self.new_stub_of(self.random.choice(models))

    def new_stub_of(self, generation: int) -> None:
        serial = next(self.numbers)
        text = ""
        if self.promises.live_models[generation].is_limited:
            needs = {name: self.random.randint(1, 3) for name in "RS" if self.random.random() < 0.6}
            text = demand(self.random.randint(1, 3), **needs)
        self.stubs[serial] = generation
        self.pages[serial] = Page()
        self.promises.needs[serial] = ResourceNeed.from_json(text) if text else ResourceNeed({}, 1)
        self.world.add_stub(serial, generation, self.pages[serial], text)

    def kill_stub(self) -> None:
        if self.stubs:
            serial = self.random.choice(sorted(self.stubs))
            numbers = [work.batch for work in self.world.batched_requests.get(serial, [])]
            # What was sent ahead and not begun will be executed by another one.
            begun = self.random.choice(numbers) if numbers else 0
            self._kill(serial, begun)

    def _kill(self, serial: int, begun: int) -> None:
        self.pages[serial].last_begun_batch = begun
        self.promises.record_stub_death(serial, begun)
        self._forget_stub(serial)
        self.world.kill_peer(serial)

    def drain_stub(self) -> None:
        """Have a stub leave, and another one come in its place; sequences would be lost with it."""
        plain = {n for n, served in self.promises.live_models.items() if not served.is_sequential}
        meant = [s for s, g in self.stubs.items() if g in plain and s not in self.promises.draining]
        if meant:
            serial = self.random.choice(sorted(meant))
            self.promises.draining.add(serial)
            self.world.retire(self.stubs[serial], serial)

    def _end_stubs(self) -> None:
        """End those that the broker says are drained or overdue; others come in their places."""
        for message in self.world.supervisor_messages:
            kind, serial = type(message), getattr(message, "serial", 0)
            generation = self.stubs.get(serial)
            if kind is wire.Drained and serial in self.promises.draining:
                late = [work for stub, work in self.promises.owed if stub == serial]
                works = self.world.batched_requests.get(serial, [])
                assert not [*late, *works], "it had something to answer"
                self._forget_stub(serial)
                self.world.kill_peer(serial, "exited with status 0")
            elif kind is wire.ExecutionOverdue and serial in self.stubs:
                works = self.world.batched_requests.get(serial, [])
                self._kill(serial, works[0].batch if works else 0)
            if serial not in self.stubs and generation in self.promises.live_models:
                self.new_stub_of(generation)

    def _forget_stub(self, serial: int) -> None:
        self.promises.owed = [one for one in self.promises.owed if one[0] != serial]
        self.promises.draining.discard(serial)
        del self.stubs[serial]
        self.promises.needs.pop(serial)

    # ------------------------------------------------------------ clients

    def new_frontend(self) -> None:
        if len(self.frontends) < 3:
            serial = next(self.numbers)
            self.world.add_frontend(serial)
            self.frontends.append(serial)

    def kill_frontend(self) -> None:
        if len(self.frontends) > 1:
            peer = self.frontends.pop(self.random.randrange(len(self.frontends)))
            self.promises.remove_frontend(peer)
            self.world.kill_peer(peer)

    def send_requests(self) -> None:
        peer = self.random.choice(self.frontends)
        served = self.promises.live_models[self.random.choice(sorted(self.promises.live_models))]
        if served.is_sequential:  # of which a client sees one generation after the other
            served = [one for one in self.promises.live_models.values() if one.name == served.name][
                -1
            ]
        rows = [self._random_request(served) for _ in range(self.random.randint(1, 4))]
        rows_of_batch = served.max_batch_size > 0
        name = "x" if served.is_ensemble else "I"
        for row in rows:
            self.promises.record_request(peer, row, self.world.now)
        bodies = [
            wire.encode_body(
                wire.RequestBody(
                    "", {}, [], [tensor(name, shape=[row.batch_size, 4] if rows_of_batch else [4])]
                )
            )
            for row in rows
        ]
        self.world.core.infer(peer, rows, bodies, self.world.now)
        self.promises.update_models()
        self.world.drain_outbox()

    def _random_request(self, served: ExpectedModel) -> wire.Request:
        chance = self.random
        fields: dict[str, Any] = {"priority": chance.randint(0, 4)}
        fields["timeout_us"] = chance.choice([0, 0, 0, 1])
        if chance.random() < 0.2:
            fields["deadline_ns"] = self.world.now + chance.randint(1, 3_000)
        if served.is_sequential or served.name == "stateful":
            own = [1, 2, 3, 4, "a", "b"]
            fields["correlation"] = chance.choice(own if served.is_sequential else [5, "c"])
            fields["batch_key"] = chance.choice([0, 0, 0, 7])
            fields["flags"] = chance.choice([0, 0, 0, 0, START, START, END, START | END])
        elif served.max_batch_size and not served.is_iterative:
            fields |= {
                "batch_size": chance.choice([1, 1, 2, 3]),
                "batch_key": chance.choice([0, 7]),
            }
        if not served.max_batch_size:
            fields["batch_size"] = 0
        if served.name == "cached":
            fields["cache_key"] = chance.choice(_KEYS)
        return request(next(self.numbers), served.number, **fields)

    def cancel(self) -> None:
        waiting = sorted(self.promises.open_requests)
        if waiting:
            peer, own_id = self.random.choice(waiting)
            self.world.cancel(peer, own_id)

    # -------------------------------------------------------------- stubs

    def busy_stubs(self) -> list[int]:
        return [serial for serial in self.stubs if self.world.batched_requests.get(serial)]

    def finish_random_batch(self) -> None:
        """A stub is through with its oldest batch."""
        busy = self.busy_stubs()
        if busy:
            self.finish_batch(self.random.choice(busy), self.random.random() < 0.3)

    def return_batch(self) -> None:
        """execute() of a stub returns, and the answers come later."""
        # Who waits for the answer to the same question waits for what is late.
        at_once = {"iterative", "cached"}
        models = {stub: self.promises.model_of(number) for stub, number in self.stubs.items()}
        busy = [stub for stub in self.busy_stubs() if models[stub].name not in at_once]
        if busy:
            serial = self.random.choice(busy)
            batch = self.world.take_batch(serial)
            self.promises.owed += [(serial, work) for work in batch]
            self.world.send_results(serial, executed=[wire.Executed(batch[0].batch, 1, 2, 3)])

    def answer_late(self) -> None:
        if owed := self.promises.owed:
            serial, work = owed.pop(self.random.randrange(len(owed)))
            served = self.promises.model_of(self.stubs[serial])
            outcome, body = self._outcome(serial, served, work)
            self.promises.record_execution(serial, [work], [work])
            self.world.send_results(serial, outcome, body=body)

    def finish_batch(self, serial: int, goes_on: bool) -> None:
        """With goes_on, some of an iterative model's are to be executed again."""
        batch = self.world.take_batch(serial)
        served = self.promises.model_of(self.stubs[serial])
        is_again = served.is_iterative and goes_on
        again = [
            w for w in batch if is_again and w.id < FIRST_PADDING_ID and self.random.random() < 0.7
        ]
        outcomes, bodies = [], []
        for work in batch:
            if work not in again:
                outcome, body = self._outcome(serial, served, work)
                outcomes.append(outcome)
                bodies.append(body)
        self.promises.record_execution(serial, batch, [w for w in batch if w not in again])
        routes = [wire.RequestKey(work.peer, work.id) for work in again]
        message = wire.Results(outcomes, [wire.Executed(batch[0].batch, 1, 2, 3)], routes)
        self.world.core.results(serial, message, bodies, self.world.now)
        self.world.drain_outbox()

    def _outcome(
        self, serial: int, served: ExpectedModel, work: wire.BatchedRequest
    ) -> tuple[wire.Outcome, bytes]:
        route = wire.RequestKey(work.peer, work.id)
        sent = self.sent.pop((serial, route), 0)
        if served.is_decoupled:
            return wire.Outcome(*route, 0, "", wire.FINAL, sent), b""
        if self.random.random() < 0.15:
            return wire.Outcome(*route, 2, "no luck", wire.FINAL), b""
        body, blocks = self._response(serial, served, work)
        self.promises.record_response(route, body)
        return wire.Outcome(*route, 0, "", wire.FINAL, 0, blocks), body

    def _response(
        self, serial: int, served: ExpectedModel, work: wire.BatchedRequest
    ) -> tuple[bytes, list[wire.Block]]:
        rows = self.promises.rows_of(serial, work)
        shape = [rows, 4] if served.max_batch_size else [4]
        if self.random.random() < 0.5:
            data: Any = next(self.numbers).to_bytes(16 * max(1, rows), "little")
            blocks = []
        else:
            blocks = [wire.Block(serial, 1, next(self.numbers))]
            data = wire.Reference(*blocks[0], 0, 16 * max(1, rows))
            self.promises.leased_blocks[blocks[0]] += 1
        return wire.encode_body(wire.ResponseBody({}, [tensor("O", data, shape)])), blocks

    def send_partial_response(self) -> None:
        """A response of a decoupled model that is not the last; steps of ensembles get them."""
        candidates = [
            (serial, work)
            for serial in self.busy_stubs()
            if self.promises.model_of(self.stubs[serial]).is_decoupled
            for work in self.world.batched_requests[serial]
            if work.peer == 0 and work.batch == self.world.batched_requests[serial][0].batch
        ]
        if candidates:
            serial, work = self.random.choice(candidates)
            served = self.promises.model_of(self.stubs[serial])
            route = wire.RequestKey(work.peer, work.id)
            number = self.sent.get((serial, route), 0)
            self.sent[serial, route] = number + 1
            body, blocks = self._response(serial, served, work)
            outcome = wire.Outcome(*route, 0, "", 0, number, blocks)
            self.world.send_results(serial, outcome, body=body)

    # ---------------------------------------------------------------- run

    def run(self, steps: int) -> None:
        moves, weights = list(self.moves), list(self.moves.values())
        for _ in range(steps):
            [move] = self.random.choices(moves, weights)
            move()
            self._end_stubs()
            self.promises.check()
            [passed_ns] = self.random.choices(list(_STEPS_NS), list(_STEPS_NS.values()))
            self.world.tick(passed_ns)
            self.promises.check()

    def run_to_end(self) -> None:
        """Everything that can be executed is; the rest goes with its model."""
        looks = 0
        while looks < 20:
            self.answer_late()
            busy = self.busy_stubs()
            looks = 0 if busy or self.promises.owed else looks + 1
            if busy:
                self.finish_batch(self.random.choice(busy), False)
            self._end_stubs()
            self.world.tick(5_000 if busy else _IDLE_NS)
            self.promises.check()
        self.promises.check_sequences()
        self.world.remove_all()
        self.promises.check_end()
        for peer in self.frontends:
            self.world.kill_peer(peer)
        self.promises.check_memory(set(self.stubs))


class CheckedHarness(BrokerHarness):
    """A harness that checks what is dispatched when it leaves."""

    promises: Invariants | None = None

    def _empty_outbox(self) -> None:
        works = {
            serial: [work for work, _ in rows if not work.flags & wire.SEQUENCE_OVER]
            for serial, rows in self.core.outbox.batched_requests.items()
        }
        if self.promises is not None:
            self.promises.check_replies(self.core.outbox.replies)
            self.promises.check_dispatched(works)
        super()._empty_outbox()
        for serial in works:
            kept = [
                work
                for work in self.batched_requests[serial]
                if not work.flags & wire.SEQUENCE_OVER
            ]
            self.batched_requests[serial] = kept
