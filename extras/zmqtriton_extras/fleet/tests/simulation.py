"""Simulated ways to deal requests among many servers, of models that do not all fit on each.

    python -m zmqtriton_extras.fleet.tests.simulation [--servers 10,100,1000]

Servers load models on demand and have room for some; popularity is Zipf's. Each kind of routing
meets the same requests: the table has the share of requests that waited for a load, the loads per
second, the copies of models in memory, and latencies. Nothing of the server runs here.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import heapq
import itertools
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

#: A server may have this much more than its share before the next one in the order of the hash.
_BOUND = 1.25
#: Requests under way at which a server that has the model counts as busy, and another one loads it.
_BUSY = 8


class World(NamedTuple):
    servers: int
    models: int
    #: Models that a server has room for.
    room: int = 20
    #: Requests that a server executes at once.
    instances: int = 2
    execution_s: float = 0.1
    load_s: float = 3.0
    #: The exponent of Zipf's law.
    skew: float = 1.0
    #: The share of all instances that requests need.
    load: float = 0.5
    requests_per_server: int = 1000


class Outcome(NamedTuple):
    waited: float
    loads_per_s: float
    copies: int
    p50_ms: float
    p99_ms: float
    p999_ms: float


#: The servers that have each model.
Holders = dict[int, list["Server"]]


class Server:
    def __init__(self, world: World, holders: Holders) -> None:
        self._world, self._holders = world, holders
        #: When each loaded model is ready; the one that was used longest ago comes first.
        self.models: OrderedDict[int, float] = OrderedDict()
        #: When each instance is free.
        self._free_s = [0.0] * world.instances
        self.outstanding = 0
        self.loads = 0

    def take(self, model: int, now_s: float, execution_s: float) -> tuple[float, bool]:
        """Return when the request will be answered, and whether it waits for a load."""
        if model not in self.models:
            self.loads += 1
            if len(self.models) >= self._world.room:
                evicted, _ = self.models.popitem(last=False)
                self._holders[evicted].remove(self)
            self.models[model] = now_s + self._world.load_s
            self._holders.setdefault(model, []).append(self)
        self.models.move_to_end(model)
        ready_s = self.models[model]
        free_s = heapq.heappop(self._free_s)
        # an instance does not wait for the load: what comes meanwhile executes before
        begin_s = max(now_s, free_s)
        heapq.heappush(self._free_s, begin_s + execution_s)
        return max(begin_s, ready_s) + execution_s, ready_s > now_s


#: Chooses a server for a model.
Routing = Callable[[int], Server]


class Balancer:
    def __init__(self, world: World, chance: random.Random) -> None:
        self._holders: Holders = {}
        self.servers = [Server(world, self._holders) for _ in range(world.servers)]
        self._chance = chance
        self.outstanding = 0
        self._ring = sorted(
            (_hash(f"{number}/{point}"), number)
            for number in range(world.servers)
            for point in range(50)
        )
        self._points = [point for point, _ in self._ring]

    def least(self, model: int) -> Server:
        """The one of two that has fewer requests, as Envoy; HAProxy looks at all."""
        return self._better(self.servers)

    def _better(self, servers: Sequence[Server]) -> Server:
        a, b = self._chance.choice(servers), self._chance.choice(servers)
        return a if a.outstanding <= b.outstanding else b

    def hash(self, model: int) -> Server:
        """The first in the order of the model's hash that has not too many: bounded loads."""
        limit = math.ceil(_BOUND * (self.outstanding + 1) / len(self.servers))
        position = bisect.bisect(self._points, _hash(str(model)))
        for offset in range(len(self._ring)):
            _, number = self._ring[(position + offset) % len(self._ring)]
            if self.servers[number].outstanding < limit:
                return self.servers[number]
        raise AssertionError("there is always one below the mean")

    def loaded(self, model: int) -> Server:
        """One of those that have the model; another one if they are busy."""
        holders = self._holders.get(model)
        limit = max(_BUSY, math.ceil(_BOUND * (self.outstanding + 1) / len(self.servers)))
        if holders:
            best = self._better(holders)
            if best.outstanding < limit:
                return best
        return self.least(model)


def simulate(world: World, kind: str, seed: int = 1) -> Outcome:
    """Run one kind of routing."""
    chance, of_balancer = random.Random(seed), random.Random(seed + 1)
    balancer = Balancer(world, of_balancer)
    servers = balancer.servers
    route: Routing = getattr(balancer, kind)
    weights = [1 / (rank + 1) ** world.skew for rank in range(world.models)]
    cumulated = list(itertools.accumulate(weights))
    count = world.servers * world.requests_per_server
    rate = world.load * world.servers * world.instances / world.execution_s
    now_s, waited = 0.0, 0
    ending: list[tuple[float, int, Server]] = []
    latencies = []
    warm = count // 4
    loads_before = began_s = 0.0
    for number in range(count):
        now_s += chance.expovariate(rate)
        while ending and ending[0][0] <= now_s:
            heapq.heappop(ending)[2].outstanding -= 1
            balancer.outstanding -= 1
        model = bisect.bisect(cumulated, chance.random() * cumulated[-1])
        server = route(min(model, world.models - 1))
        end_s, is_waiting = server.take(model, now_s, chance.expovariate(1 / world.execution_s))
        server.outstanding += 1
        balancer.outstanding += 1
        heapq.heappush(ending, (end_s, number, server))
        if number == warm:
            # what fills empty servers is no part of the result
            loads_before, began_s = sum(each.loads for each in servers), now_s
        if number >= warm:
            latencies.append(end_s - now_s)
            waited += is_waiting
    latencies.sort()
    loads = sum(each.loads for each in servers) - loads_before
    return Outcome(
        waited=waited / len(latencies),
        loads_per_s=loads / (now_s - began_s),
        copies=sum(len(each.models) for each in servers),
        **{f"p{name}_ms": _quantile(latencies, q) * 1e3 for name, q in _QUANTILES.items()},
    )


_QUANTILES = {"50": 0.5, "99": 0.99, "999": 0.999}
KINDS = ("least", "hash", "loaded")


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="10,100,1000")
    parser.add_argument("--load", type=float, default=0.5)
    arguments = parser.parse_args()
    print("servers models routing  waited  loads/s  copies     p50     p99    p99.9 ms")
    for servers in map(int, arguments.servers.split(",")):
        # half of the room of all servers together, if each model is loaded once
        world = World(servers, models=10 * servers, load=arguments.load)
        for kind in KINDS:
            o = simulate(world, kind)
            print(
                f"{servers:>7} {world.models:>6} {kind:<7} {o.waited:>7.2%} {o.loads_per_s:>8.1f} "
                f"{o.copies:>7} {o.p50_ms:>7.1f} {o.p99_ms:>7.0f} {o.p999_ms:>7.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
