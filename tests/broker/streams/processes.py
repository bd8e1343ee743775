"""A gateway and stubs that stream to it, past the broker and through it, as a test delivers.

All parts are real: `Gateway` with its `Streams` and `Reader`s, `BrokerConnection` with its
`OpenStream`s and its `Publisher`, and the broker of `tests.broker.lifetimes`. In place of sockets
there are pipes, each of which keeps its order; in place of the loop of the gateway and of all
clocks there is one that the test sets. Pieces are small, or each fills a page of shared memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

from tests.broker.ensemble_world import ensemble, step
from tests.broker.lifetimes.processes import (
    TOKEN,
    BrokerProcess,
    FakeDealer,
    FakeSupervisor,
    Pipe,
    StubProcess,
    deliver_all,
)
from zmqtriton.broker import sending as sending_module
from zmqtriton.broker import service as service_module
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.signature import Admission
from zmqtriton_frontends.gateway import broker_link as broker_link_module
from zmqtriton_frontends.gateway import streams as streams_module
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.gateway.streams import Reader, StreamItem, Streams
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions
from zmqtriton_frontends.tensors.payload import Payload
from zmqtriton_stub.execution.streams import Publisher

FRONTEND, FIRST_STUB = 1, 2
UINT64 = 5
SECOND_NS = 1_000_000_000
PAGES = 1 << 20
#: Each piece has its number in all elements; a large one fills a page.
PIECE_BYTES = {"small": 8, "large": 4096}

#: A program of a model: each yield ends a step, and says what the next one waits for.
Steps = Generator[Callable[[], bool], None, None]


class Loop:
    """The loop of the gateway: what is due in a turn is done at once, timers when time passes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._soon: deque[Any] = deque()
        self.timers: list[asyncio.TimerHandle] = []
        #: What reads each descriptor.
        self.readers: dict[int, Callable[[], None]] = {}

    def time(self) -> float:
        return self._world.now_ns / SECOND_NS

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        loop: Any = self
        return asyncio.Future(loop=loop)

    def call_soon(self, call: Callable[..., object], *args: Any, context: Any = None) -> None:
        self._soon.append((call, args))

    def call_later(self, seconds: float, call: Any, *args: Any) -> asyncio.TimerHandle:
        loop: Any = self
        timer = asyncio.TimerHandle(self.time() + seconds, call, args, loop)
        self.timers.append(timer)
        return timer

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        self.timers.remove(timer)

    def add_reader(self, descriptor: int, read: Callable[[], None]) -> None:
        self.readers[descriptor] = read

    def remove_reader(self, descriptor: int) -> None:
        self.readers.pop(descriptor, None)

    remove_writer = remove_reader

    def turn(self) -> None:
        while self._soon:
            call, args = self._soon.popleft()
            call(*args)

    def ring(self) -> None:
        """Call the timers that are due."""
        for timer in [timer for timer in self.timers if timer.when() <= self.time()]:
            self.timers.remove(timer)
            timer._callback(*timer._args)  # type: ignore[attr-defined]
        self.turn()


class PipedPublisher(Publisher):
    """Publishes into pipes, and has its subscriptions of one."""

    def __init__(self) -> None:
        self._is_timed = False
        self._topics: set[bytes] = set()
        #: Subscriptions on their way to it, and what it has published for the frontend.
        self.subscriptions, self.published = Pipe(), Pipe()

    def _send(self, topic: bytes, answers: Any) -> None:
        header = wire.encode(wire.Results([outcome for outcome, _ in answers], []))
        self.published.put([header, *[body for _, body in answers]])

    def _take_subscriptions(self) -> None:
        """Do nothing: the test delivers them."""

    def subscribe(self) -> None:
        self.subscriptions.messages.popleft()
        self._topics.add(endpoints.topic(FRONTEND))


class StreamingStub(StubProcess):
    """A stub whose model sends streams."""

    def __init__(self, world: World, serial: int, name: str, program: Any) -> None:
        self.publisher = PipedPublisher()
        surroundings: Any = world
        super().__init__(surroundings, serial, name, program, None)
        self.instance.is_decoupled = True

    def take_next(self, kind: str) -> None:
        """Take the next message of a connection to the broker."""
        self.take(kind, self.pipes[kind][1].messages.popleft())


class Subscriptions:
    """The gateway's end of what stubs publish, in place of its socket."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sources: set[int] = set()

    def follow(self, source: int) -> None:
        if source not in self._sources:
            self._sources.add(source)
            self._world.stubs[source].publisher.subscriptions.put([b""])

    def read(self, until: float | None = None) -> None:
        """Do nothing: the test delivers what comes."""


class Client:
    """A client that reads a stream, one piece at a step."""

    def __init__(self, items: Any) -> None:
        self._items = items
        self._coming: Any = None
        self._awaited: asyncio.Future[Any] | None = None
        self.is_over = self.has_left = False
        self.numbers: list[int] = []
        self.error = ""

    @property
    def has_item(self) -> bool:
        return not self.is_over and (self._awaited is None or self._awaited.done())

    def read(self) -> None:
        """Go on to the next piece, or to where it has to be awaited."""
        try:
            if self._coming is None:
                self._coming = self._items.__anext__()
            self._awaited = self._coming.send(None)
        except StopIteration as here:
            self._coming = self._awaited = None
            self._take(here.value)
        except StopAsyncIteration:
            self.is_over, self._coming = True, None

    def leave(self) -> None:
        """Leave before the end, as a client whose connection ends."""
        with suppress(StopIteration, StopAsyncIteration, asyncio.CancelledError):
            if self._coming is not None:
                self._coming.throw(asyncio.CancelledError())
            self._items.aclose().send(None)
        self.is_over = self.has_left = True
        self._coming = None

    def _take(self, item: StreamItem) -> None:
        is_end = item.error is None and item.body is None
        assert is_end or not self.error, "nothing but the end comes after an error"
        if item.error is not None:
            self.error = item.error.text
        elif item.body is not None:
            [output] = item.body.outputs
            self.numbers.append(int.from_bytes(bytes(output.data[:8]), "little"))


class FrontendProcess:
    """A frontend: its gateway and its clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.loop = loop = Loop(world)
        running: Any = loop
        asyncio._set_running_loop(running)  # whose turns the test makes
        self.epoch = 1
        self.clients: list[Client] = []
        self.dealer: FakeDealer
        self.incoming: Pipe
        vars(broker_link_module)["Dealer"] = lambda _: self._dial()
        self.gateway = gateway = Gateway(Mock())
        parts: Any = gateway
        # what start() and the Bootstrap do
        parts._loop, parts._bootstrap = loop, Mock(serial=FRONTEND, token=TOKEN)
        parts._welcomed = loop.create_future()
        parts.serial = FRONTEND
        parts.payload = Payload(FRONTEND, Memory(PAGES, PAGES), Mock(), parts._broker.send)
        calls = {"tell": parts._broker.grant, "cancel": gateway.cancel}
        discard = gateway.payload.discard
        parts.streams = Streams(running, FRONTEND, "/", parts._replies, **calls, discard=discard)
        parts.streams.publishers = Subscriptions(world)
        parts._broker.begin(loop)
        parts._broker.connect(1, "/", gateway.payload.releases)
        loop.turn()

    def _dial(self) -> FakeDealer:
        """Return the connection to the broker that there is now."""
        outgoing, self.incoming = self._world.router("requests").connect(FRONTEND)
        self.dealer = FakeDealer(outgoing)
        vars(self.dealer).update(descriptor=self._world.descriptor, is_dry=False)
        return self.dealer

    def ask(self, model: str) -> None:
        """Have another client ask for a stream."""
        tensor = wire.Tensor("I", UINT64, [1], bytes(8))
        body = wire.RequestBody("", {}, ["O"], [tensor])
        options = SchedulingOptions(wire.BYTE_WINDOW)
        version: Any = Mock(generation=self._world.generations[model])
        request = CheckedRequest(version, body, Admission(0, 0), options)
        client = Client(self.gateway.stream(request))
        self.clients.append(client)
        client.read()
        self.loop.turn()

    def take(self) -> None:
        """Take the next message of the broker."""
        self.dealer.messages.append(self.incoming.messages.popleft())
        self.loop.readers[self.dealer.fileno()]()
        self.loop.turn()

    def take_published(self, stub: StreamingStub) -> None:
        header, *bodies = stub.publisher.published.messages.popleft()
        # as its socket's reader does
        self.gateway.streams._take(wire.decode(header), bodies)
        self.loop.turn()

    def follow(self, epoch: int) -> None:
        """Leave a broker that has died for the next one."""
        self.epoch = epoch
        # what has come is valid
        self.dealer.messages += self.incoming.messages
        self.incoming.messages.clear()
        parts: Any = self.gateway
        parts._change_broker(epoch)
        self.loop.turn()

    def read(self, number: int) -> None:
        self._map()
        self.clients[number].read()
        self.loop.turn()

    def leave(self, number: int) -> None:
        self.clients[number].leave()
        self.loop.turn()

    def _map(self) -> None:
        """Map what the supervisor would hand over on request."""
        supervisor, mappings = self._world.supervisor, self.gateway.payload.mappings
        for owner, segment in supervisor.segments:
            if mappings.missing([wire.Reference(owner, segment, 0, 0, 0)]):
                mappings.add(owner, segment, supervisor.open(owner, segment))


class _Clock:
    """Time as all of them have it, in place of the module."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic_ns(self) -> int:
        return self._world.now_ns

    def monotonic(self) -> float:
        return self._world.now_ns / SECOND_NS

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class World:
    """One broker after the other, a frontend, and a stub for each model."""

    #: What they wait on in place of sockets; nothing ever comes there.
    descriptor = os.eventfd(0)

    def __init__(self, models: dict[str, Any], ensembles: dict[str, str], target: str) -> None:
        """Start all, and ask for a stream of the target; `ensembles` have one model as their step.

        `models` has the programs by the models' names.
        """
        self.now_ns = SECOND_NS
        clock: Any = _Clock(self)
        for module in (service_module, sending_module, streams_module):
            vars(module)["time"] = clock
        vars(streams_module)["Reader"] = lambda arrivals: Reader(clock.monotonic, arrivals)
        vars(broker_link_module)["monotonic"] = clock.monotonic
        self.supervisor = FakeSupervisor()
        self.configs = {name: _config(name) for name in models}
        self.configs |= {name: _ensemble(name, of) for name, of in ensembles.items()}
        self.generations = {name: number for number, name in enumerate(self.configs, start=1)}
        self.serials = {name: serial for serial, name in enumerate(models, start=FIRST_STUB)}
        self.stubs: dict[int, StreamingStub] = {}
        self.epoch = 0
        self.start_broker()
        self.frontend = FrontendProcess(self)
        for name, program in models.items():
            serial = self.serials[name]
            self.stubs[serial] = StreamingStub(self, serial, name, program)
        self.deliver_all()
        self.frontend.ask(target)

    def start_broker(self) -> None:
        self.epoch += 1
        # a broker's own requests have their ids of the clock, so that those of the last one differ
        self.now_ns += 1
        surroundings: Any = self
        self.broker = broker = BrokerProcess(surroundings, self.epoch)
        core = broker.core
        for serial in (FRONTEND, *self.serials.values()):
            role = "http" if serial == FRONTEND else "stub"
            core.expect(wire.ExpectPeer(serial, TOKEN, role, str(serial), 0))
        for name, number in self.generations.items():
            core.add_generation(wire.AddGeneration(number, name, 1, json.dumps(self.configs[name])))
        for name, serial in self.serials.items():
            core.attach(wire.AttachInstance(self.generations[name], serial, name), self.now_ns)
        if self.epoch > 1:
            core.recovery.await_lease_reports()
        broker.end_turn()

    def router(self, kind: str) -> Any:
        return self.broker.requests if kind == "requests" else self.broker.stubs

    def note_error(self, text: str) -> None:
        """Do nothing: models send errors on."""

    def deliver_all(self) -> None:
        """Let all connections be made."""

        def take(kind: str, serial: int, messages: Any) -> None:
            if serial == FRONTEND:
                self.frontend.take()
            else:
                self.stubs[serial].take(kind, messages.popleft())

        deliver_all(self, take)

    def close(self) -> None:
        for stub in self.stubs.values():
            stub.forget()
        for client in self.frontend.clients:
            client.leave()
        payload = self.frontend.gateway.payload
        payload.releases.end()
        payload.mappings.close()
        self.supervisor.close()
        asyncio._set_running_loop(None)  # it has no more turns


def _config(name: str) -> dict[str, Any]:
    tensor = {"data_type": "TYPE_UINT64", "dims": [-1]}
    return {
        "name": name,
        "max_batch_size": 0,
        "input": [{"name": "I", **tensor}],
        "output": [{"name": "O", **tensor}],
        "model_transaction_policy": {"decoupled": True},
    }


def _ensemble(name: str, of: str) -> dict[str, Any]:
    scheduling = ensemble([step(of, {"I": "I"}, {"O": "O"})], name)["ensemble_scheduling"]
    return {**_config(name), "ensemble_scheduling": scheduling}
