"""The protocol: what encodes decodes, and nothing else does."""

from __future__ import annotations

import functools
import gc
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import eventually
from tools import protocol_page
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.reasons import Kind, Reason

_TOKEN = b"0123456789abcdef"
_TENSOR = wire.Tensor("INPUT0", 11, [1, 4], b"\0" * 16)

#: One of each kind.
SAMPLES: tuple[Any, ...] = (
    wire.Hello(
        7,
        _TOKEN,
        1,
        [wire.RequestKey(3, 5)],
        [wire.Outcome(3, 4, 0, "", 1)],
        1,
    ),
    wire.Infer([wire.Request(5, 7, "", -1, 3, 0, 9, 0, 1, 8, "s", b"k")]),
    wire.Cancel([1, 2]),
    wire.AskStatistics(4, "m", -1, 1),
    wire.Results(
        [wire.Outcome(1, 5, 0, "", 1, 2, [wire.Block(7, 1, 2)])],
        [wire.Executed(3, 1, 2, 3)],
        response_counts="[]",
    ),
    wire.ExpectPeer(7, _TOKEN, "stub", "m_0", 99),
    wire.AddGeneration(7, "m", 1, "{}"),
    wire.AttachInstance(7, 8, "m_0"),
    wire.Retire(7),
    wire.RemoveGeneration(7, "why"),
    wire.PeerDied(7, "why"),
    wire.Execute([wire.BatchedRequest(1, 3, 5, 0, 0, 0, 0)]),
    wire.CancelExecution([wire.RequestKey(3, 2**63 - 1)]),
    wire.LoadModel("m_0", "m", 1, "CPU", 0, "/r/m", "/r/m/1/model.py", "{}", 1),
    wire.Initialize("{}"),
    wire.Finalize(),
    wire.Bootstrap(7, _TOKEN, "stub", "/run", 1, "{}"),
    wire.VersionInfo(7, "m", 1, "READY", None, 1, "{}", b"\x08", 1, '{"O":["a"]}', 0, "{{x}}", 1),
    wire.ForgetModel("m"),
    wire.Sync(9),
    wire.Welcome(1),
    wire.Replies([wire.Reply(5, 0, "", 1, 2, 7)]),
    wire.CallResult(4, 3, "no", ""),
    wire.Listen(),
    wire.Shutdown(30_000),
    wire.Synced(9),
    wire.Call(4, "index", "{}"),
    wire.Opened([wire.ServiceAddress("HTTPService", "0.0.0.0:8000")]),
    wire.WorkerForked(42),
    wire.ConfigCompleted("{}"),
    wire.ModelLoaded(),
    wire.LoadFailed(Reason.of(Kind.EXITED, "why", status=3)),
    wire.LogLine("I", "model.py", 5, "hi"),
    wire.Drained(7),
    wire.FirstExecutionDone(7),
    wire.ExecutionOverdue(
        7, Reason.of(Kind.OTHER, "why", Reason.of(Kind.KILLED, "x", signal="SIGKILL"))
    ),
    wire.StreamAcks([wire.StreamAck(3, 5, 64)]),
    wire.Lease([wire.Block(7, 1, 2)]),
    wire.Release([wire.Block(7, 1, 2)]),
    wire.CreateSegment(1, 1 << 20, b""),
    wire.SegmentCreated(1, 0, ""),
    wire.FreeSegment(1),
    wire.OpenSegment(7, 1),
    wire.SegmentOpened(7, 1, 1 << 20, b"handle"),
    wire.NewEpoch(2),
    wire.AddRegion(3, "input_data", 4096, 64, 1),
    wire.RemoveRegion(3),
    wire.RegionReleased(3),
    wire.HeldBlocks([wire.Block(7, 1, 2)], 1),
    wire.LeasesReported(),
    wire.LogSettings("{}"),
    wire.ReadinessLifeline(),
    wire.WaitReport([wire.WaitEdge(0, 5, 2)]),
    wire.ModelCalled(7, "m"),
    wire.TraceSettings("{}"),
    wire.Span("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "{}"),
    wire.ConnectionLost(7),
    wire.HostInstance(1, "m_0_0"),
    wire.RepositoryState(1, 1),
    wire.StageTimes(5, 40, 1, 2, 3),
    wire.TrafficSplit("m", 1, 2, 1000, "x-canary", "1", 500, "0.001", "x-user"),
    wire.ServerDraining(1),
    wire.PreparationProgress(1, "Reading x", 5, 9),
    wire.Settled(3, 5),
    wire.StreamListener(),
    wire.MemoryGrowth(256, 1 << 20, 1 << 28),
    wire.Mismatch("sent 'Z'"),
    wire.Progress(3, 5, 400),
    wire.ThreadEnded(7),
    wire.LeasesSent(3),
    wire.LeasedSegments(5, [1, 3]),
    wire.LimitsRest(7, 1),
    wire.Kept(1, "weights of the class"),
)
NESTED = [*Reason("KILLED", {"signal": "SIGKILL"}, "killed")]
GOLDEN = Path(__file__).parent / "golden.txt"


def test_there_is_a_sample_of_each_kind() -> None:
    assert list(wire.KINDS.values()) == [type(message) for message in SAMPLES]


def test_each_kind_has_the_bytes_that_this_version_gives_it() -> None:
    golden = dict(line.split() for line in GOLDEN.read_text().splitlines())

    assert golden == {type(m).__name__: wire.encode(m).hex() for m in SAMPLES}


@pytest.mark.parametrize("message", SAMPLES, ids=lambda m: type(m).__name__)
def test_what_is_encoded_decodes_to_the_same(message: Any) -> None:
    assert message == wire.decode(wire.encode(message))


@pytest.mark.parametrize(
    "reason",
    [
        [1, {}, "", None],
        ["OTHER", {"a": None}, "", None],
        ["OTHER", {"a": [1]}, "", None],
        ["OTHER", {1: "a"}, "", None],
        ["OTHER", {str(n): n for n in range(65)}, "", None],
        ["OTHER", {}, "", ["OTHER", {}, ""]],
        ["OTHER", {}, "", [*NESTED, 1]],
        functools.reduce(lambda cause, _: ["OTHER", {}, "", cause], range(500), None),
    ],
    ids=range(8),
)
def test_a_reason_that_is_none_is_refused(reason: Any) -> None:
    kind = next(number for number, cls in wire.KINDS.items() if cls is wire.LoadFailed)

    with pytest.raises(ProtocolError):
        wire.decode(msgpack.packb([wire.VERSION, kind, reason, 2]))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (wire.Cancel([0, -1]), "Cancel: ids is not a list of ids"),
        (wire.Cancel([-1] * wire.MAX_ROWS), "Cancel: ids is not a list of ids"),
        (wire.Cancel([1] * (wire.MAX_ROWS + 1)), "Cancel: ids is too long or short"),
        (wire.Welcome(-1), "Welcome: epoch is out of range"),
        (wire.Welcome(1 << 63), "Welcome: epoch is out of range"),
        (wire.Welcome(True), "Welcome: epoch is of the wrong type"),
        (
            wire.Infer([wire.Request(5, 7, "", -1, 1 << 32, 0, 0, 0, 1, 8, 0)]),
            "Request: flags is out of range",
        ),
        (
            wire.Infer([wire.Request(5, 7, "", -1, 0, 0, 0, 0, 1, 8, 0, placement=-1)]),
            "Request: placement is out of range",
        ),
    ],
    ids=range(8),
)
def test_a_refusal_names_the_field_and_what_is_wrong_with_it(message: Any, text: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{text}$"):
        wire.decode(wire.encode(message))


def test_a_header_above_the_limit_is_refused_unread() -> None:
    with pytest.raises(ProtocolError, match="bytes"):
        wire.decode(b"\xc1" * (wire.MAX_HEADER_BYTES + 1))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_decode_and_never_do_worse(data: bytes) -> None:
    for read in (wire.decode, wire.decode_request, wire.decode_response):
        try:
            read(data)
        except ProtocolError:
            continue


@pytest.mark.slow
def test_mutated_messages_are_refused_or_decode_and_never_do_worse() -> None:
    chance = random.Random(1)
    frames = [wire.encode(m) for m in SAMPLES]
    frames.append(wire.encode_body(wire.RequestBody("id", {"a": 1}, ["O"], [_TENSOR])))
    refused = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(frames))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        for read in (wire.decode, wire.decode_request, wire.decode_response):
            try:
                read(bytes(data[: chance.choice([len(data), chance.randrange(len(data))])]))
            except ProtocolError:
                refused += 1
    assert refused > 20_000


@pytest.mark.parametrize(
    "body",
    [
        [],
        ["id", {}, [], [["T", 11, [1]]], []],
        ["id", {}, [], [["T", 11, [-1], b""]], []],
        ["id", {}, [], [["T", 11, [1.0], b""]], []],
        ["id", {}, [], [["T", 11, [1] * 33, b""]], []],
        ["id", {}, [], [["T", 11, [1], "text"]], []],
        ["id", {}, [], [["T", 11, [1], [7, 1, 2, 0]]], []],
        ["id", {}, [], [["T", 11, [1], [7, 1, 2, -1, 4]]], []],
        ["id", {}, [], [[7, 11, [1], b""]], []],
        ["id", [], [], [], []],
        [7, {}, [], [], []],
        ["id", {}, [], []],
        ["id", {}, [], [], ""],
        ["id", {}, [], [], [7]],
        ["id", {}, [], [["T", 11, [1], None]], []],
        ["id", {}, [], [], [["O", 5, 1 << 32, -1, 8]]],
        ["id", {}, [], [], [["O", 5, 1 << 32, 0]]],
    ],
)
def test_what_is_no_request_is_refused(body: Any) -> None:
    with pytest.raises(ProtocolError):
        wire.decode_request(msgpack.packb(body))


class _LastWord:
    """Says something when the collector destroys it, as senders and tensors of models do."""

    def __init__(self, said: list[bytes]) -> None:
        self._said = said
        self._own = self

    def __del__(self) -> None:
        self._said.append(wire.encode(wire.Finalize()))


def test_what_is_destroyed_while_a_message_is_made_may_make_one_too() -> None:
    body = wire.ResponseBody({}, [wire.Tensor("X", 11, [1], b"abcd")])
    expected, word = wire.encode_body(body), wire.encode(wire.Finalize())
    made: list[bytes] = []
    said: list[bytes] = []
    threshold = gc.get_threshold()
    gc.set_threshold(1)  # so that it comes amid the work

    try:
        for _ in range(100):
            _LastWord(said)
            made.append(wire.encode_body(body))
    finally:
        gc.set_threshold(*threshold)

    assert [expected] * 100 == made
    # it does nothing while another thread, such as an earlier test's, collects
    eventually(lambda: gc.collect() >= 0 and len(said) == 100, 30)
    assert [word] * 100 == said


def test_the_documentation_is_what_the_protocol_says() -> None:
    page = Path(__file__).parents[2] / "docs" / "protocol.md"

    assert protocol_page.describe() == page.read_text()
