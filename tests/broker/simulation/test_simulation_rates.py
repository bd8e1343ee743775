"""Random lives of models that share resources, seeded: never more than there is, never idle."""

from __future__ import annotations

import json
import random

import pytest

from tests.broker.scheduling.test_rate_limiter import demand
from tests.broker.world import BrokerHarness, Page, request
from zmqtriton.config.resources import ResourceKey, ResourceNeed, ResourcePool
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import BrokerSettings, RateLimitResource, RateLimits

pytestmark = pytest.mark.slow

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
        self.world.core.add_generation(
            wire.AddGeneration(number, f"m{number}", 1, json.dumps({"name": f"m{number}"}))
        )
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
            self.world.core.remove(wire.RemoveGeneration(generation, "unloaded"), self.world.now)
            self.world.drain_outbox()

    def run(self, steps: int) -> None:
        moves = [self.ask] * 6 + [self.answer] * 8 + [self.cancel, self.kill]
        for step in range(steps):
            self.random.choice(moves)()
            if not step % 20:
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
