"""One simulated run of a broker's core, with simulated arrivals, frontend, stubs and time.

The core is the code of a real broker; only its surroundings are simulated. It gets the time with
each event, so an hour takes seconds. A seed decides the load, so that two settings meet the same
requests.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from zmqtriton.sdk.broker import BrokerCore, BrokerSettings
from zmqtriton.sdk.wire import wire

_GENERATION = 1
_FRONTEND = 1
_FIRST_STUB = 2
_TOKEN = b"simulated"
_BODY = wire.encode_body(wire.RequestBody("", {}, [], []))
_NO_SETTINGS = BrokerSettings()
_EMPTY = wire.encode_body(wire.ResponseBody({}, []))
MS = 1_000_000
SECOND = 1_000_000_000


@dataclass(frozen=True)
class Cost:
    """The duration of one execute(): a constant part, and one for each inference."""

    base_ms: float
    each_ms: float = 0.0
    #: The standard deviation, as a share of the whole.
    spread: float = 0.0

    def execution_ns(self, inferences: int, chance: random.Random) -> int:
        whole = self.base_ms + self.each_ms * inferences
        if self.spread:
            whole *= max(0.0, chance.gauss(1.0, self.spread))
        return max(1, round(whole * MS))


def fit_cost(batches: Sequence[tuple[int, int, int]], spread: float = 0.0) -> Cost:
    """Fit a line through measurements: (batch size, executions, nanoseconds in all)."""
    weight = sum(count for _, count, _ in batches)
    if not weight:
        raise ValueError(
            "the statistics have no executions: send requests to the model, then save them again"
        )
    sizes = sum(size * count for size, count, _ in batches) / weight
    times = sum(total for _, _, total in batches) / weight
    variance = sum(count * (size - sizes) ** 2 for size, count, _ in batches)
    together = sum((size - sizes) * (total - times * count) for size, count, total in batches)
    each = max(0.0, together / variance) if variance else 0.0
    base = max(0.0, times - each * sizes)
    return Cost(base / MS, each / MS, spread)


@dataclass(frozen=True)
class Arrival:
    """A request: when it comes, and its position in its sequence."""

    at_ns: int
    batch: int = 1
    #: 0: of no sequence.
    sequence: int = 0
    is_first: bool = False
    is_last: bool = False


@dataclass(frozen=True)
class Pattern:
    """An open load: requests arrive whether or not earlier ones are answered."""

    rate: float
    requests: int
    #: even, poisson, or bursts of a given size
    kind: str = "poisson"
    burst: int = 1
    batch: int = 1

    def arrivals(self, chance: random.Random) -> Iterator[Arrival]:
        at_ns = 0.0
        gap_ns = SECOND / self.rate
        for number in range(self.requests):
            yield Arrival(round(at_ns), self.batch)
            if self.kind == "poisson":
                at_ns += chance.expovariate(1.0) * gap_ns
            elif (number + 1) % self.burst == 0:
                at_ns += gap_ns * self.burst


class Clients:
    """A closed load: each client sends again when it has its response."""

    def __init__(self, number: int, requests: int, batch: int = 1, length: int = 0) -> None:
        """Set up; `length` is the number of requests in a sequence, 0 for no sequences."""
        self.number = number
        self._left = requests
        self._batch = batch
        self._length = length
        self._sequences = itertools.count(1)

    def requests(self) -> Iterator[Arrival]:
        """Iterate over the requests of one client while there are any left to send."""
        while self._left > 0:
            sequence = next(self._sequences) if self._length else 0
            last = max(1, self._length) - 1
            for number in range(last + 1):
                self._left -= 1
                yield Arrival(0, self._batch, sequence, number == 0, number == last)


def from_lines(lines: Iterator[str]) -> list[Arrival]:
    """Parse recorded arrivals: each line has seconds and, optionally, a batch size.

    Raises ValueError, which names the line.
    """
    arrivals = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            batch = int(words[1]) if len(words) > 1 else 1
            at_s = float(words[0])
        except ValueError:
            raise ValueError(
                f"line {number}: '{line.strip()}' must begin with a time in seconds"
            ) from None
        if batch < 1 or not 0 <= at_s < 1e9:
            raise ValueError(
                f"line {number}: '{line.strip()}' must be a time, and a size of 1 or more"
            )
        arrivals.append(Arrival(round(at_s * SECOND), batch))
    return sorted(arrivals, key=lambda arrival: arrival.at_ns)


@dataclass
class SimulationResult:
    """The result of a run."""

    answered: int = 0
    inferences: int = 0
    #: Number of refused requests, by the text of the refusal.
    refused: Counter[str] = field(default_factory=Counter)
    latencies_ns: list[int] = field(default_factory=list)
    queued_ns: int = 0
    #: Number of executed batches, by size.
    batches: Counter[int] = field(default_factory=Counter)
    busy_ns: int = 0
    last_arrival_ns: int = 0
    end_ns: int = 0
    #: The counters of the model's placement.
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass
class _OpenRequest:
    """A request that has no answer yet."""

    arrival: Arrival
    at_ns: int
    client: Iterator[Arrival] | None


class _Stub:
    """Executes its batches one after the other."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        #: The core reads it: what has begun is not taken back.
        self.last_begun_batch = 0
        self.is_busy = False
        self.waiting: deque[list[wire.BatchedRequest]] = deque()

    def fence(self, epoch: int) -> None:
        """Do nothing: there is only one broker."""

    def may_have_begun(self, key: tuple[int, int]) -> bool:
        return True

    def begun_keys(self) -> None:
        return None

    def close(self) -> None:
        """Do nothing: there is no memory to close."""

    def take(self, works: Iterable[wire.BatchedRequest]) -> None:
        for _, batch in itertools.groupby(works, lambda work: work.batch):
            self.waiting.append(list(batch))


class SimulationRun:
    """Runs the requests of one load against one configuration."""

    def __init__(
        self,
        config: str,
        instances: Sequence[str],
        cost: Cost,
        seed: int,
        values: int = 0,
        settings: BrokerSettings = _NO_SETTINGS,
    ) -> None:
        """Set up; AFFINITY has `values` different values in requests, 0 for no value."""
        self._outcome = SimulationResult()
        self._core = BrokerCore()
        self._cost = cost
        self._chance, self._chance_of_values = random.Random(seed), random.Random(seed)
        self._values = values
        self._now_ns = 1
        #: (when, order of arrival, what happens)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ids = itertools.count(1)
        self._open_requests: dict[int, _OpenRequest] = {}
        self._core.configure(1, settings)
        self._core.add_generation(wire.AddGeneration(_GENERATION, "simulated", 1, config))
        self._core.expect(wire.ExpectPeer(_FRONTEND, _TOKEN, "http", "http", 0))
        self._core.authenticate(wire.Hello(_FRONTEND, _TOKEN, 1))
        self._stubs = {
            serial: self._start(serial, name) for serial, name in enumerate(instances, _FIRST_STUB)
        }

    def _start(self, serial: int, name: str) -> _Stub:
        stub = _Stub(serial)
        hello = wire.Hello(serial, _TOKEN, 1)
        self._core.expect(wire.ExpectPeer(serial, _TOKEN, "stub", name, 0))
        self._core.authenticate(hello)
        self._core.connected(hello, [], self._now_ns)
        self._core.attach(wire.AttachInstance(_GENERATION, serial, name), self._now_ns, stub)
        return stub

    def open(self, arrivals: Iterable[Arrival]) -> SimulationResult:
        """Run an open load."""
        self._await(iter(arrivals))
        return self._run()

    def run_closed_loop(self, clients: Clients) -> SimulationResult:
        """Run a closed load."""
        for _ in range(clients.number):
            self._ask_next(clients.requests())
        return self._run()

    def _run(self) -> SimulationResult:
        while self._events or self._open_requests:
            timer_ns = self._core.due_ns
            if self._events and (timer_ns is None or self._events[0][0] <= timer_ns):
                self._now_ns, _, event = heapq.heappop(self._events)
                event()
            elif timer_ns is not None:
                self._now_ns = max(self._now_ns, timer_ns)
            else:
                raise RuntimeError(
                    f"{len(self._open_requests)} requests unanswered: the simulation has stalled; "
                    "lower --rate"
                )
            self._core.tick(self._now_ns)
            self._deliver()
        placement = self._core.generations.schedulers[_GENERATION].placement
        self._outcome.counts = placement.counts
        self._outcome.end_ns = self._now_ns
        return self._outcome

    def _schedule(self, when_ns: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_ns, next(self._order), event))

    # ------------------------------------------------------------- clients

    def _await(self, coming: Iterator[Arrival]) -> None:
        arrival = next(coming, None)
        if arrival is not None:
            self._schedule(
                max(self._now_ns, 1 + arrival.at_ns), lambda: self._arrive(arrival, coming)
            )

    def _arrive(self, arrival: Arrival, coming: Iterator[Arrival]) -> None:
        self._ask(arrival, None)
        self._await(coming)

    def _ask_next(self, client: Iterator[Arrival]) -> None:
        arrival = next(client, None)
        if arrival is not None:
            self._schedule(self._now_ns, lambda: self._ask(arrival, client))

    def _ask(self, arrival: Arrival, client: Iterator[Arrival] | None) -> None:
        own_id = next(self._ids)
        flags = arrival.is_first * wire.SEQUENCE_START | arrival.is_last * wire.SEQUENCE_END
        fields = (own_id, _GENERATION, "", -1, flags if arrival.sequence else 0)
        affinity = 0
        if self._values:
            affinity = self._chance_of_values.randint(1, self._values)
        position = arrival.batch, 0, arrival.sequence
        row = wire.Request(*fields, 0, 0, 0, *position, placement=affinity)
        self._outcome.last_arrival_ns = self._now_ns
        self._open_requests[own_id] = _OpenRequest(arrival, self._now_ns, client)
        self._core.infer(_FRONTEND, [row], [_BODY], self._now_ns)

    def _answered(self, reply: wire.Reply) -> None:
        request = self._open_requests.pop(reply.id)
        outcome = self._outcome
        if reply.code:
            outcome.refused[reply.text] += 1
        else:
            outcome.answered += 1
            outcome.inferences += request.arrival.batch
            outcome.latencies_ns.append(self._now_ns - request.at_ns)
        if request.client is not None:
            self._ask_next(request.client)

    # --------------------------------------------------------------- stubs

    def _deliver(self) -> None:
        """Deliver the core's messages at once."""
        outbox = self._core.outbox
        works, outbox.batched_requests = outbox.batched_requests, {}
        replies, outbox.replies = outbox.replies, {}
        for serial, rows in works.items():
            self._stubs[serial].take(work for work, _ in rows)
            self._begin(self._stubs[serial])
        for reply, _ in replies.get(_FRONTEND, []):
            self._answered(reply)
        while outbox.once_delivered:
            outbox.once_delivered.pop()()

    def _begin(self, stub: _Stub) -> None:
        if stub.is_busy or not stub.waiting:
            return
        stub.is_busy = True
        works = stub.waiting.popleft()
        stub.last_begun_batch = works[0].batch
        requests = [
            self._open_requests[work.id] for work in works if work.id in self._open_requests
        ]
        size = sum(request.arrival.batch for request in requests)
        took_ns = self._cost.execution_ns(size, self._chance)
        self._outcome.batches[size] += 1
        self._outcome.busy_ns += took_ns
        self._outcome.queued_ns += sum(self._now_ns - request.at_ns for request in requests)
        self._schedule(self._now_ns + took_ns, lambda: self._end(stub, works, took_ns))

    def _end(self, stub: _Stub, works: list[wire.BatchedRequest], took_ns: int) -> None:
        stub.is_busy = False
        outcomes = [wire.Outcome(work.peer, work.id, 0, "", wire.FINAL, 0, []) for work in works]
        executed = wire.Executed(works[0].batch, 0, took_ns, 0)
        message = wire.Results(outcomes, [executed])
        self._core.results(stub.serial, message, [_EMPTY] * len(outcomes), self._now_ns)
        self._begin(stub)
