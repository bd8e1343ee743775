"""Explores all orders in which messages arrive, programs go on, and processes die or leave.

A state is reached by the actions that lead to it, which are done again in a new world where the
exploration comes back to it: real memory cannot be copied. A state that was seen is left, so orders
that lead to the same one cost no more than one of them.

Four promises are checked. After each action: **who keeps an array reads what was written for it**,
**no block is free while a process reads it or a message refers to it**, and **nothing fails because
the memory of a dead process is gone**. In the end, when all have dropped what they kept: **each
request is answered, each block is free, the broker knows of no lease, and the supervisor keeps no
memory of the dead.**

Connections end before processes do. A frontend that **leaves**, as a program does that closes its
connection or whose server is replaced, keeps its arrays; so does a thread of a program whose
instance **is ended** because it hangs. Both promises about arrays go on for them.

Where there are too many orders for all of them, `walk` follows one that a seed draws.
"""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.broker.lifetimes.processes import (
    FRONTEND,
    SECOND_NS,
    FrontendProcess,
    StubProcess,
    World,
)
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError

#: What happens, and to what.
Action = tuple[Any, ...]

#: A broker drops what no request has asked for after so long.
_LONG_NS = 11 * SECOND_NS
_ROUNDS = 6
#: Worlds are in circles of references; so many are freed together.
_COLLECT_EVERY = 256


class BrokenPromiseError(AssertionError):
    """Raised with the actions that have led to it."""


def enabled(world: World, deaths: Iterable[str]) -> list[Action]:
    """Return the actions that are possible now.

    `deaths` has the names of who may die once, or "NAME leaves", or "NAME is ended".
    """
    broker = world.broker
    assert broker is not None
    actions: list[Action] = []
    for kind, router in (("stubs", broker.stubs), ("requests", broker.requests)):
        for serial, (incoming, _) in router.pipes.items():
            if incoming.messages:
                actions.append(("to broker", kind, serial))
    for process in world.processes.values():
        actions += _of_process(world, process)
    if broker.sending.release_at_ns:
        actions.append(("release", 0))
    if world.supervisor.messages:
        actions.append(("to supervisor",))
    actions += [("bury", serial) for serial in world.unburied]
    has_all = not world.unburied and world.is_whole
    for death in deaths:
        name, _, how = death.partition(" ")
        if has_all if name != "broker" else world.epoch == 1:
            actions.append(("kill", name, how))
    return actions


def _of_process(world: World, process: Any) -> Iterator[Action]:
    serial = process.serial
    for kind, pipe in _incoming(process):
        if pipe.messages:
            yield "from broker", kind, serial
    for index in range(len(process.programs)):
        if process.is_enabled(index):
            yield "step", serial, index
    if process.epoch != world.epoch:
        yield "follow", serial
    if isinstance(process, FrontendProcess) and process.has_releases:
        yield "release", serial


def perform(world: World, action: Action) -> None:
    """Do what an action says."""
    what, *rest = action
    broker = world.broker
    assert broker is not None
    if what == "to broker":
        broker.take(*rest)
    elif what == "from broker":
        kind, serial = rest
        process = world.processes[serial]
        process.take(kind, dict(_incoming(process))[kind].messages.popleft())
    elif what == "to supervisor":
        world.tell_supervisor()
    elif what == "step":
        serial, index = rest
        world.processes[serial].advance(index)
    elif what == "follow":
        world.processes[rest[0]].follow(world.epoch)
    elif what == "release":
        released: Any = world.processes.get(rest[0], broker)
        released.release()
    elif what == "bury":
        world.unburied.remove(rest[0])
        broker.remove(rest[0], world.guests.get(rest[0], 0))
        world.unload(rest[0])
        for router in (broker.stubs, broker.requests):
            router.pipes.pop(rest[0], None)
    elif rest[0] == "broker":
        world.unburied.clear()
        world.start_broker()
    else:
        _end(world, *rest)


def _end(world: World, name: str, how: str) -> None:
    process = world.process(name)
    del world.processes[process.serial]
    world.unburied.append(process.serial)
    world.supervisor.dead.append(process.serial)
    if not how:
        process.forget()
        return
    world.living_on.append(process)
    if how == "leaves":
        process.leave()
    else:
        world.guests[process.serial] = FRONTEND


def _incoming(process: Any) -> list[tuple[str, Any]]:
    """Return the connections that a process reads."""
    if isinstance(process, StubProcess):
        return [(kind, incoming) for kind, (_, incoming) in process.pipes.items()]
    return [("requests", process.incoming)]


def check(world: World) -> None:
    """Raise AssertionError if an array is not what it was, or lies in a block that is free."""
    for process in (*world.processes.values(), *world.living_on):
        for kept in process.kept:
            first = int(kept.array.flat[0])
            assert kept.is_right, f"{kept.name} finds {first} in what was {kept.seed}"
        # all that is mapped, also where no array is kept
        for segment in process.mappings._segments.values():
            for view in segment.views.values():
                if view() is not None and not view.is_own:
                    _check_used(world, view.block, f"{process.name} reads")
    assert not world.gone, world.gone
    broker = world.broker
    assert broker is not None
    assert not broker.core.blocks.forged, "a model is accused of memory that it has no access to"
    for router in (broker.stubs, broker.requests):
        for serial, (incoming, outgoing) in router.pipes.items():
            _check_messages(world, incoming.messages, f"a message of {serial} refers to")
            if serial in world.processes:
                _check_messages(world, outgoing.messages, f"a message to {serial} refers to")


def _check_messages(world: World, messages: Iterable[list[bytes]], what: str) -> None:
    for header, *bodies in messages:
        kind = type(wire.decode(header))
        # a hello repeats answers that may have arrived; then nobody asks for them again
        for body in bodies if kind is not wire.Hello else ():
            for reference in _references(body):
                _check_used(world, reference, f"{kind.__name__}: {what}")


def _references(body: bytes) -> list[wire.Reference]:
    if not body:
        return []
    try:
        return wire.references_in(wire.decode_request(body).inputs)
    except ProtocolError:
        return wire.references_in(wire.decode_response(body).outputs)


def _check_used(world: World, place: Any, what: str) -> None:
    owner = world.processes.get(place[0])
    assert owner is None or owner.arena.size(place[2]), (
        f"{what} block {place[2]} of {owner.name}, which is free"
    )


def finish(world: World) -> None:
    """Let everything come to its end; raise AssertionError if something is left."""
    for _ in range(_ROUNDS):
        _run_on(world)
        world.now_ns += _LONG_NS
        assert world.broker is not None
        world.broker.end_turn()
    _run_on(world)
    check(world)
    for process in world.processes.values():
        assert not process.programs, f"{process.name} waits for ever"
    for process in (*world.processes.values(), *world.living_on):
        process.enter()
        for kept in [*process.kept]:
            process.drop(kept)
        if isinstance(process, FrontendProcess):
            process.replies.clear()
    _run_on(world)
    if world.guests and FRONTEND in world.processes:
        perform(world, ("kill", "frontend", ""))  # it holds what its instance has read
        _run_on(world)
    if any(process.arena.used for process in world.processes.values()):
        gc.collect()
        _run_on(world)
    left = {process.name: process.arena.used for process in world.processes.values()}
    assert not any(left.values()), f"blocks that are never free: {left}"
    leases = world.broker.core.blocks.leases.count if world.broker is not None else 0
    assert not leases, f"the broker knows of {leases} leases"
    serials = world.processes.keys()
    left_over = [name for name in world.supervisor.segments if name[0] not in serials]
    assert not left_over, f"memory of the dead that is never freed: {left_over}"


def _run_on(world: World) -> None:
    while actions := [one for one in enabled(world, ()) if one[0] != "bury"] or [
        ("bury", serial) for serial in world.unburied
    ]:
        perform(world, actions[0])
        check(world)


# ------------------------------------------------------------------- states


def fingerprint(world: World) -> bytes:
    """Return what tells a state from others: messages on their way, accounts, memory, programs."""
    return hashlib.blake2b(repr([*_facts(world)]).encode(), digest_size=16).digest()


def _facts(world: World) -> Iterator[Any]:
    # two states are one only if all is alike that decides what may follow, shown or not
    broker = world.broker
    assert broker is not None
    core, sending = broker.core, broker.sending
    yield world.epoch, sorted(world.unburied), sorted(world.processes)
    supervisor = world.supervisor
    yield sorted(supervisor.segments), supervisor.dead, [*supervisor.messages]
    yield sorted(core.blocks.dead._kept.items()), sorted(core.blocks.dead.changed)
    leases = core.blocks.leases
    yield sorted((holder, sorted(held.items())) for holder, held in leases._held.items())
    yield sorted(leases._extents.items())
    yield core.outbox.leases, core.outbox.releases, bool(sending.release_at_ns)
    yield sorted(sending._leases_sent.items()), sorted(sending._leases_announced.items())
    for peer in core.peers.values():
        for request in peer.requests.values():
            yield request.key, request.state, request.stub, request.retained_blocks
    for run in core.ensembles._runs.values():
        waves = run.tensor_sets
        yield [
            (*wave.tensors.items(), *wave._leased.items(), *wave._uses.items()) for wave in waves
        ]
        yield sorted(call.step.number for call in run.calls.values())
    for router in (broker.stubs, broker.requests):
        for serial, pipes in router.pipes.items():
            yield serial, [[_readable(frames) for frames in pipe.messages] for pipe in pipes]
    for process in (*world.processes.values(), *world.living_on):
        yield from _facts_of(process)


def _facts_of(process: Any) -> Iterator[Any]:
    yield process.serial, process.epoch
    arena = process.arena
    used = arena.used  # which carries changes out
    accounts = arena.leases
    yield used, sorted(accounts._counts.items()), sorted(accounts._out.items())
    yield sorted(accounts._doubted.items()), accounts._taken, accounts._waiting
    for segment in arena.segments.values():
        yield segment.holes, [segment.memory[at : at + 8] for at in range(0, segment.size, 4096)]
    yield [(kept.seed, kept.array.size) for kept in process.kept]
    for program, awaited in process.programs:
        frame = program.gi_frame
        yield program.__name__, frame.f_lasti if frame else -1, awaited is None
    yield sorted(process.mappings.leased())
    if isinstance(process, StubProcess):
        yield sorted(process.link.pending), sorted(process.asker._open), process.memory.held()
        yield sorted(process.memory.passing._borrowed.items())
        yield [(kind, [*map(_readable, pipe.messages)]) for kind, pipe in _incoming(process)]
    else:
        yield sorted(process.payload.placed), [*process.payload.releases.blocks]
        yield sorted((own_id, len(replies)) for own_id, replies in process.replies.items())
        yield [*map(_readable, process.incoming.messages)]


def _readable(frames: list[bytes]) -> Any:
    """Return a message without the times in it."""
    message = wire.decode(frames[0])
    if type(message) is wire.Results:
        batches = [executed.batch for executed in message.executed]
        return message._replace(executed=[]), batches, frames[1:]
    return message, frames[1:]


# -------------------------------------------------------------- exploration


class Exploration:
    """All orders of a scenario, up to a number of states."""

    def __init__(
        self, make: Callable[[], World], deaths: Iterable[str] = (), max_states: int = 1 << 20
    ) -> None:
        self._make = make
        self._deaths = tuple(deaths)
        self._max_states = max_states
        self._seen: set[bytes] = set()
        self._worlds = 0
        #: Probability of a death at each step of a walk.
        self._death_share = 0.05
        #: How often everything has come to its end.
        self.ends = 0

    @property
    def is_complete(self) -> bool:
        return len(self._seen) < self._max_states

    def run(self) -> Exploration:
        """Explore. Raises BrokenPromiseError with the shortest story that it has."""
        gc.disable()
        try:
            self._visit(self._reach([]), [])
        finally:
            gc.enable()
            gc.collect()
        return self

    def _reach(self, path: list[Action]) -> World:
        self._worlds += 1
        if not self._worlds % _COLLECT_EVERY:
            gc.collect()
        world = self._make()
        for action in path:
            perform(world, action)
        return world

    def _visit(self, world: World, path: list[Action]) -> None:
        """Explore what can follow; uses the world up."""
        state = fingerprint(world)
        if state in self._seen or not self.is_complete:
            world.close()
            return
        self._seen.add(state)
        actions = enabled(world, self._deaths)
        eager = [
            one
            for one in actions
            if one[0] != "kill" and one[-1 if one[0] != "step" else 1] in world.eager
        ]
        actions = eager[:1] or actions
        if not [action for action in actions if action[0] != "kill"]:
            # deaths can follow, too; the end without them is looked at first
            self._attempt(path, lambda: finish(world))
            self.ends += 1
            world.close()
            if not actions:
                return
            world = self._reach(path)
        for number, action in enumerate(actions):
            if number:
                world = self._reach(path)
            following = [*path, action]

            def act(world: World = world, action: Action = action) -> None:
                perform(world, action)
                check(world)

            self._attempt(following, act)
            self._visit(world, following)

    def _attempt(self, path: list[Action], act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            story = "\n".join(f"  {number}. {action}" for number, action in enumerate(path, 1))
            raise BrokenPromiseError(f"{error}\nafter {len(path)} actions:\n{story}") from error

    def walk(self, seed: int) -> None:
        """Follow one order, which the seed draws. Raises BrokenPromiseError."""
        draw = random.Random(seed)
        world, path = self._reach([]), []
        while True:
            self._seen.add(fingerprint(world))
            actions = enabled(world, self._deaths)
            going_on = [one for one in actions if one[0] != "kill"]
            if not going_on:
                break
            is_death = len(actions) > len(going_on) and draw.random() < self._death_share
            action = draw.choice([one for one in actions if (one[0] == "kill") == is_death])
            path.append(action)

            def act(action: Action = action) -> None:
                perform(world, action)
                check(world)

            self._attempt(path, act)
        self._attempt(path, lambda: finish(world))
        self.ends += 1
        world.close()
