"""Explores the orders in which pieces, grants, deaths of the broker and time come to streams.

A state is reached by the actions that lead to it, which are done again in a new world. Those with
the fewest actions come first, so the first broken promise has the shortest story. A state that was
seen is left.

**Each stream ends, once, soon after its last piece: with all of its pieces in their order, or with
an error. Then its model knows of its end, too, and no model waits for ever.** Time passes when
nothing else can happen: what lives delivers its messages in less than a second.
"""

from __future__ import annotations

import gc
import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.broker.streams.processes import SECOND_NS, World
from zmqtriton.broker.requests.recovery import LEFTOVER_NS
from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.streams import GAP_S, LATE_S

#: What happens, and to what.
Action = tuple[Any, ...]

#: Seconds after the last other action in which all streams have to end: the longest wait for a
#: piece, or for a client that has left while there was no broker to tell, and a few to tell it.
WITHIN_S = max(GAP_S, LATE_S, LEFTOVER_NS / SECOND_NS) + 3
#: Share of deaths, and of clients that leave, in the steps of a walk.
_RARE = 0.07
_TIME, _KILL = ("time",), ("kill",)
#: How often time passes in a story before everything is let come to its end.
_MAX_RESTS = 2
#: Worlds are in circles of references; so many are freed together.
_COLLECT_EVERY = 256


class BrokenPromiseError(AssertionError):
    """Raised with the actions that have led to it."""


def enabled(world: World, deaths: int) -> list[Action]:
    """Return the actions that are possible now, with time if there are no others.

    `deaths` is the number of brokers that may die; with any, clients may leave, too.
    """
    actions = [*_deliveries(world)]
    for serial, stub in world.stubs.items():
        actions += [("step", serial, n) for n in range(len(stub.programs)) if stub.is_enabled(n)]
        actions += [("stub follows", serial)] * (stub.epoch != world.epoch)
    frontend = world.frontend
    actions += [("read", n) for n, client in enumerate(frontend.clients) if client.has_item]
    actions += [("frontend follows",)] * (frontend.epoch != world.epoch)
    if not actions and (frontend.loop.timers or _broker_due_ns(world)):
        actions.append(_TIME)
    if world.epoch <= deaths:
        actions.append(_KILL)
    if deaths:
        actions += [("leave", n) for n, client in enumerate(frontend.clients) if not client.is_over]
    return actions


def _deliveries(world: World) -> Iterator[Action]:
    for kind, router in (("stubs", world.broker.stubs), ("requests", world.broker.requests)):
        for serial, (incoming, _) in router.pipes.items():
            if incoming.messages:
                yield "to broker", kind, serial
    for serial, stub in world.stubs.items():
        for kind, (_, incoming) in stub.pipes.items():
            if incoming.messages:
                yield "to stub", kind, serial
        if stub.publisher.published.messages:
            yield "past the broker", serial
        if stub.publisher.subscriptions.messages:
            yield "subscribed", serial
    if world.frontend.incoming.messages:
        yield ("to frontend",)


def _broker_due_ns(world: World) -> int:
    return world.broker.core.due_ns or world.broker.sending.release_at_ns or 0


def perform(world: World, action: Action) -> None:
    """Do what an action says."""
    what, *rest = action
    frontend = world.frontend
    acts: dict[str, Callable[..., object]] = {
        "to broker": lambda kind, serial: world.broker.take(kind, serial),
        "to stub": lambda kind, serial: world.stubs[serial].take_next(kind),
        "past the broker": lambda serial: frontend.take_published(world.stubs[serial]),
        "subscribed": lambda serial: world.stubs[serial].publisher.subscribe(),
        "step": lambda serial, index: world.stubs[serial].advance(index),
        "stub follows": lambda serial: world.stubs[serial].follow(world.epoch),
        "to frontend": frontend.take,
        "read": frontend.read,
        "leave": frontend.leave,
        "frontend follows": lambda: frontend.follow(world.epoch),
        "kill": world.start_broker,
        "time": lambda: _let_pass(world),
    }
    acts[what](*rest)


def _let_pass(world: World) -> None:
    """Let time pass to what is due next."""
    loop = world.frontend.loop
    due = [int(timer.when() * SECOND_NS) + 1 for timer in loop.timers]
    due += [due_ns for due_ns in [_broker_due_ns(world)] if due_ns]
    world.now_ns = max(world.now_ns, min(due))
    loop.ring()
    world.broker.end_turn()


def check(world: World, pieces: int) -> None:
    """Raise AssertionError if a client has read what it must not, or without a death too little."""
    for client in world.frontend.clients:
        assert client.numbers == [*range(len(client.numbers))], f"out of order: {client.numbers}"
        is_excused = client.has_left or (client.error and world.epoch > 1)
        assert not client.is_over or is_excused or len(client.numbers) == pieces, (
            f"cut: {client.numbers}, '{client.error}'"
        )


def finish(world: World, pieces: int, path: list[Action]) -> None:
    """Let everything come to its end; raise AssertionError if something does not.

    What is done is added to the path.
    """
    until_ns = world.now_ns + int(WITHIN_S * SECOND_NS)
    while (actions := enabled(world, 0)) and world.now_ns <= until_ns:
        path.append(actions[0])
        perform(world, actions[0])
        check(world, pieces)
    for number, client in enumerate(world.frontend.clients):
        assert client.is_over, f"stream {number} never ends: {client.numbers} were read"
    for stub in world.stubs.values():
        assert not stub.programs, f"the model {stub.name} waits for ever"
        assert not stub.link.pending, f"{stub.name} never ends a stream"


# ------------------------------------------------------------------- states


def fingerprint(world: World) -> bytes:
    """Return what tells a state from others."""
    return hashlib.blake2b(repr([*_facts(world)]).encode(), digest_size=16).digest()


def _facts(world: World) -> Iterator[Any]:
    # two states are one only if all is alike that decides what may follow, shown or not
    core, frontend = world.broker.core, world.frontend
    yield world.epoch, frontend.epoch, len(frontend.loop.timers)
    yield core.outbox.leases, core.outbox.releases, bool(world.broker.sending.release_at_ns)
    yield sorted(core.recovery._received.items()), sorted(core.recovery._early_outcomes)
    for peer in core.peers.values():
        for request in peer.requests.values():
            yield request.key, request.state, request.stub, request.is_cancelled
    for router in (world.broker.stubs, world.broker.requests):
        for serial, pipes in router.pipes.items():
            yield serial, [[_readable(frames) for frames in pipe.messages] for pipe in pipes]
    for stub in world.stubs.values():
        yield from _facts_of_stub(stub)
    gateway: Any = frontend.gateway
    for client in frontend.clients:
        yield client.numbers, client.error, client.is_over, client.has_item
    for stream in sorted(gateway._streams, key=lambda stream: stream.own_id):
        reader: Any = stream.reader
        yield [
            (name, value)
            for name, value in sorted(vars(reader).items())
            if name not in ("_clock", "arrivals", "deadline", "_told_s")
        ]
        yield reader.deadline is not None, reader.arrivals.unread, stream.granted
    yield sorted(gateway._replies), [*map(_readable, map(list, frontend.incoming.messages))]
    yield len(gateway.streams._old), len(gateway.streams._ending)


def _facts_of_stub(stub: Any) -> Iterator[Any]:
    # likewise
    yield stub.serial, stub.epoch, stub.publisher._topics, len(stub.link.line.outgoing)
    yield [[_published(f) for f in stub.publisher.published.messages]]
    yield len(stub.publisher.subscriptions.messages)
    for stream in stub.link.pending.values():
        yield stream.route, stream._number, stream._taken, len(stream._buffer), [*stream._out]
        yield stream.is_cancelled, stream.is_answered, stream._is_closed, stream._has_lost
    for program, awaited in stub.programs:
        frame = program.gi_frame
        yield program.__name__, frame.f_lasti if frame else -1, awaited is None
        yield frame.f_locals.get("number") if frame else None
    for call in stub.asker._open.values():
        yield call.received, call.taken, call.granted, call.is_dropped, call.inbox.qsize()
    for pipes in stub.pipes.values():
        yield [[_readable(frames) for frames in pipe.messages] for pipe in pipes]
    yield stub.arena.used


def _published(frames: list[bytes]) -> Any:
    return [outcome.number for outcome in wire.decode(frames[0]).outcomes]


def _readable(frames: list[bytes]) -> Any:
    """Return a message without the times in it."""
    message = wire.decode(frames[0])
    if type(message) is wire.Results:
        return message.outcomes, [executed.batch for executed in message.executed]
    if type(message) is wire.Infer:
        return [row._replace(deadline_ns=0) for row in message.requests]
    return message


# -------------------------------------------------------------- exploration


class Exploration:
    """The orders of a scenario, those with the fewest actions first, up to a number of states."""

    def __init__(
        self, make: Callable[[], World], pieces: int, deaths: int, max_states: int = 1 << 20
    ) -> None:
        self._make = make
        self._pieces = pieces
        self._deaths = deaths
        self._max_states = max_states
        self._worlds = 0
        #: How often everything has come to its end.
        self.ends = 0
        self.states = 0

    def run(self) -> Exploration:
        """Explore. Raises BrokenPromiseError with the shortest story."""
        seen: set[bytes] = set()
        waiting: deque[list[Action]] = deque([[]])
        while waiting and self.states < self._max_states:
            path = waiting.popleft()
            with self._world() as world:
                self._play(world, path)
                state = fingerprint(world)
                if state in seen:
                    continue
                seen.add(state)
                self.states += 1
                has_rested = path.count(_TIME) >= _MAX_RESTS
                actions = [
                    a for a in enabled(world, self._deaths) if not (has_rested and a == _TIME)
                ]
                waiting.extend([*path, action] for action in actions)
                # at least one order from here to the end
                self._end(world, path)
        return self

    def walk(self, seed: int) -> None:
        """Follow one order, which the seed draws. Raises BrokenPromiseError."""
        draw = random.Random(seed)
        path: list[Action] = []
        with self._world() as world:
            while going_on := [one for one in enabled(world, 0) if one != _TIME]:
                rare = [a for a in enabled(world, self._deaths) if a[0] in ("kill", "leave")]
                path.append(draw.choice(rare if rare and draw.random() < _RARE else going_on))
                with _story_of(path):
                    perform(world, path[-1])
                    check(world, self._pieces)
            self._end(world, path)

    @contextmanager
    def _world(self) -> Iterator[World]:
        self._worlds += 1
        if not self._worlds % _COLLECT_EVERY:
            gc.collect()
        world = self._make()
        try:
            yield world
        finally:
            world.close()

    def _play(self, world: World, path: list[Action]) -> None:
        for number, action in enumerate(path, 1):
            with _story_of(path[:number]):
                perform(world, action)
                check(world, self._pieces)

    def _end(self, world: World, path: list[Action]) -> None:
        whole = [*path]
        with _story_of(whole):
            finish(world, self._pieces, whole)
        self.ends += 1


@contextmanager
def _story_of(path: list[Action]) -> Iterator[None]:
    """Tell with an error of the block what has led to it, up to where only time passes."""
    try:
        yield
    except Exception as error:
        rests = path[::-1]
        while rests[:1] == [_TIME]:
            del rests[0]
        story = "\n".join(f"  {number}. {action}" for number, action in enumerate(rests[::-1], 1))
        raise BrokenPromiseError(f"{error}\nafter {len(rests)} actions:\n{story}") from error
