"""The protocol between zmqtriton's processes. Nothing else in the project builds or splits frames.

A message on a ZeroMQ socket is
    +--------+--------+--------+---
    | header | body 0 | body 1 | ...      one body for each row of the header's list of rows
    +--------+--------+--------+---

and just the header on a lifeline or the control socket. On a stub's publisher the topic (see
endpoints.py) precedes the header in the same frame.

The **header** is one msgpack array `[VERSION, kind, field, field, ...]`. The fields are those of
the kind's class below; a row in a list is the array of the row's fields. The **body** is one
`RequestBody` or `ResponseBody`, which the broker forwards unread.

Three conversations between frontend (F), broker (B), stub (S) and supervisor (V):

    a stub starts            an inference           a load
    V ── Bootstrap ───▶ S    F ── Infer ────▶ B     F ── Call ─────────────────────────▶ V
    V ── ExpectPeer ──▶ B    B ── Execute ──▶ S     V ── LoadModel, Initialize ────────▶ S
    V ── LoadModel ───▶ S    S ── Results ──▶ B     S ── ModelLoaded ──────────────────▶ V
    S ── ModelLoaded ─▶ V    B ── Replies ──▶ F     V ── AddGeneration, AttachInstance ▶ B
    S ── Hello ───────▶ B                           V ── VersionInfo ──────────────────▶ F
                                                    V ── CallResult ───────────────────▶ F

A Sync after the messages of a load asks for a Synced, so that the load is answered only when they
have taken effect everywhere.

A header that does not decode raises `ProtocolError` naming kind and field; its reader counts and
drops it. `python -m tools.protocol_page` prints the tables as Markdown: docs/protocol.md.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Tuple, Type, TypeVar, Union

import msgpack

from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.reasons import Reason as Reason
from zmqtriton_floor.schemas import MAX_DOCUMENT as MAX_DOCUMENT
from zmqtriton_floor.schemas import MAX_ROWS as MAX_ROWS
from zmqtriton_floor.schemas import Schema

#: Incremented with each incompatible change; all processes of a server must agree on it.
VERSION = 1

#: A larger header is refused unread; the second limit is for lifelines and the broker's replies.
MAX_HEADER_BYTES, MAX_CONTROL_BYTES = 1 << 20, 256 << 20

# Field types. To Python they are plain types; decode() enforces the bounds of each (schemas.py).
Count = int  # 0 ... 2^63-1
Number = int  # -2^63 ... 2^63-1
Code = int  # 0: no error, else ZmqTritonError.number, or a status from 400 on
Flags = int  # 0 ... 2^32-1
Name = str  # up to 1024 characters
Text = str  # up to 64 Ki characters
Document = str  # up to 64 Mi characters: a configuration, arguments, a result as JSON
Blob = bytes  # up to 64 MiB
Token = bytes  # exactly 16 bytes
Correlation = Union[int, str]  # a sequence's id: an integer, or a string of up to 1024 characters
Ids = List[int]
# and Values of a Reason, by name: integers, floats and texts (reasons.py)

#: Maximum number of blocks that are released along with requests or a batch. More of them are
#: released in messages of their own.
MAX_RELEASED = 256

#: The texts of mismatches that are kept of a process.
MAX_MISMATCHES = 16

#: The peer of requests that the broker makes for steps of ensembles, and of what it keeps itself.
BROKER = 0

# Flags of a request; the first two have Triton's values.
SEQUENCE_START, SEQUENCE_END = 1, 2
RESENT = 4  # sent before to a broker that has died since
ONE_RESPONSE = 8  # from a model: refuse it if the target is decoupled
UNCHECKED = 16  # set by the broker: from a model, so nobody has checked its inputs yet
CALLER_BLOCKS = 32  # from a model: its process executes nothing else until this is answered
ACCEPTS_GPU = 64  # the caller takes response tensors on a GPU as they are
PADDING = 128  # set by the broker: fills an empty sequence slot; inputs without data are zeros
SEQUENCE_OVER = 256  # set by the broker: its sequence has ended; alone in a batch, not executed
WANT_DIGESTS = 512  # set by the broker: references to large outputs must carry digests
TRACE_TENSORS = 1024  # its trace, if any, includes its tensors
HAS_REFERENCES = 2048  # of a model's request or a reply: only then may a tensor be a Reference
ANSWERS_WAIT = 4096  # set by the broker: not all answers have left it, since somebody reads none
WANT_STAGES = 8192  # of a client's request: StageTimes come with each reply, and Progress
BYTE_WINDOW = 16384  # its reader is a client, for whom STREAM_WINDOW_BYTES hold, too
UNREAD_STRINGS = 32768  # inputs are where its frontend cannot read them: the stub checks strings
KEEPS_INPUTS = 65536  # of a client's request: its memory stays until its answer has been read
ANY_VERSION = 131072  # of a client's request without a version: another one may answer it, too
STREAM_WINDOW = 256  # unacknowledged responses of one request; the final one does not count
STREAM_WINDOW_BYTES = 8 << 20  # with BYTE_WINDOW; one that exceeds them is the last to leave
FINAL = 1  # a flag of an outcome and of a reply
ABANDONED = 2  # of a reply: nothing more is passed on; the final one only frees the inputs
BELOW_ALL = 2**63 - 1  # a priority: behind all others, with and without levels
FORWARDED = 4  # with HAS_REFERENCES: to inputs of the request alone, and nothing is leased for it
SENT = 8  # of an outcome and a reply: no response, but the number that left before a broker died
LOAD, READINGS, PAGE = 1, 2, 3  # kinds of AskStatistics; 0: all counters


# ---------------------------------------------------------------------- rows


class Request(NamedTuple):
    """An inference request of a frontend or a model; its body is a RequestBody."""

    id: Count  # numbered by the requesting peer, never reused
    generation: Count  # that it was checked against; 0: see model and version
    model: Name  # "" where the generation is given
    version: Number  # -1: the highest that is ready
    flags: Flags  # those above, from SEQUENCE_START to ANY_VERSION
    priority: Count  # 0: the model's default
    timeout_us: Count  # in the queue; 0: the model's default
    deadline_ns: Count  # CLOCK_MONOTONIC, the same on the whole machine; 0: none
    batch_size: Count  # 0 where the model does not batch
    batch_key: Count  # equal keys may share a batch
    correlation: Correlation  # 0 or "": no sequence
    cache_key: Blob = b""  # 32 bytes; equal keys have equal answers; empty: no cache lookup
    trace: Name = ""  # the span that it belongs to, see spans.py; "": not traced
    caller_peer: Count = 0  # from a model: the peer and ...
    # ... the id of the request that it asks this for; from a frontend: its number of the token
    caller_id: Count = 0
    placement: Count = 0  # equal ones go to the same instance; 0: any


class BatchedRequest(NamedTuple):
    """One request of a batch, sent to a stub; its body is the request's, unread."""

    batch: Count  # rows with the same number form one call of execute()
    peer: Count  # the requesting peer, and ...
    id: Count  # ... its id for the request: together the key of the request
    flags: Flags  # of the request, or PADDING or SEQUENCE_OVER
    correlation: Correlation
    priority: Count
    timeout_us: Count
    trace: Name = ""  # of the request's own span
    deadline_ns: Count = 0


class Block(NamedTuple):
    """A piece of a segment that holds a tensor; leased to every holder of a reference to it."""

    owner: Count  # serial of the process whose arena it is
    segment: Count  # numbered by its owner, never reused
    block: Count  # likewise: each use of a block has a number of its own


class Outcome(NamedTuple):
    """One response or error of a stub; its body is a ResponseBody or, with an error, empty."""

    peer: Count
    id: Count
    code: Code
    text: Text
    flags: Flags  # FINAL: the last one of its request
    number: Count = 0  # index of this response; of a bare FINAL, and of SENT: how many there were
    blocks: list[Block] = []  # leased to the receiver of the body; released one by one


class StreamAck(NamedTuple):
    """The number of responses that a reader has taken; repeated while it is at the next one."""

    peer: Count
    id: Count
    responses: Count  # taken by the reader, in total
    passed: Count = 0  # have left STREAM_WINDOW_BYTES; as many were taken, or more of an ensemble's


class Executed(NamedTuple):
    """execute() has returned, so the instance is free. Durations are those of the batch."""

    batch: Count
    input_ns: Count
    infer_ns: Count
    output_ns: Count
    begun_ns: Count = 0  # on the clock of all processes; 0 counts as when the batch was sent


class Reply(NamedTuple):
    """An outcome, forwarded to the peer that made the request."""

    id: Count
    code: Code
    text: Text
    flags: Flags
    number: Count = 0  # index of the response; of an error of the broker: retry_after_ms
    source: Count = 0  # serial of the stub that answered; 0: the broker itself


class RequestKey(NamedTuple):
    """Identifies one request."""

    peer: Count
    id: Count


class WaitEdge(NamedTuple):
    """An edge of the wait-for graph: a batch waits for the next reply to a request."""

    batch: Count  # 0: any batch of this process
    id: Count
    received: Count  # replies when this was observed; one more removes the edge


class ServiceAddress(NamedTuple):
    """A service of a process, and the address that clients connect to."""

    service: Name
    address: Name


# ------------------------------------------------- messages to the broker


class Hello(NamedTuple):
    """The first message of a connection; tells a new broker what a dead one knew.

    Bodies: one for each unconfirmed outcome.
    """

    serial: Count
    token: Token
    epoch: Count
    received: list[RequestKey] = []  # from a stub: requests that lack a final answer
    unconfirmed: list[Outcome] = []  # from a stub: final answers of the last second
    is_executing: Flags = 0  # from a stub: batches in execute(); an Executed follows for each
    concurrency: Count = 1  # from a stub: batches that it executes at the same time
    is_continued: Flags = 0  # from a stub: another Hello follows with the rest of both lists


class Infer(NamedTuple):
    """The requests of one iteration of a frontend's event loop. Bodies: one for each."""

    requests: list[Request]
    released: list[Block] = []  # as in a Release that comes before them


class Cancel(NamedTuple):
    """Cancels requests; each still gets its one final reply."""

    ids: Ids


class AskStatistics(NamedTuple):
    """Requests the counters of a model (version -1: of all versions) or, without name, of all.

    A CallResult follows.
    """

    id: Count
    model: Name
    version: Number
    kind: Flags = 0  # LOAD: how busy it is; READINGS: what is new; PAGE: with metrics of models


class StreamAcks(NamedTuple):
    """Acknowledges responses of streams; forwarded to the stubs that send them."""

    acks: list[StreamAck]


class Lease(NamedTuple):
    """Adds a lease for each block, for a request that outlives its stub's own; to broker, owner.

    To a stub that owns the blocks it comes on the connection on which that executes, as releases
    do: before each release, and before each `LeasesSent` that counts it.
    """

    blocks: list[Block]


class Release(NamedTuple):
    """Ends one lease of each block; to broker and owner."""

    blocks: list[Block]


class HeldBlocks(NamedTuple):
    """After a Hello: the leases of this process on blocks of others, one entry per lease."""

    blocks: list[Block]
    is_last: Flags  # 0: more follow


class WaitReport(NamedTuple):
    """The calls that a stub's batches wait for. The broker asks for it with an empty one."""

    edges: list[WaitEdge]


class LeasesSent(NamedTuple):
    """To a stub that calls models: the number of leases that it got on its execution connection.

    The stub takes as many before a later reply on this connection ends a lease of its own: the
    block of an input may be leased to others because of that reply.
    """

    leases: Count


class LeasesReported(NamedTuple):
    """To owners: every peer has reported its leases.

    Blocks that were leased before this epoch and are not reported are free.
    """


class Results(NamedTuple):
    """Everything that happened in a stub since its last message. Bodies: one for each outcome."""

    outcomes: list[Outcome]
    executed: list[Executed]
    rescheduled: list[RequestKey] = []  # to be executed again by this stub, under the same keys
    response_counts: Document = (
        ""  # of streams since the last message: counts and times by index, JSON
    )


class ExpectPeer(NamedTuple):
    """Announces a peer and its token, and the process to kill should the supervisor die."""

    serial: Count
    token: Token
    role: Name
    label: Name
    pid: Count  # of its process and process group; 0: not started by the supervisor


class AddGeneration(NamedTuple):
    """Adds a generation of a model; requests for it wait until an instance is attached."""

    generation: Count
    model: Name
    version: Count
    config: Document


class AttachInstance(NamedTuple):
    """Attaches a stub that has loaded a generation; it may be given requests."""

    generation: Count
    serial: Count
    instance: Name
    resources: Document = ""  # of the rate limiter, as in zmqtriton.config.resources


class Retire(NamedTuple):
    """Stops accepting requests for a generation, or executing them in one stub; Drained follows.

    Generation 0: the server stops. Frontends get this one too, and tell their clients to go;
    Drained follows when no client has an open sequence.
    """

    generation: Count
    serial: Count = 0
    has_successor: Flags = 0  # 1: another server has the sockets, and serves them


class RemoveGeneration(NamedTuple):
    """Removes a generation; its unanswered requests fail as UNAVAILABLE with the reason."""

    generation: Count
    reason: Text


class PeerDied(NamedTuple):
    """A process has died. The requests that it was executing fail with the reason.

    Blocks that a guest's instance reads stay leased until the guest leaves, because its thread
    continues.
    """

    serial: Count
    reason: Text
    guest: Count = 0


# ------------------------------------------------------ messages to a stub


class Execute(NamedTuple):
    """Batches to execute, in this order. Bodies: one for each row."""

    requests: list[BatchedRequest]
    released: list[Block] = []  # as in a Release that comes before them


class CancelExecution(NamedTuple):
    """Makes is_cancelled() of these requests true; rescheduled ones have been answered already."""

    requests: list[RequestKey]


#: Value of LoadModel.auto_complete for a final config, which no Initialize follows.
CONFIG_IS_FINAL = 2


class LoadModel(NamedTuple):
    """Imports the model and, with auto_complete 1, completes its config: ConfigCompleted follows.

    With 2 the config is final, and no Initialize follows.
    """

    instance: Name  # m_0_0
    model: Name
    version: Count
    kind: Name  # CPU, GPU, MODEL
    device: Count
    directory: Text  # of the model: holds config.pbtxt
    path: Text  # of model.py
    config: Document
    auto_complete: Flags
    backend_settings: Document = "{}"  # --backend-config for its backend
    bytecode: Text = ""  # where its generation's bytecode is kept; "" for nowhere
    package: Name = ""  # that path lies in, of a backend of an add-on; "" for other code


class Initialize(NamedTuple):
    """The configuration is final: call initialize, send ModelLoaded, then Hello to the broker."""

    config: Document


class ReadinessLifeline(NamedTuple):
    """Carries a second lifeline, for the thread that answers probes with the model's is_ready."""


class StreamListener(NamedTuple):
    """Carries another listener for subscribers, since the file of the last one is gone."""


class Finalize(NamedTuple):
    """Calls finalize; then the stub exits."""


# ------------------------------------------- messages to frontends and all


class Bootstrap(NamedTuple):
    """The first message on every lifeline: the identity of the process and where the broker is."""

    serial: Count
    token: Token
    role: Name
    directory: Text
    epoch: Count
    settings: Document


class VersionInfo(NamedTuple):
    """The state of one version of a model; replaces earlier ones."""

    generation: Count  # 0: no generation of it serves
    model: Name
    version: Count  # 0: the model has no version
    state: Name  # Triton's: LOADING READY UNLOADING UNAVAILABLE
    reason: Reason | None  # why it is in this state
    ready_instances: Count
    config: Document
    config_proto: Blob
    has_is_ready: Flags = 0  # 1: its readiness is asked of the model, by the supervisor
    labels: Document = ""  # output -> names of its classes, as JSON; "": none
    is_on_demand: Flags = 0  # 1: loaded by requests, so the server is ready without it
    files: Document = ""  # parameter of an add-on -> text of the file that it names, as JSON
    is_draining: Flags = 0  # 1: to be avoided, so not ready, though requests are answered


class ForgetModel(NamedTuple):
    """Removes a model from the catalogue."""

    model: Name


class TrafficSplit(NamedTuple):
    """Divides the requests to a model that name no version; to broker and frontends."""

    model: Name
    stable: Count  # the version of those that the tried one does not get; 0: nothing is divided
    tried: Count  # the version that is tried
    weight: Count  # the tried version's part of them, of 10000
    header: Name = (
        ""  # requests with this header are the tried version's, in small letters; "": none
    )
    header_value: Text = ""  # ... and this value; "": any
    shadow: Count = 0  # of 10000 that are the stable version's, copied to the tried one
    tolerance: Name = "0"  # by which numbers of both answers may differ
    sticky: Name = ""  # by this header, or "id", the version is chosen; "": by chance


class RepositoryState(NamedTuple):
    """The repository at the start of the server: while it cannot be listed nothing is served."""

    is_missing: Flags
    is_moving: Flags = 0  # 1: requests wait for models, which another server has as yet


class ServerDraining(NamedTuple):
    """Clients should avoid the server: it still answers, but is not ready, and sends them away."""

    is_draining: Flags


class Sync(NamedTuple):
    """Requests a Synced with this number once everything sent before has taken effect."""

    number: Count


class Welcome(NamedTuple):
    """The broker has accepted the Hello."""

    epoch: Count


class Replies(NamedTuple):
    """The replies to requests. Bodies: one for each."""

    replies: list[Reply]


class StageTimes(NamedTuple):
    """The stages of a request that has WANT_STAGES, up to the reply that follows.

    0: not known by itself, as for the tensors of an ensemble.
    """

    id: Count
    queue_ns: Count
    input_ns: Count
    infer_ns: Count
    output_ns: Count


class Progress(NamedTuple):
    """The part of a request with WANT_STAGES that its model has done; forwarded to the peer."""

    peer: Count
    id: Count
    done: Count  # of 1000


class CallResult(NamedTuple):
    """The result of a Call, as JSON; or of an AskStatistics, by the broker.

    The latter is `model_stats` of the statistics extension, or `loads` or `readings`, as asked.
    """

    id: Count
    code: Code
    text: Text
    result: Document
    reason: Reason | None = None  # of an error, where it has more to it than the text


class Listen(NamedTuple):
    """To a frontend: accept connections."""


class Shutdown(NamedTuple):
    """Orderly shutdown: a frontend stops listening and finishes its requests; the broker exits."""

    within_ms: Count


# ------------------------------------------------ messages to the supervisor


class Synced(NamedTuple):
    """Answers a Sync."""

    number: Count


class Call(NamedTuple):
    """A control call of a frontend, a model or zmqtriton-ctl, or to the fork server or broker."""

    id: Count
    verb: Name
    arguments: Document  # JSON
    client: Name = ""  # on whose behalf, in words


class Kept(NamedTuple):
    """A template's report on the objects of its model's preload, after a load of new code."""

    is_kept: Flags
    text: Text  # names of what was kept, or else why nothing was


class CreateSegment(NamedTuple):
    """Requests a segment; SegmentCreated follows, with its descriptor or an error."""

    segment: Count  # numbered by its owner
    size: Count
    handle: Blob = b""  # of GPU memory that exists already: by which others open it
    is_gradual: Flags = 0  # its memory is made in steps, and counts as far as it is made


class SegmentCreated(NamedTuple):
    """Carries a memfd of the size that was asked for, or none with an error."""

    segment: Count
    code: Code
    text: Text


class FreeSegment(NamedTuple):
    """The owner has freed a segment; processes that have it mapped keep it until they unmap it."""

    segment: Count


class OpenSegment(NamedTuple):
    """Requests the descriptor of a segment to which a reference has come; SegmentOpened follows."""

    owner: Count
    segment: Count


class SegmentOpened(NamedTuple):
    """Carries the descriptor of a segment. Size 0: the segment does not exist, or no longer."""

    owner: Count
    segment: Count
    size: Count
    handle: Blob = b""  # instead of a descriptor, for memory on a GPU
    is_copied: Flags = 0  # of a region that was cut short before: read by its descriptor alone


class NewEpoch(NamedTuple):
    """A new broker: close the old sockets, connect to those of this epoch, send Hello."""

    epoch: Count  # 0, to frontends: the broker has died and the next one does not listen yet


class HostInstance(NamedTuple):
    """Asks a guest to run an instance of what it has bound.

    Carries the instance's lifeline, its page and its listener for subscribers.
    """

    binding: Count  # the guest's own number
    instance: Name  # m_0_0


class AddRegion(NamedTuple):
    """Registers a client's shared memory region; carries its descriptor, unless it is a GPU's."""

    number: Count  # never reused; names are
    name: Name
    offset: Count  # of the region in the descriptor's file
    size: Count
    can_be_mapped: Flags = 0  # by stubs: nobody can truncate it who could not kill them anyway
    gpu: Number = -1  # that it lies on; -1: none


class LogSettings(NamedTuple):
    """New log settings, in the form that Bootstrap has them, for every process that logs."""

    settings: Document


class TraceSettings(NamedTuple):
    """New trace settings, in the form that Bootstrap has them, for frontends."""

    settings: Document


class Span(NamedTuple):
    """To the tracing process: details of a span."""

    trace: Name  # name of the span, see spans.py
    details: Document


class RemoveRegion(NamedTuple):
    """Unregisters a region; RegionReleased follows when the last request that uses it has ended."""

    number: Count


class Opened(NamedTuple):
    """Answers Listen: the process does its work, and clients can connect to its services."""

    services: list[ServiceAddress]  # empty if it has no clients of its own


class RegionReleased(NamedTuple):
    """Answers a RemoveRegion: the region is no longer read or written here."""

    number: Count


class WorkerForked(NamedTuple):
    """Gunicorn's arbiter has forked a worker; carries the lifeline of the new process."""

    pid: Count


class ThreadEnded(NamedTuple):
    """An instance that is a thread has ended, and the others go on.

    From the supervisor: it does without the thread, which hangs.
    """

    serial: Count


class ConfigCompleted(NamedTuple):
    """auto_complete_config of the model has returned."""

    config: Document  # "" if the model has no such function


class ModelLoaded(NamedTuple):
    """initialize has returned."""

    has_is_ready: Flags = 0  # 1: the model has is_ready; a ReadinessLifeline must come first
    modules: Document = ""  # names of imported modules of installed packages, with blanks


class LoadFailed(NamedTuple):
    """Import, auto_complete_config, initialize or a warm-up sample failed; the stub exits."""

    reason: Reason
    code: Code = 2  # internal


class LogLine(NamedTuple):
    """A log line of the model's Logger or of the process itself."""

    level: Name  # I W E V
    file: Name
    line: Count
    text: Text
    traces: Text = ""  # of the traced requests that it is about: traceparents, with blanks


class PreparationProgress(NamedTuple):
    """The latest of what a helper of the supervisor prepares for a model."""

    call: Count  # that it was told to prepare it by
    title: Text  # what it does now
    done: Count
    total: Count  # 0: not known


class Drained(NamedTuple):
    """A retired generation or stub has no requests left; generation 0: no open sequences."""

    generation: Count
    serial: Count = 0


class Settled(NamedTuple):
    """No later broker needs a report of a stub, or of all stubs of a generation.

    All requests that it had begun are answered, and the answers have left the broker, so none of
    them is repeated. Follows the stub's last answer or its death.
    """

    generation: Count
    serial: Count = 0


class LeasedSegments(NamedTuple):
    """The segments of a dead process in which others still hold leases: the rest can be freed.

    Comes after its PeerDied, and again with each segment less, to the last one: without any.
    """

    owner: Count
    segments: Ids


class FirstExecutionDone(NamedTuple):
    """A stub has finished its first execution; if it dies later, that is not a failure to start."""

    serial: Count


class ExecutionOverdue(NamedTuple):
    """A stub has been executing for longer than its model allows."""

    serial: Count
    reason: Reason


class LimitsRest(NamedTuple):
    """The limit of the executions of a stub does not hold for now, or holds again."""

    serial: Count
    is_on: Flags


class ModelCalled(NamedTuple):
    """A generation has called a model by BLS for the first time."""

    generation: Count
    model: Name


class ConnectionLost(NamedTuple):
    """A peer's connection to the broker has ended, though its death is not known."""

    serial: Count


class MemoryGrowth(NamedTuple):
    """A stub's own memory has grown steadily from execution to execution; 0: no longer."""

    executions: Count
    before: Count  # in bytes
    after: Count


class Mismatch(NamedTuple):
    """A stub has seen for the first time that its model and its configuration differ."""

    text: Text


_KINDS: tuple[type[Any], ...] = (
    Hello,
    Infer,
    Cancel,
    AskStatistics,
    Results,
    ExpectPeer,
    AddGeneration,
    AttachInstance,
    Retire,
    RemoveGeneration,
    PeerDied,
    Execute,
    CancelExecution,
    LoadModel,
    Initialize,
    Finalize,
    Bootstrap,
    VersionInfo,
    ForgetModel,
    Sync,
    Welcome,
    Replies,
    CallResult,
    Listen,
    Shutdown,
    Synced,
    Call,
    Opened,
    WorkerForked,
    ConfigCompleted,
    ModelLoaded,
    LoadFailed,
    LogLine,
    Drained,
    FirstExecutionDone,
    ExecutionOverdue,
    StreamAcks,
    Lease,
    Release,
    CreateSegment,
    SegmentCreated,
    FreeSegment,
    OpenSegment,
    SegmentOpened,
    NewEpoch,
    AddRegion,
    RemoveRegion,
    RegionReleased,
    HeldBlocks,
    LeasesReported,
    LogSettings,
    ReadinessLifeline,
    WaitReport,
    ModelCalled,
    TraceSettings,
    Span,
    ConnectionLost,
    HostInstance,
    RepositoryState,
    StageTimes,
    TrafficSplit,
    ServerDraining,
    PreparationProgress,
    Settled,
    StreamListener,
    MemoryGrowth,
    Mismatch,
    Progress,
    ThreadEnded,
    LeasesSent,
    LeasedSegments,
    LimitsRest,
    Kept,
)
KINDS: dict[int, type[Any]] = dict(enumerate(_KINDS, start=1))
_NUMBERS = {cls: number for number, cls in KINDS.items()}
ROWS: tuple[type[Any], ...] = (
    Request,
    BatchedRequest,
    Block,
    Outcome,
    StreamAck,
    Executed,
    Reply,
    RequestKey,
    WaitEdge,
    Reason,
    ServiceAddress,
)


# ------------------------------------------------------------------- bodies


class Reference(NamedTuple):
    """The place of a large tensor. Readers check it against the real size of the segment."""

    owner: Count
    segment: Count
    block: Count
    offset: Count
    size: Count
    digest: Blob = b""  # of the bytes, for cache keys


class Tensor(NamedTuple):
    """A tensor of a body. BYTES elements have a 4-byte length prefix, as Triton has them."""

    name: Name
    datatype: Count  # TRITONSERVER_DataType, see tensors.py
    shape: list[int]
    data: Any  # bytes in C order, little endian; a Reference to them; None: they are in their Place


class Place(NamedTuple):
    """Room for an output in a client's region, which the stub writes to itself."""

    output: Name
    owner: Count  # the frontend that lends the region ...
    segment: Count  # ... under this number
    offset: Count  # in the region's file
    size: Count


class RequestBody(NamedTuple):
    """The part of a request that models see."""

    request_id: Name
    parameters: dict[str, Any]  # bool, int, float, str
    outputs: list[str]  # requested names; empty: all
    inputs: list[Tensor]
    places: list[Place] = []  # for those outputs that need not travel


class ResponseBody(NamedTuple):
    """The part of a response that clients see."""

    parameters: dict[str, Any]
    outputs: list[Tensor]


# ------------------------------------------------------- encode and decode

_Row = TypeVar("_Row")
#: Makes a message or row of all its fields, which are not counted again: for what every request
#: makes. It takes no defaults and is half as dear as the class.
make: Callable[[Type[_Row], Tuple[Any, ...]], _Row] = tuple.__new__  # type: ignore[assignment]

# a new Packer each time: while one packs, the collector may run a destructor that packs, too
_Packer: Callable[[], Any] = msgpack.Packer


def encode(message: Any) -> bytes:
    """Return the header of a message. Does not raise for fields of the declared types."""
    header: bytes = _Packer().pack((VERSION, _NUMBERS[type(message)], *message))
    return header


SCHEMAS: dict[str, Schema] = {}
SCHEMAS.update((cls.__name__, Schema(cls, SCHEMAS)) for cls in (*ROWS, *KINDS.values()))
_BY_KIND: dict[int, Schema] = {number: SCHEMAS[cls.__name__] for number, cls in KINDS.items()}


def decode(header: bytes, limit: int = MAX_HEADER_BYTES) -> Any:
    """Return the message of a header. Raises ProtocolError, and nothing else, if it is not one."""
    if len(header) > limit:
        raise ProtocolError(f"header too large: {len(header)} bytes")
    try:
        array = msgpack.unpackb(header)
    except (ValueError, RecursionError):
        raise ProtocolError("header is not msgpack") from None
    if type(array) is not list or len(array) < 2 or type(array[1]) is not int:
        raise ProtocolError("header is not an array of version, kind and fields")
    if array[0] != VERSION:
        raise ProtocolError(f"protocol version mismatch: got {array[0]!r}, expected {VERSION}")
    form = _BY_KIND.get(array[1])
    if form is None:
        raise ProtocolError(f"unknown message kind {array[1]}")
    try:
        return form.read(array[2:])
    except RecursionError:
        raise ProtocolError("rows within rows, too many") from None


_REFERENCE = Schema(Reference, SCHEMAS)
_PLACE = Schema(Place, SCHEMAS)


def encode_rows(kind: type[Any], *rows: Any) -> bytes:
    """Return the header of a message whose fields are these."""
    header: bytes = _Packer().pack((VERSION, _NUMBERS[kind], *rows))
    return header


def encode_body(body: RequestBody | ResponseBody) -> bytes:
    """Return the frame of a body; the data of tensors may be any buffer."""
    packed: bytes = _Packer().pack(body)
    return packed


def _tensors(rows: Any, may_refer: bool = True, has_places: bool = False) -> list[Tensor]:
    tensors = []
    for row in rows:
        name, datatype, shape, data = row
        if type(data) is list:
            if not may_refer:
                raise ProtocolError("the response refers to memory that it may not")
            data = _REFERENCE.read(data)
        elif type(data) is not bytes and not (data is None and has_places):
            raise ValueError
        if (type(name), type(datatype), type(shape)) != (str, int, list) or len(shape) > 32:
            raise ValueError
        for dim in shape:
            if type(dim) is not int or not 0 <= dim < 2**63:
                raise ValueError
        tensors.append(make(Tensor, (name, datatype, shape, data)))
    return tensors


def decode_request(packed: bytes) -> RequestBody:
    """Decode a request body. Raises ProtocolError if it is not one."""
    try:
        request_id, parameters, outputs, inputs, places = msgpack.unpackb(packed)
        if type(request_id) is not str or type(parameters) is not dict or type(outputs) is not list:
            raise ValueError
        if places:
            places = [*map(_PLACE.read, places)]
        elif type(places) is not list:
            raise ValueError
        return make(RequestBody, (request_id, parameters, outputs, _tensors(inputs), places))
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("body is not a request") from None


def references_in(tensors: Iterable[Tensor]) -> list[Reference]:
    """Return the references that tensors have in place of their data."""
    references = []
    for tensor in tensors:
        if type(tensor.data) is Reference:
            references.append(tensor.data)
    return references


def decode_response(
    packed: bytes, *, may_refer: bool = True, has_places: bool = False
) -> ResponseBody:
    """Decode a response body. Raises ProtocolError if it is not one, or refers where it may not.

    Outputs without data are right if the request `has_places`.
    """
    try:
        parameters, outputs = msgpack.unpackb(packed)
        if type(parameters) is not dict:
            raise ValueError
        return make(ResponseBody, (parameters, _tensors(outputs, may_refer, has_places)))
    except (ValueError, TypeError, RecursionError):
        raise ProtocolError("body is not a response") from None
