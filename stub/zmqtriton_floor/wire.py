"""The protocol between zmqtriton's processes. Nothing else in the project builds or splits frames.

A message on a ZeroMQ socket is
    +--------+--------+--------+---
    | header | body 0 | body 1 | ...      one body for each row of the header's list of rows
    +--------+--------+--------+---

and on a lifeline or the control socket just the header. On a stub's publisher the topic (see
endpoints.py) stands before the header in the same frame.

The **header** is one msgpack array `[VERSION, kind, field, field, ...]`, the fields being those of
the kind's class below; a row in a list is the array of the row's fields. The **body** is one
`RequestBody` or `ResponseBody`, which the broker forwards unread.

Three conversations, frontend (F), broker (B), stub (S), supervisor (V):

    a stub is born       an inference                     a load
    V ── Birth ──▶ S     F ── Infer ───▶ B                F ── Call ────▶ V
    V ── Expect ─▶ B     B ── Execute ─▶ S                V ── Load … ──▶ S ── Loaded ─▶ V
    V ── Load ───▶ S     S ── Results ─▶ B                V ── Serve, Attach, Sync ─▶ B ── Seen ─▶ V
    S ── Loaded ─▶ V     B ── Replies ─▶ F                V ── News, Sync ─▶ F ── Seen ─▶ V
    S ── Hello ──▶ B                                      V ── Answer ──▶ F

What does not decode raises `ProtocolError` naming kind and field; its reader counts and drops it.
`python -m zmqtriton_floor.protocol_page` prints the tables as Markdown, which is docs/protocol.md.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, List, NamedTuple, Union

import msgpack

from zmqtriton_floor.errors import ProtocolError

#: Raised by one with each incompatible change; every process of a server must have the same.
VERSION = 1

#: A header above this is refused unread, but on lifelines and in what the broker tells frontends.
MAX_HEADER_BYTES, MAX_CONTROL_BYTES = 1 << 20, 256 << 20
MAX_ROWS = 4096  # in one header; a sender with more splits them
MAX_DOCUMENT = 1 << 26  # characters

# The kinds of fields. Python sees plain types; the names say what decode() enforces.
Count = int  # 0 ... 2^63-1
Number = int  # -2^63 ... 2^63-1
Code = int  # 0: no error, else ZmqTritonError.number
Flags = int  # 0 ... 2^32-1
Name = str  # up to 1024 characters
Text = str  # up to 64 Ki characters
Document = str  # up to 64 Mi characters: a configuration, arguments, a result as JSON
Blob = bytes  # up to 64 MiB
Token = bytes  # exactly 16 bytes
Correlation = Union[int, str]  # a sequence's id: an integer, or a string of up to 1024 characters
Ids = List[int]

INTEGERS = {
    **{"Count": (0, 2**63 - 1), "Number": (-(2**63), 2**63 - 1)},
    **{"Code": (0, 99), "Flags": (0, 2**32 - 1)},
}
LENGTHS = {
    **{"Name": (str, 0, 1024), "Text": (str, 0, 1 << 16)},
    "Document": (str, 0, MAX_DOCUMENT),
    "Blob": (bytes, 0, 1 << 26),
    "Token": (bytes, 16, 16),
}

# Flags of a request, the first two as in Triton.
SEQUENCE_START, SEQUENCE_END = 1, 2
RESENT = 4  # an earlier broker may have known it
ONE_RESPONSE = 8  # from a model: refuse it if it leads to a decoupled one
UNCHECKED = 16  # set by the broker: it is a model's, which does not know the inputs of the other
WAITS = 32  # from a model: its process executes nothing else until this is answered
ON_GPU = 64  # whoever gets the answer takes tensors that lie on a GPU as they are
NOT_READY = 128  # set by the broker: it fills an empty slot; inputs without data are zeros
OVER = 256  # set by the broker: that sequence is over; alone in its batch, which is not executed
HASHED = 512  # set by the broker: references to large outputs are to have digests
TRACE_TENSORS = 1024  # its trace, if it has one, shows its tensors too
PLACED = 2048  # of a model's request, and of replies: without it no tensor may be a Reference
STREAM_WINDOW = 256  # responses of one request that may be under way; the final one may come on top
FINAL = 1  # a flag of an outcome and of a reply


# ---------------------------------------------------------------------- rows


class Request(NamedTuple):
    """One inference that a frontend asks for; its body is a RequestBody."""

    id: Count  # the asking peer's own numbering, never reused
    generation: Count  # which loading of a model it was checked against; 0: see model and version
    model: Name  # "" where the generation is given
    version: Number  # -1: the highest that is ready
    flags: Flags  # SEQUENCE_START, SEQUENCE_END, RESENT, ONE_RESPONSE, WAITS, ON_GPU, PLACED
    priority: Count  # 0: the model's default
    timeout_us: Count  # in the queue; 0: the model's default
    deadline_ns: Count  # CLOCK_MONOTONIC, the same on the whole machine; 0: none
    batch_size: Count  # 0 where the model does not batch
    batch_key: Count  # equal keys may share a batch
    correlation: Correlation  # 0 or "": no sequence
    cache_key: Blob = b""  # 32 bytes; equal keys have equal answers; none: it is not looked up
    trace: Name = ""  # of the span that it belongs to, see spans.py; "": it is not traced


class Work(NamedTuple):
    """One request of a batch, on its way to a stub; its body is the request's, unread."""

    batch: Count  # rows with the same number are one call of execute()
    peer: Count  # who asked, and ...
    id: Count  # ... under which id: the two name a request everywhere
    flags: Flags  # of the request, or NOT_READY or OVER
    correlation: Correlation
    priority: Count
    timeout_us: Count
    trace: Name = ""  # of the request's own span


class Block(NamedTuple):
    """A piece of a segment that a tensor lies in; leased to whoever holds a reference to it."""

    owner: Count  # the serial of the process whose arena it is
    segment: Count  # its owner's numbering, never reused
    block: Count  # likewise, so that a block's next use has another name


class Outcome(NamedTuple):
    """One response; its body is a ResponseBody, or empty with an error or with a FINAL alone."""

    peer: Count
    id: Count
    code: Code
    text: Text
    flags: Flags  # FINAL: no other will follow
    number: Count = 0  # of this response, from 0; of a FINAL alone: the one that does not come
    blocks: list[Block] = []  # leased to whoever gets the body; released one by one


class Grant(NamedTuple):
    """How far the reader of a request's responses has come; the stub may be STREAM_WINDOW ahead."""

    peer: Count
    id: Count
    responses: Count  # that the reader has taken, in all


class Executed(NamedTuple):
    """execute() has returned: the instance is free. Durations are the batch's."""

    batch: Count
    input_ns: Count
    infer_ns: Count
    output_ns: Count


class Reply(NamedTuple):
    """An Outcome on its way to the one who asked."""

    id: Count
    code: Code
    text: Text
    flags: Flags
    number: Count = 0
    source: Count = 0  # the stub that answered; 0: the broker itself


class Route(NamedTuple):
    """Names one request."""

    peer: Count
    id: Count


class Await(NamedTuple):
    """A request without whose next reply, or another's, execute() of a batch does not go on."""

    batch: Count  # 0: any that this process is in
    id: Count
    received: Count  # replies to it that had come; with one more this does not hold any longer


# ------------------------------------------------- messages to the broker


class Hello(NamedTuple):
    """The first message of a connection. It tells the next broker what a dead one knew. Bodies: one
    for each answered outcome."""

    serial: Count
    token: Token
    epoch: Count
    received: list[Route] = []  # by a stub: requests that have reached it and lack a final answer
    answered: list[Outcome] = []  # by a stub: final answers of the last second
    is_executing: Flags = 0  # by a stub: batches in execute(); an Executed each will tell
    slots: Count = 1  # by a stub: batches that it executes at once


class Infer(NamedTuple):
    """The requests of one turn of a frontend's loop. Bodies: one for each."""

    requests: list[Request]


class Cancel(NamedTuple):
    """Nobody waits for these any more; each still gets its one final reply."""

    ids: Ids


class AskStatistics(NamedTuple):
    """Counters of one model (version -1: all its versions) or, without a name, of all."""

    id: Count
    model: Name
    version: Number


class Consumed(NamedTuple):
    """A reader of streams has come this far; on to the stubs that send them."""

    grants: list[Grant]


class Lease(NamedTuple):
    """Each is held once more, in a request that outlives its stub's own; to broker and owner."""

    blocks: list[Block]


class Release(NamedTuple):
    """Each of these blocks is held once less: to broker and owner."""

    blocks: list[Block]


class Held(NamedTuple):
    """After a Hello: blocks of others that are still read here, as often as they are leased."""

    blocks: list[Block]
    is_last: Flags  # 0: more of them follow


class Waits(NamedTuple):
    """From a stub that was asked: what its batches wait for. Asked by the broker with none."""

    awaits: list[Await]


class Settled(NamedTuple):
    """To owners: all have said what they hold, so what went out before this epoch is else free."""


class Results(NamedTuple):
    """What a stub has to say since its last message. Bodies: one for each outcome."""

    outcomes: list[Outcome]
    executed: list[Executed]
    rescheduled: list[Route] = []  # to be executed again, by the same stub, under the same names
    responses: Document = ""  # of streams since it was last told: counts and times by index, JSON


class Expect(NamedTuple):
    """Who may say hello with which token, and what to kill when the supervisor has died."""

    serial: Count
    token: Token
    role: Name
    label: Name
    pid: Count  # its process and process group; 0: none that the supervisor started


class Serve(NamedTuple):
    """A generation of a model exists; requests for it wait until a stub is attached."""

    generation: Count
    model: Name
    version: Count
    config: Document


class Attach(NamedTuple):
    """This stub has loaded that generation and may be given requests."""

    generation: Count
    serial: Count
    instance: Name
    demand: Document = ""  # what it shares with others, as zmqtriton.config.resources has it


class Retire(NamedTuple):
    """Take no more requests for a generation, or with this stub of it; say Drained at their end.
    With 0 the server stops, frontends are told too: none but of sequences that are open."""

    generation: Count
    serial: Count = 0


class Remove(NamedTuple):
    """Forget a generation; what is unanswered is answered UNAVAILABLE with the reason."""

    generation: Count
    reason: Text


class Gone(NamedTuple):
    """A process is dead. What it executed fails with the reason."""

    serial: Count
    reason: Text


# ------------------------------------------------------ messages to a stub


class Execute(NamedTuple):
    """Batches to run, in this order. Bodies: one for each row."""

    works: list[Work]


class Abandon(NamedTuple):
    """is_cancelled() of these turns true; those that were rescheduled are answered already."""

    routes: list[Route]


class Load(NamedTuple):
    """Import the model; with auto_complete, call auto_complete_config and say Completed."""

    instance: Name  # m_0_0
    model: Name
    version: Count
    kind: Name  # CPU, GPU, MODEL
    device: Count
    directory: Text  # the model's, that holds config.pbtxt
    path: Text  # of model.py
    config: Document
    auto_complete: Flags


class Initialize(NamedTuple):
    """The configuration is final: call initialize, say Loaded, then Hello to the broker."""

    config: Document


class Probe(NamedTuple):
    """To a Loaded that is_asked: with a lifeline for a thread that answers for is_ready."""


class Finish(NamedTuple):
    """Call finalize and exit."""


# ------------------------------------------- messages to frontends and all


class Birth(NamedTuple):
    """The first message on every lifeline: who you are and where the broker is."""

    serial: Count
    token: Token
    role: Name
    directory: Text
    epoch: Count
    settings: Document


class News(NamedTuple):
    """What is to be known of one version of a model now; it replaces what was said before."""

    generation: Count  # 0: no generation of it serves
    model: Name
    version: Count  # 0: the model has no version
    state: Name  # Triton's: LOADING READY UNLOADING UNAVAILABLE
    reason: Text
    ready_instances: Count
    config: Document
    config_proto: Blob
    is_asked: Flags = 0  # 1: whether it is ready is the model's to say; the supervisor asks it
    labels: Document = ""  # output -> names of its classes, as JSON; "": there are none
    is_on_demand: Flags = 0  # 1: requests have it loaded, so the server is ready without it


class Forget(NamedTuple):
    """A model is no longer known."""

    model: Name


class Sync(NamedTuple):
    """Say Seen with this number when all that came before it holds."""

    number: Count


class Welcome(NamedTuple):
    """The broker knows you."""

    epoch: Count


class Replies(NamedTuple):
    """Bodies: one for each."""

    replies: list[Reply]


class Statistics(NamedTuple):
    """`model_stats` of the statistics extension as JSON."""

    id: Count
    code: Code
    text: Text
    result: Document


class Answer(NamedTuple):
    """To a Call; the result is JSON."""

    id: Count
    code: Code
    text: Text
    result: Document


class Open(NamedTuple):
    """To a frontend: start to accept connections."""


class Stop(NamedTuple):
    """End in order: a frontend stops listening and finishes what it has; the broker exits."""

    within_ms: Count


# ------------------------------------------------ messages to the supervisor


class Seen(NamedTuple):
    """To a Sync."""

    number: Count


class Call(NamedTuple):
    """A control call of a frontend, model or zmqtriton-ctl, or to nursery or broker, with JSON."""

    id: Count
    verb: Name
    arguments: Document


class MakeSegment(NamedTuple):
    """The supervisor answers with a SegmentMade and the descriptor, or with an error in it."""

    segment: Count  # the owner's number for it
    size: Count
    handle: Blob = b""  # of memory on a GPU, which is there already: what others open it by


class SegmentMade(NamedTuple):
    """A memfd of that size comes along; with an error none does."""

    segment: Count
    size: Count
    code: Code
    text: Text


class DropSegment(NamedTuple):
    """The owner needs it no longer; those who have it mapped keep it until they let go."""

    segment: Count


class AskSegment(NamedTuple):
    """A reference to it has come and it is not mapped here yet."""

    owner: Count
    segment: Count


class SegmentGiven(NamedTuple):
    """To an AskSegment, with the descriptor. Size 0, then or later: there is none (any more)."""

    owner: Count
    segment: Count
    size: Count
    handle: Blob = b""  # in place of a descriptor: the memory is on a GPU


class NewEpoch(NamedTuple):
    """The broker is another one: close the old sockets, connect to this epoch's, say hello."""

    epoch: Count  # 0, to frontends: the broker is dead, and the next one does not listen yet


class Region(NamedTuple):
    """Shared memory of a client: its descriptor comes along, and inferences may name it."""

    number: Count  # never reused, unlike the name
    name: Name
    offset: Count  # of the region within the descriptor's file
    size: Count


class Logging(NamedTuple):
    """To everybody who writes records: log settings, as a Birth has them, that hold from now on."""

    settings: Document


class Tracing(NamedTuple):
    """To frontends: which requests are traced from now on, as a Birth has it."""

    settings: Document


class Span(NamedTuple):
    """To the process that keeps traces: what somebody knows of this span."""

    trace: Name  # its name, see spans.py
    told: Document


class NoRegion(NamedTuple):
    """No new request may name it; say RegionLeft when the last that does is answered."""

    number: Count


class Listening(NamedTuple):
    """A frontend accepts connections."""

    service: Name
    address: Name


class RegionLeft(NamedTuple):
    """To a NoRegion: nothing of it is read or written here any more."""

    number: Count


class Branch(NamedTuple):
    """Gunicorn's arbiter forked: the attached descriptor is the new process's own lifeline."""

    pid: Count


class Completed(NamedTuple):
    """The model's own auto_complete_config has run."""

    config: Document


class Loaded(NamedTuple):
    """initialize has returned."""

    is_asked: Flags = 0  # 1: the model has is_ready; a Probe is awaited before any request


class Failed(NamedTuple):
    """Import, auto_complete_config, initialize or a sample of warm-up failed; the stub exits."""

    text: Text
    code: Code = 2  # internal


class Said(NamedTuple):
    """A line of the model's Logger, or of the process's own."""

    level: Name  # I W E V
    file: Name
    line: Count
    text: Text


class Drained(NamedTuple):
    """A retired generation, or this stub of it, has no request left; 0: no sequence is open."""

    generation: Count
    serial: Count = 0


class Proved(NamedTuple):
    """A stub has finished its first execution; if it dies now, that is no failure to start."""

    serial: Count


class Overdue(NamedTuple):
    """A stub has been executing for longer than its model allows."""

    serial: Count
    text: Text


class Called(NamedTuple):
    """A model of this generation has asked that one, for the first time."""

    generation: Count
    model: Name


_KINDS: tuple[type[Any], ...] = (
    *(Hello, Infer, Cancel, AskStatistics, Results, Expect, Serve, Attach, Retire, Remove, Gone),
    *(Execute, Abandon, Load, Initialize, Finish, Birth, News, Forget, Sync, Welcome, Replies),
    *(Statistics, Answer, Open, Stop, Seen, Call, Listening, Branch, Completed, Loaded, Failed),
    *(Said, Drained, Proved, Overdue, Consumed, Lease, Release, MakeSegment, SegmentMade),
    *(DropSegment, AskSegment, SegmentGiven, NewEpoch, Region, NoRegion, RegionLeft, Held),
    *(Settled, Logging, Probe, Waits, Called, Tracing, Span),
)
KINDS: dict[int, type[Any]] = dict(enumerate(_KINDS, start=1))
_NUMBERS = {cls: number for number, cls in KINDS.items()}
ROWS: tuple[type[Any], ...] = (Request, Work, Block, Outcome, Grant, Executed, Reply, Route, Await)


# ------------------------------------------------------------------- bodies


class Reference(NamedTuple):
    """Where a large tensor lies. A reader checks it against the segment's real size."""

    owner: Count
    segment: Count
    block: Count
    offset: Count
    size: Count
    digest: Blob = b""  # of the bytes, where a cache may look for them


class Tensor(NamedTuple):
    """A tensor of a body. BYTES are as in Triton's binary form: each with a 4-byte length."""

    name: Name
    datatype: Count  # TRITONSERVER_DataType, see tensors.py
    shape: list[int]
    data: Any  # bytes in C order, little endian; or a Reference to them


class RequestBody(NamedTuple):
    """What a model sees of a request."""

    request_id: Name
    parameters: dict[str, Any]  # bool, int, float, str
    outputs: list[str]  # requested names; empty: all
    inputs: list[Tensor]


class ResponseBody(NamedTuple):
    """What a client sees of a response."""

    parameters: dict[str, Any]
    outputs: list[Tensor]


# ------------------------------------------------------- encode and decode

# With a new Packer each time: while one packs, the collector may destroy what packs something too.
_pack: Callable[[Any], bytes] = msgpack.packb


def encode(message: Any) -> bytes:
    """The header of a message. Raises nothing for messages made of what their fields name."""
    return _pack((VERSION, _NUMBERS[type(message)], *message))


_new: Callable[[type[Any], list[Any]], Any] = tuple.__new__  # a constructor less its counting


class _Form:
    """How one class's array must look: which types where, and the bounds of each field."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        self.fields: tuple[str, ...] = cls._fields
        self.kinds: list[str] = [t.__forward_arg__ for t in cls.__annotations__.values()]
        self.types: frozenset[tuple[type, ...]] = frozenset(
            itertools.product(*(self._types(kind) for kind in self.kinds))
        )
        self.integers = [(i, *INTEGERS[k]) for i, k in enumerate(self.kinds) if k in INTEGERS]
        self.lengths = [(i, *LENGTHS[k][1:]) for i, k in enumerate(self.kinds) if k in LENGTHS]
        self.correlations = [i for i, k in enumerate(self.kinds) if k == "Correlation"]
        self.ids = [i for i, k in enumerate(self.kinds) if k == "Ids"]
        self.rows = [(i, k[5:-1]) for i, k in enumerate(self.kinds) if k.startswith("list[")]
        self.lists = [*self.ids, *(i for i, _ in self.rows)]

    @staticmethod
    def _types(kind: str) -> tuple[type, ...]:
        if kind in INTEGERS:
            return (int,)
        if kind in LENGTHS:
            return (LENGTHS[kind][0],)
        return (int, str) if kind == "Correlation" else (list,)

    def read(self, row: list[Any]) -> Any:
        """The message or row, made of this list; ProtocolError names what is wrong with it."""
        if tuple(map(type, row)) not in self.types:
            raise ProtocolError(f"{self.cls.__name__}: fields of wrong types or number")
        for i, low, high in self.integers:
            if not low <= row[i] <= high:
                raise ProtocolError(f"{self.cls.__name__}: {self.fields[i]} is out of range")
        for i, low, high in self.lengths:
            if not low <= len(row[i]) <= high:
                raise ProtocolError(f"{self.cls.__name__}: {self.fields[i]} is too long or short")
        for i in self.correlations:
            value = row[i]
            if len(value) > 1024 if type(value) is str else not 0 <= value < 2**64:
                raise ProtocolError(f"{self.cls.__name__}: {self.fields[i]} is out of range")
        for i in self.lists:
            if row[i]:
                self._read_lists(row)
                break
        return _new(self.cls, row)

    def _read_lists(self, row: list[Any]) -> None:
        for i in self.ids:
            if len(row[i]) > MAX_ROWS or any(type(x) is not int or x < 0 for x in row[i]):
                raise ProtocolError(f"{self.cls.__name__}: {self.fields[i]} holds no list of ids")
        for i, name in self.rows:
            if len(row[i]) > MAX_ROWS:
                raise ProtocolError(f"{self.cls.__name__}: too many {self.fields[i]}")
            read = FORMS[name].read
            try:
                row[i] = [read(entry) for entry in row[i]]
            except TypeError:
                raise ProtocolError(f"{self.cls.__name__}: no rows in {self.fields[i]}") from None


FORMS: dict[str, _Form] = {cls.__name__: _Form(cls) for cls in (*ROWS, *KINDS.values())}
_BY_KIND: dict[int, _Form] = {number: FORMS[cls.__name__] for number, cls in KINDS.items()}


def decode(header: bytes, limit: int = MAX_HEADER_BYTES) -> Any:
    """The message of a header. Raises ProtocolError for anything that is none, and nothing else."""
    if len(header) > limit:
        raise ProtocolError(f"a header of {len(header)} bytes")
    try:
        array = msgpack.unpackb(header)
    except (ValueError, RecursionError):
        raise ProtocolError("a header that is no msgpack") from None
    if type(array) is not list or len(array) < 2 or type(array[1]) is not int:
        raise ProtocolError("a header that is no array of version, kind and fields")
    if array[0] != VERSION:
        raise ProtocolError(f"a message of protocol version {array[0]!r}, here is {VERSION}")
    form = _BY_KIND.get(array[1])
    if form is None:
        raise ProtocolError(f"a message of the unknown kind {array[1]}")
    return form.read(array[2:])


_REFERENCE = _Form(Reference)


def encode_body(body: RequestBody | ResponseBody) -> bytes:
    """The frame of a body; tensors' data may be any buffer."""
    return _pack(body)


def _tensors(rows: Any) -> list[Tensor]:
    tensors = []
    for row in rows:
        name, datatype, shape, data = row
        if type(data) is list:
            data = _REFERENCE.read(data)
        elif type(data) is not bytes:
            raise ValueError
        if (type(name), type(datatype), type(shape)) != (str, int, list) or len(shape) > 32:
            raise ValueError
        for dim in shape:
            if type(dim) is not int or not 0 <= dim < 2**63:
                raise ValueError
        tensors.append(Tensor(name, datatype, shape, data))
    return tensors


def decode_request(body: bytes) -> RequestBody:
    """Raises ProtocolError where the body is none of a request."""
    try:
        request_id, parameters, outputs, inputs = msgpack.unpackb(body)
        if type(request_id) is not str or type(parameters) is not dict or type(outputs) is not list:
            raise ValueError
        return RequestBody(request_id, parameters, outputs, _tensors(inputs))
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("a body that is no request") from None


def decode_response(body: bytes) -> ResponseBody:
    """Raises ProtocolError where the body is none of a response."""
    try:
        parameters, outputs = msgpack.unpackb(body)
        if type(parameters) is not dict:
            raise ValueError
        return ResponseBody(parameters, _tensors(outputs))
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("a body that is no response") from None
