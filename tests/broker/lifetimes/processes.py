"""The processes that share memory, with their real accounts, over connections that a test delivers.

Broker, stubs and frontend are the real parts: `BrokerService`, `BrokerCore` and `PeerSending`;
`StubCore` and `TensorMemory`; `Payload`. Messages are encoded
and decoded as on a socket. Each connection keeps its order, and a message arrives when the test
says so. Segments are real memory, so that what a process reads there is what is there.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np

from tests.broker.ensemble_world import ensemble, step
from zmqtriton.broker import sending as sending_module
from zmqtriton.broker import service as service_module
from zmqtriton.broker.core import BrokerCore
from zmqtriton.broker.idle_checks import IdleChecks
from zmqtriton.broker.sending import PeerRouter, PeerSending
from zmqtriton.broker.service import BrokerService, Hellos
from zmqtriton_floor import wire
from zmqtriton_floor.arena import PAGE, Arena, seal_size
from zmqtriton_floor.errors import MEMORY_GONE
from zmqtriton_floor.execution_progress import ProgressView
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.signature import Admission
from zmqtriton_floor.wire import Reference
from zmqtriton_frontends.gateway.broker_link import Unanswered, resend_messages
from zmqtriton_frontends.inference.admission import CheckedRequest, SchedulingOptions
from zmqtriton_frontends.tensors.payload import KeptBlocks, Payload
from zmqtriton_frontends.tensors.references import PlacedBody
from zmqtriton_stub import instance as this_process
from zmqtriton_stub.api import bls, pb_utils
from zmqtriton_stub.broker.line import BrokerLine
from zmqtriton_stub.core import StubCore
from zmqtriton_stub.execution.warmup import Warmup
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.memory.tensor_memory import TensorMemory
from zmqtriton_stub.model import PythonModel
from zmqtriton_stub.watch import Watch

UINT64 = 5
#: Elements of a tensor that fills a block of one page.
COUNT = PAGE // 8
TOKEN = b"t" * 16
#: A new arena has room for so many blocks, and gets no more.
BLOCKS = 8
FRONTEND = 1
SECOND_NS = 1_000_000_000

Frames = list[bytes]
#: A program of a model or a client: each yield ends a step, and says what the next one waits for.
Steps = Generator[Callable[[], bool] | None, None, None]


class Pipe:
    """One direction of a connection: its frames, in their order."""

    def __init__(self) -> None:
        self.messages: deque[Frames] = deque()

    def put(self, frames: Sequence[bytes]) -> None:
        if frames:
            self.messages.append([bytes(frame) for frame in frames])


class FakeDealer:
    """A process's end of a connection to the broker, in place of a socket."""

    is_open = is_writable = True
    is_blocked = is_dry = False
    descriptor = 0

    def __init__(self, outgoing: Pipe) -> None:
        self.messages: deque[Frames] = deque()
        self.put = outgoing.put

    def flush(self) -> int:
        return 0

    read = flush  # what comes is put into `messages`

    def finish(self) -> None:
        """Leave nothing behind: what was put has left."""

    def has_input(self) -> bool:
        return bool(self.messages)

    def fileno(self) -> int:
        return self.descriptor

    def close(self, within_ms: int = 0) -> None:
        self.is_open = False

    def abandon(self) -> None:
        self.close()


class FakeRouter(PeerRouter):
    """The broker's end of all connections of a kind."""

    def __init__(self) -> None:
        self.pipes: dict[int, tuple[Pipe, Pipe]] = {}
        self.by_serial: dict[int, Any] = {}
        self.serials: dict[Any, int] = {}
        self.inbox: deque[Any] = deque()
        self.unflushed: dict[Any, None] = {}
        self.blocked: set[Any] = set()
        self.has_duties = False

    def connect(self, serial: int) -> tuple[Pipe, Pipe]:
        """Return the pipes of a new connection: to the broker, and from it."""
        self.pipes[serial] = pipes = Pipe(), Pipe()
        return pipes

    def introduce(self, connection: Any, serial: int) -> None:
        self.by_serial[serial], self.serials[connection] = connection, serial

    def write(self, connection: Any, frames: Sequence[bytes]) -> bool:
        connection.put(frames)
        return True

    def flush(self) -> None:
        self.unflushed.clear()

    def undelivered(self) -> set[Any]:
        return set()

    def receive(self, serial: int) -> None:
        """Let the broker have the next message of a process."""
        incoming, outgoing = self.pipes[serial]
        self.inbox.append((outgoing, incoming.messages.popleft()))

    def read_all_of(self, serial: int) -> None:
        while serial in self.pipes and self.pipes[serial][0].messages:
            self.receive(serial)

    def disconnect(self, serial: int) -> None:
        connection = self.by_serial.pop(serial, None)
        if connection is not None:
            del self.serials[connection]

    def close(self, connection: Any) -> None:
        raise AssertionError("the broker has closed a connection")


class FakeSupervisor:
    """Makes the segments of all processes, hands them out, and keeps those of the dead."""

    def __init__(self) -> None:
        self.segments: dict[tuple[int, int], int] = {}
        #: The dead processes whose memory no broker has given up.
        self.dead: list[int] = []
        #: Messages of brokers.
        self.messages: deque[wire.LeasedSegments] = deque()

    def receive(self, message: Any) -> None:
        if type(message) is wire.LeasedSegments:
            self.messages.append(message)

    def take(self) -> list[tuple[int, int]]:
        """Take the next message; return the segments that are freed by it."""
        message = self.messages.popleft()
        owner = message.owner
        if not message.segments and owner in self.dead:
            self.dead.remove(owner)
        freed = [one for one in self.segments if one[0] == owner and one[1] not in message.segments]
        for name in freed:
            os.close(self.segments.pop(name))
        return freed

    def make(self, owner: int, segment: int, size: int) -> int:
        descriptor = os.memfd_create("segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(descriptor, size)
        seal_size(descriptor)
        self.segments[owner, segment] = descriptor
        return os.dup(descriptor)

    def open(self, owner: int, segment: int) -> int:
        """Return the descriptor of a segment; -1 if it is gone."""
        descriptor = self.segments.get((owner, segment), -1)
        return descriptor if descriptor < 0 else os.dup(descriptor)

    def close(self) -> None:
        for descriptor in self.segments.values():
            os.close(descriptor)


class _SegmentsOf:
    """The supervisor, as a stub's memory sees it."""

    def __init__(self, supervisor: FakeSupervisor, serial: int) -> None:
        self._supervisor = supervisor
        self._serial = serial
        self._take_segment: Any = None
        self._answer: Any = None

    def ask(self, question: Any, key: Any) -> Any:
        if type(question) is wire.CreateSegment:
            size = question.size
            descriptor = self._supervisor.make(self._serial, question.segment, size)
            return wire.SegmentCreated(question.segment, 0, ""), descriptor
        descriptor = self._supervisor.open(question.owner, question.segment)
        size = os.fstat(descriptor).st_size if descriptor >= 0 else 0
        opened = wire.SegmentOpened(question.owner, question.segment, size)
        self._take_segment(opened, descriptor)
        return self._answer

    def subscribe(self, kind: Any, take: Any) -> None:
        self._take_segment = take

    def settle(self, key: Any, answer: Any) -> bool:
        self._answer = answer
        return True

    def send(self, message: Any) -> None:
        """Drop it: no segment is ever freed here."""

    def call(self, verb: str, arguments: str) -> Any:
        return False


def content(seed: int) -> Any:
    """Return the content of a tensor."""
    return np.full(COUNT, seed, np.uint64)


class Kept:
    """An array that a process reads, and what must be in it."""

    def __init__(self, array: Any, seed: int, name: str) -> None:
        self.array = array
        self.seed = seed
        self.name = name

    @property
    def is_right(self) -> bool:
        return bool((self.array == self.seed).all())


class Process:
    """A process with connections to the broker, and programs that take their steps."""

    arena: Arena
    mappings: Mappings

    def __init__(self, world: World, serial: int, name: str) -> None:
        self.world = world
        self.serial = serial
        self.name = name
        self.epoch = 1
        self.kept: list[Kept] = []
        self.programs: list[tuple[Steps, Callable[[], bool] | None]] = []

    def keep(self, array: Any, seed: int) -> Kept:
        kept = Kept(array, seed, self.name)
        self.kept.append(kept)
        return kept

    def drop(self, kept: Kept) -> None:
        self.kept.remove(kept)
        del kept.array

    def start(self, program: Steps) -> None:
        self.programs.append((program, None))

    def is_enabled(self, index: int) -> bool:
        _, awaited = self.programs[index]
        return awaited is None or awaited()

    def advance(self, index: int) -> None:
        """Take the next step of a program."""
        self.enter()
        program, _ = self.programs[index]
        try:
            self.programs[index] = program, next(program)
        except StopIteration:
            del self.programs[index]

    def enter(self) -> None:
        """Act as this process from here on."""

    def take(self, kind: str, frames: Frames) -> None:
        """Take a message of the broker."""
        raise NotImplementedError

    def follow(self, epoch: int) -> None:
        """Leave a broker that has died for the next."""
        raise NotImplementedError

    def leave(self) -> None:
        """Leave the server, and keep all arrays."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop all arrays: the process is dead, or the test is over."""
        self.programs.clear()
        self.kept.clear()


class StubProcess(Process):
    """A stub whose model is a program of the test, one for each request."""

    #: Publishes the responses of streams, if there are any.
    publisher: Any = None

    def __init__(self, world: World, serial: int, name: str, program: Any, config: Any) -> None:
        super().__init__(world, serial, name)
        segments: Any = _SegmentsOf(world.supervisor, serial)
        watch = Watch()
        lines = (
            BrokerLine(watch.loop, lambda _: self._dial("stubs")),
            BrokerLine(watch.replies, lambda _: self._dial("requests")),
        )
        sizes = Memory(BLOCKS * PAGE, BLOCKS * PAGE)
        self.memory = memory = TensorMemory(segments, lines[0], serial, sizes)
        self.arena, self.mappings = memory.arena, memory.mappings
        load = wire.LoadModel(f"{name}_0", name, 1, "CPU", 0, "/m", "/m/1/model.py", "{}", 0)
        self.instance = instance = StubInstance(load, Mock(), memory)
        bootstrap = wire.Bootstrap(serial, TOKEN, "stub", "/", 1, "{}")
        self.pipes: dict[str, tuple[Pipe, Pipe]] = {}
        self.dealers: dict[str, FakeDealer] = {}
        model = PythonModel(load, None, watch)
        # in place of code that is loaded from a file
        model._execute = self._execute
        self.core = core = StubCore(
            instance,
            model,
            lines,
            watch,
            bootstrap,
            progress=Mock(ProgressView),
            warmup=Warmup({}, "/m"),
            publisher=self.publisher,
        )
        self.link, self.asker = core.link, core.asker
        instance.allow(core.asker)
        self._program = program
        self.enter()
        core.connect()

    def enter(self) -> None:
        this_process.take_thread(self.instance)

    def _dial(self, kind: str) -> Any:
        outgoing, _ = self.pipes[kind] = self.world.router(kind).connect(self.serial)
        self.dealers[kind] = dealer = FakeDealer(outgoing)
        dealer.descriptor = self.world.descriptor
        return dealer

    def take(self, kind: str, frames: Frames) -> None:
        self.enter()
        self.dealers[kind].messages.append(frames)
        (self.link if kind == "stubs" else self.asker).turn()
        while self.link.batches:
            self.core.executions.begin(self.link.batches.popleft())

    def follow(self, epoch: int) -> None:
        self.enter()
        self.epoch = epoch
        if "requests" in self.dealers:
            _, incoming = self.pipes["requests"]
            self.dealers["requests"].messages += incoming.messages
            incoming.messages.clear()
        [*self.core.take(deque([wire.NewEpoch(epoch)]))]

    def _execute(self, requests: list[Any]) -> None:
        for request in requests:
            self.start(self._program(self, request))

    # ------------------------------------------------------- what models do

    def input(self, request: Any) -> Any:
        """Return the array of the only input; None if it is small."""
        array = request.inputs()[0].as_numpy()
        return array if array.size == COUNT else None

    def ask(self, model: str, array: Any) -> Call:
        request = pb_utils.InferenceRequest(
            model_name=model, inputs=[pb_utils.Tensor("I", array)], requested_output_names=["O"]
        )
        return Call(bls.ask_stream(request), self.world)

    def answer(self, request: Any, array: Any, *outputs: str) -> None:
        """Answer with the array, or with a small one."""
        array = np.zeros(1, np.uint64) if array is None else array
        tensors = [pb_utils.Tensor(name, array) for name in outputs or ("O",)]
        final = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        request.get_response_sender().send(pb_utils.InferenceResponse(tensors), final)

    def forget(self) -> None:
        super().forget()
        # as its end leaves it; nothing of the process runs any more
        self.link.line.abandon()
        self.asker.line.abandon()
        self.link.pending.clear()
        self.asker._open.clear()
        self.memory.mappings.close()


class Call:
    """A call of another model."""

    def __init__(self, responses: Any, world: World) -> None:
        self._responses = responses
        self._world = world

    def has_reply(self) -> bool:
        # to look, and not to wait as a model would
        return not self._responses._question.inbox.empty()

    def take(self) -> Any:
        """Return the array of the reply; None for an error."""
        response = next(self._responses)
        if response.has_error():
            self._world.note_error(response.error().message())
            return None
        return response.output_tensors()[0].as_numpy()


class FrontendProcess(Process):
    """A frontend with its real payload; the rest of its gateway is in a few lines."""

    def __init__(self, world: World, serial: int, name: str) -> None:
        super().__init__(world, serial, name)
        memory = Memory(BLOCKS * PAGE, BLOCKS * PAGE)
        self.payload = payload = Payload(serial, memory, lambda message: None, self._send)
        self.arena, self.mappings = payload.arena, payload.mappings
        request = self.arena.segment_request(PAGE)._replace(is_gradual=0)
        self.arena.add(request, world.supervisor.make(serial, request.segment, request.size))
        self.unanswered: Unanswered = {}
        #: The replies that have come, by their requests: an array or None, and what is kept for it.
        self.replies: dict[int, list[Any]] = {}
        self._last_id = 0
        self._connect()

    def _connect(self) -> None:
        self.outgoing, self.incoming = self.world.router("requests").connect(self.serial)
        self._send(wire.Hello(self.serial, TOKEN, self.epoch))

    def _send(self, message: Any, *bodies: bytes) -> None:
        self.outgoing.put([wire.encode(message), *bodies])

    @property
    def has_releases(self) -> bool:
        return bool(self.payload.releases.blocks)

    def release(self) -> None:
        # the loop would do it a while later
        self.payload.releases._send_all()

    def follow(self, epoch: int) -> None:
        while self.incoming.messages:
            self.take("requests", self.incoming.messages.popleft())
        self.epoch = epoch
        self._connect()
        for message in self.payload.change_broker([]):
            self._send(message)
        for again, bodies in resend_messages(self.unanswered, lambda own_id: False):
            self._send(again, *bodies)

    def ask(self, model: str, array: Any) -> int:
        """Send a request; its reply is in `replies`."""
        array = np.zeros(1, np.uint64) if array is None else array
        tensor = wire.Tensor("I", UINT64, [array.size], array.tobytes())
        body = wire.RequestBody("", {}, ["O"], [tensor])
        nothing: Any = Mock(is_hashed=False)
        checked = CheckedRequest(nothing, body, Admission(0, 0), SchedulingOptions(), {})
        placed = self.payload.place_now(checked)
        assert placed is not None, "no room"
        self._last_id = own_id = self._last_id + 1
        flags = wire.KEEPS_INPUTS
        row = wire.Request(own_id, self.world.generations[model], "", -1, flags, 0, 0, 0, 0, 0, 0)
        data = wire.encode_body(placed.body)
        self.payload.placed[own_id] = placed
        self.unanswered[own_id] = row, data
        self._send(wire.Infer([row]), data)
        return own_id

    def take(self, kind: str, frames: Frames) -> None:
        message = wire.decode(frames[0])
        if type(message) is not wire.Replies:
            if type(message) is not wire.Welcome:
                self.payload.hear_of_blocks(message)
            return
        for row, body in zip(message.replies, frames[1:], strict=True):
            self._take_reply(row, body)

    def _take_reply(self, row: wire.Reply, body: bytes) -> None:
        kept: KeptBlocks | None = None
        if row.flags & wire.FINAL:
            self.unanswered.pop(row.id, None)
            if row.flags & wire.FORWARDED:
                kept = self.payload.keep(row.id)
            else:
                self.payload.answered(row.id)
        array = None
        if body:
            checked = PlacedBody(body) if row.flags & wire.HAS_REFERENCES else body
            response = wire.decode_response(checked, may_refer=type(checked) is PlacedBody)
            references = wire.references_in(response.outputs)
            if references:
                array = self._open(response, references, kept)
        self.world.note_error(row.text)
        self.replies.setdefault(row.id, []).append((array, row.code, row.text))

    def _open(self, response: Any, references: list[Reference], kept: KeptBlocks | None) -> Any:
        for owner, segment in self.payload.mappings.missing(references):
            descriptor = self.world.supervisor.open(owner, segment)
            if descriptor < 0:
                self.world.note_error(MEMORY_GONE)
                return None
            self.payload.mappings.add(owner, segment, descriptor)
        opened = self.payload.open_now(response, kept)
        assert opened is not None
        arrays = [np.frombuffer(tensor.data, np.uint64) for tensor in opened.outputs]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays)

    def leave(self) -> None:
        # as gateways do, before their connections end
        self.payload.close()
        self.programs.clear()

    def forget(self) -> None:
        super().forget()
        self.payload.releases.end()
        self.replies.clear()
        self.payload.placed.clear()
        self.payload.mappings.close()


class BrokerProcess:
    """A broker with its real parts, but for sockets, the lifeline and the clock."""

    def __init__(self, world: World, epoch: int) -> None:
        self.core = core = BrokerCore()
        core.configure(epoch, BrokerSettings())
        self.requests, self.stubs = FakeRouter(), FakeRouter()
        # the service without its sockets and its loop: each step is taken when the order has it
        self.service = service = BrokerService.__new__(BrokerService)
        service._core = core
        service._requests, service._stubs = self.requests, self.stubs
        service._hellos, service._groups = Hellos(), {}
        service._idle_checks = Mock(IdleChecks)
        service._bootstrap = wire.Bootstrap(0, b"", "", "", epoch, "{}")
        lifeline: Any = Mock(send=world.supervisor.receive)
        self.sending = service._sending = PeerSending(core, lifeline, self.requests, self.stubs)
        core.on_some_replies = self.sending.flush_some_replies
        service._fill_tables()
        self._world = world

    def end_turn(self) -> None:
        self.core.tick(self._world.now_ns)
        self.sending.flush()

    def take(self, kind: str, serial: int) -> None:
        """Take the next message of a process."""
        router = self.requests if kind == "requests" else self.stubs
        router.receive(serial)
        while router.inbox:
            # a step of the loop
            self.service._read(router)
        self.end_turn()

    def remove(self, serial: int, guest: int = 0) -> None:
        # a step of the loop
        self.service._remove_dead_peer(wire.PeerDied(serial, "killed", guest))
        self.end_turn()

    def release(self) -> None:
        """Send releases that wait for other messages."""
        self._world.now_ns = self.sending.release_at_ns
        self.end_turn()


class _Clock:
    """Time as the broker has it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic_ns(self) -> int:
        return self._world.now_ns

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def _set_clock(clock: Any) -> None:
    for module in (service_module, sending_module):
        vars(module)["time"] = clock


class World:
    """One broker after the other, a frontend, perhaps a guest, and a stub for each model."""

    #: What they wait on in place of sockets; nothing ever comes there.
    descriptor = os.eventfd(0)

    def __init__(
        self, models: dict[str, Any], ensembles: dict[str, Any], *, has_guest: bool = False
    ) -> None:
        """Start all processes; `models` has the programs by the models' names."""
        self.now_ns = SECOND_NS
        _set_clock(_Clock(self))
        self.supervisor = FakeSupervisor()
        self.configs = {name: _config(name) for name in models}
        self.configs |= {name: _ensemble(name, steps) for name, steps in ensembles.items()}
        self.generations = {name: number for number, name in enumerate(self.configs, start=1)}
        self.serials = {name: serial for serial, name in enumerate(models, start=FRONTEND + 1)}
        clients = ["frontend", *["guest"] * has_guest]
        self.clients = dict(zip(clients, (FRONTEND, FRONTEND + len(models) + 1), strict=False))
        self.processes: dict[int, Process] = {}
        #: Processes of whose death the broker has not heard.
        self.unburied: list[int] = []
        self.broker: BrokerProcess | None = None
        #: Processes whose order with others is of no interest: what they can do, they do at once.
        self.eager: set[int] = set()
        #: Processes that have left, and threads whose instance was ended: what they read stays.
        self.living_on: list[Process] = []
        #: The guest of each such instance.
        self.guests: dict[int, int] = {}
        #: Errors because of memory that is gone.
        self.gone: list[str] = []
        self.epoch = 0
        self.start_broker()
        for name, serial in self.clients.items():
            self.processes[serial] = FrontendProcess(self, serial, name)
        for name, program in models.items():
            serial, config = self.serials[name], self.configs[name]
            self.processes[serial] = StubProcess(self, serial, name, program, config)
        self.deliver_all()

    def start_broker(self) -> None:
        self.epoch += 1
        # a broker's own requests have their ids of the clock, so that those of the last one differ
        self.now_ns += SECOND_NS
        self.broker = broker = BrokerProcess(self, self.epoch)
        core = broker.core
        serials = self.processes or [*self.clients.values(), *self.serials.values()]
        for serial in serials:
            role = "http" if serial in self.clients.values() else "stub"
            core.expect(wire.ExpectPeer(serial, TOKEN, role, str(serial), 0))
        for name, number in self.generations.items():
            if self.serials.get(name, FRONTEND) not in serials:
                continue  # it was unloaded
            core.add_generation(wire.AddGeneration(number, name, 1, json.dumps(self.configs[name])))
        for name, serial in self.serials.items():
            if serial in serials:
                core.attach(wire.AttachInstance(self.generations[name], serial, name), self.now_ns)
        for dead in self.supervisor.dead:
            core.remove_peer(wire.PeerDied(dead, "killed"), self.now_ns)
        if self.epoch > 1:
            core.recovery.await_lease_reports()
        broker.end_turn()

    def note_error(self, text: str) -> None:
        if MEMORY_GONE in text:
            self.gone.append(text)

    def tell_supervisor(self) -> None:
        """Let the supervisor take the next message of a broker."""
        for freed in self.supervisor.take():
            for process in self.processes.values():
                process.mappings.remove(*freed)

    def unload(self, serial: int) -> None:
        """Unload the model of a stub that has died."""
        assert self.broker is not None
        for name, stub in self.serials.items():
            if stub == serial:
                gone = wire.RemoveGeneration(self.generations[name], "killed")
                self.broker.core.remove(gone, self.now_ns)
                self.broker.end_turn()

    def router(self, kind: str) -> FakeRouter:
        assert self.broker is not None
        return self.broker.requests if kind == "requests" else self.broker.stubs

    def process(self, name: str) -> Process:
        return self.processes[{**self.clients, **self.serials}[name]]

    @property
    def is_whole(self) -> bool:
        """True until the first process dies or leaves."""
        return len(self.processes) == len(self.serials) + len(self.clients)

    def deliver_all(self) -> None:
        """Deliver all messages, until there are none."""
        deliver_all(
            self,
            lambda kind, serial, messages: self.processes[serial].take(kind, messages.popleft()),
        )

    def close(self) -> None:
        for process in (*self.processes.values(), *self.living_on):
            process.forget()
        self.supervisor.close()
        _set_clock(time)


def deliver_all(world: Any, take: Callable[[str, int, Any], None]) -> None:
    """Deliver all messages of a world's broker; `take` takes the next one of a process."""
    is_over = False
    while not is_over:
        is_over = True
        for kind in ("stubs", "requests"):
            for serial, (incoming, outgoing) in list(world.router(kind).pipes.items()):
                is_over = is_over and not incoming.messages and not outgoing.messages
                while incoming.messages:
                    world.broker.take(kind, serial)
                while outgoing.messages:
                    take(kind, serial, outgoing.messages)


def _config(name: str) -> dict[str, Any]:
    tensors = [{"data_type": "TYPE_UINT64", "dims": [-1]}]
    inputs = [{"name": "I", **tensors[0]}]
    return {
        "name": name,
        "max_batch_size": 0,
        "input": inputs,
        "output": [{"name": "O", **tensors[0]}],
    }


def _ensemble(name: str, steps: list[tuple[str, str, str]]) -> dict[str, Any]:
    """Return an ensemble from I to O, whose steps have a model, what it reads and what it makes."""
    rows = [step(model, {"I": read}, {"O": made}) for model, read, made in steps]
    config = ensemble(rows, name, "I", "O")
    return {**_config(name), "ensemble_scheduling": config["ensemble_scheduling"]}
