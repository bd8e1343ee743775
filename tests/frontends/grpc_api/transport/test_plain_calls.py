"""Calls: their headers, counts, and messages that wait."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any

import grpc
import hpack
import pytest

from tests.frontends.grpc_api.fake_gateway import INFER, LIVE, STREAM, written
from tests.frontends.grpc_api.serving import GrpcServerThread
from tests.frontends.http2.talk import REQUEST, Frame, Heard, Talk, frames_of, kinds
from tests.support import raw_http2 as h2
from tests.support.shares import share_of
from tests.support.waiting import eventually
from zmqtriton_frontends.grpc_api.handlers import Rpc
from zmqtriton_frontends.grpc_api.transport import account
from zmqtriton_frontends.grpc_api.transport.call_headers import (
    RpcHeaders,
    only_trailers,
    percent_encoded,
    read_opening,
)
from zmqtriton_frontends.grpc_api.transport.inbox import Inbox
from zmqtriton_frontends.grpc_api.transport.server import PlainCalls
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.connection import is_request
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.ledger import Book, Ledger
from zmqtriton_frontends.process.turns import Turns

pytestmark = pytest.mark.slow


# ------------------------------------------------------------------------- plain calls
# Calls without TLS to a port that speaks it: what they are told, and what they may cost.


_TOLD = {
    ":status": "200",
    "content-type": "application/grpc",
    "grpc-status": "14",
    "grpc-message": "this port speaks TLS: use a secure channel (with tritonclient: ssl=True)",
}


class Client:
    def __init__(self) -> None:
        self.calls = PlainCalls()
        self._encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self.send(h2.PREFACE + h2.settings_frame({}))

    def send(self, *data: bytes) -> list[Frame]:
        return frames_of(self.calls.answer(b"".join(data)))

    def headers(self, number: int, **more: str) -> bytes:
        fields = dict(REQUEST) | {name.replace("_", "-"): value for name, value in more.items()}
        return h2.frame(h2.HEADERS, h2.END_HEADERS, number, self._encoder.encode([*fields.items()]))

    def read(self, answer: Frame) -> dict[str, str]:
        return dict(self._decoder.decode(answer.payload))  # type: ignore[arg-type]


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_call_is_told_and_need_not_send_its_rest(client: Client) -> None:
    sent = client.send(client.headers(1), h2.data_frame(1, b"a request"))

    # no GOAWAY: a large call that is about to begin would be lost with it
    assert [(h2.HEADERS, 1), (h2.RESET, 1)] == kinds(sent)[-2:]
    assert h2.GOAWAY not in {frame.kind for frame in sent}
    assert frames.END_STREAM | frames.END_HEADERS == sent[-2].flags
    assert _TOLD == client.read(sent[-2])


def test_later_calls_are_told_too(client: Client) -> None:
    client.send(client.headers(1), h2.data_frame(1, bytes(1000)))

    heads = [client.headers(number) for number in (3, 5)]
    sent = client.send(h2.data_frame(1, bytes(9000)), *heads)

    answers = [frame for frame in sent if frame.kind == h2.HEADERS]
    assert [3, 5] == [answer.stream for answer in answers]
    assert [_TOLD, _TOLD] == [client.read(answer) for answer in answers]
    assert not client.calls.is_complete


def test_what_is_no_call_is_not_told_that_it_succeeded(client: Client) -> None:
    sent = client.send(client.headers(1, content_type="text/plain"))

    assert [{":status": "415"}] == [client.read(one) for one in sent if one.kind == h2.HEADERS]


def test_however_many_calls_come_few_are_answered(client: Client) -> None:
    sent = client.send(*(client.headers(number) for number in range(1, 20_001, 2)))

    assert 100 == sum(frame.kind == h2.HEADERS for frame in sent)
    assert len(sent) < 1000
    assert client.calls.is_complete


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", h2.PREFACE + bytes(9) + b"\xff" * 100])
def test_what_is_not_http2_is_over_at_once(data: bytes) -> None:
    calls = PlainCalls()

    assert (h2.GOAWAY, 0) == kinds(frames_of(calls.answer(data)))[-1]
    assert calls.is_complete


# ------------------------------------------------------------------------ call headers


RPC = Rpc("a.B", "C", "inference")


HEADERS = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": b"/a.B/C",
    b"te": b"trailers",
    b"content-type": b"application/grpc",
}


def read_fields(fields: dict[bytes, bytes]) -> RpcHeaders:
    opening = read_opening(tuple((HEADERS | fields).items()), {b"/a.B/C": RPC})
    assert opening is not None
    return opening


def read(**more: str) -> RpcHeaders:
    return read_fields({k.replace("_", "-").encode(): v.encode() for k, v in more.items()})


def refusal(**more: str) -> dict[bytes, bytes]:
    """Return what answers it."""
    opening = read(**more)
    assert opening.rpc is None
    decoded: Any = hpack.Decoder().decode(opening.refusal, raw=True)
    return dict(decoded)


def test_a_request_is_read() -> None:
    opening = read(grpc_timeout="20S", grpc_encoding="gzip", grpc_accept_encoding="gzip, br", k="v")

    assert opening.rpc is RPC
    assert (20.0, "gzip", {"gzip", "br"}) == (
        opening.timeout_s,
        opening.encoding,
        set(opening.accepts),
    )
    assert (("k", "v"),) == opening.metadata()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600.0), ("2M", 120.0), ("3S", 3.0), ("4m", 0.004), ("5u", 5e-6), ("99999999n", 0.1)],
)
def test_timeouts_have_units(text: str, seconds: float) -> None:
    assert seconds == pytest.approx(read(grpc_timeout=text).timeout_s)


def test_metadata_in_base64_are_bytes() -> None:
    for text in ("AAH/", "AAE", "AAE="):
        ((name, value),) = read(key_bin=text).metadata()
        assert "key-bin" == name
        assert isinstance(value, bytes)
        assert b"\x00\x01" == value[:2]


@pytest.mark.parametrize("text", ["", "S", "123456789S", "-1S", "1s", "1.5S"])
def test_what_is_no_timeout_is_refused(text: str) -> None:
    assert b"13" == refusal(grpc_timeout=text)[b"grpc-status"]


def test_other_refusals_say_why() -> None:
    assert b"415" == refusal(content_type="application/grpc-web")[b":status"]
    assert b"415" == refusal(content_type="text/plain")[b":status"]
    assert b"13" == refusal(k_bin="A")[b"grpc-status"]
    unknown = refusal(grpc_encoding="snappy")
    assert (b"12", b"identity,deflate,gzip") == (
        unknown[b"grpc-status"],
        unknown[b"grpc-accept-encoding"],
    )
    opening = read_fields({b":path": b"/a.B/D"})
    assert (only_trailers(12, ""), 12) == (opening.refusal, opening.refusal_code)
    opening = read_fields({b":method": b"GET"})
    assert opening.refusal.startswith(b"\x08\x03405")
    assert 2 == opening.refusal_code  # what a client of gRPC makes of it


@pytest.mark.parametrize(
    "headers",
    [
        (),
        tuple(HEADERS.items())[1:],
        ((b":path", b"/x"), *HEADERS.items()),
        ((b"Upper", b"x"), *HEADERS.items()),
        ((b"", b"x"), *HEADERS.items()),
        ((b"a b", b"x"), *HEADERS.items()),
    ],
)
def test_what_is_no_request_is_read_by_nobody(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    assert not is_request(headers)


@pytest.mark.parametrize("text", ["plain", "", "100% ~", "ünï\n\0", "\ud800"])
def test_a_text_can_be_read_back_from_what_is_sent(text: str) -> None:
    sent = percent_encoded(text)

    assert sent.isascii()
    assert sent.decode().isprintable()
    assert text.encode("utf-8", "replace") == urllib.parse.unquote_to_bytes(sent)


# ------------------------------------------------------------------------- call counts
# The counts of calls, by the status that their clients get.


def forget_now() -> None:
    account.by_status[:] = [0] * len(account.NAMES)


@pytest.fixture(autouse=True)
def no_counts() -> None:
    forget_now()


def status_of(call: Any) -> str:
    """Return the status with which a call of gRPC's own library has ended."""
    try:
        call()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code.name
    return "OK"


def is_counted(counts: dict[str, int]) -> None:
    eventually(lambda: account.counts() == counts, 60, f"{counts}")


def test_each_call_is_counted_once_by_the_status_that_its_client_gets(
    server: GrpcServerThread,
) -> None:
    with grpc.insecure_channel(server.address) as channel:
        infer, stream = channel.unary_unary(INFER), channel.stream_stream(STREAM)
        unknown = channel.unary_unary(LIVE.replace("ServerLive", "NoSuchMethod"))
        statuses = [
            status_of(lambda: infer(written(), timeout=20)),
            status_of(lambda: list(stream(iter([written(), written()]), timeout=20))),
            status_of(lambda: infer(written("no_such_model"), timeout=20)),
            status_of(lambda: infer(b"\xff", timeout=20)),
            status_of(lambda: unknown(b"", timeout=20)),
        ]

    assert statuses[:2] == ["OK", "OK"]
    assert "OK" not in statuses[2:]
    is_counted({name: statuses.count(name) for name in statuses})


def test_calls_that_are_not_answered_are_counted_too(server: GrpcServerThread) -> None:
    server.hold()
    with grpc.insecure_channel(server.address) as channel:
        infer = channel.unary_unary(INFER)
        assert "DEADLINE_EXCEEDED" == status_of(lambda: infer(written(), timeout=0.2))
    # a client may end its call a moment before the server does
    eventually(lambda: sum(account.counts().values()) == 1, 60)
    forget_now()

    # When clients leave, one of them with a stream
    with h2.Connection(server.port) as connection:
        connection.send(h2.headers_frame(1, INFER), h2.data_frame(1, written()))
        connection.send(h2.headers_frame(3, STREAM), h2.data_frame(3, written()))
        eventually(lambda: len(server.gateway.requests) >= 3, 60)
        connection.send(h2.reset_frame(1))
        is_counted({"CANCELLED": 1})

    is_counted({"CANCELLED": 2})


def test_a_client_that_leaves_an_answer_unread_does_not_make_it_two(
    server: GrpcServerThread,
) -> None:
    with h2.Connection(server.port, h2.PREFACE + h2.NO_WINDOW) as connection:
        connection.send(
            h2.headers_frame(1, INFER), h2.data_frame(1, written(), flags=h2.END_STREAM)
        )
        is_counted({"OK": 1})
        connection.send(h2.reset_frame(1))
        connection.send(h2.headers_frame(3, LIVE), h2.data_frame(3, b"", flags=h2.END_STREAM))
        eventually(lambda: account.counts() != {"OK": 1}, 60)

    assert {"OK": 2} == account.counts()


# ------------------------------------------------------------------------------- inbox
# Bytes of a client that wait for its turn.


class Transport:
    is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return False


def test_bytes_that_somebody_still_refers_to_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The frames of an error do, for as long as that is kept."""
    talk, transport = Talk(), Transport()
    talk.open(1)
    parts, rounds = list[tuple[bytes, memoryview]](), list[Callable[[], None]]()
    monkeypatch.setattr(Heard, "on_data", lambda self, data: parts.append((bytes(data), data)))
    turns = Turns(rounds.append, clock=lambda: 0.0)
    inbox = Inbox(
        ConnectedClient(Ledger(1000), turns, lambda _: None),
        share_of(Book()),
        talk.connection,
        transport,
        lambda: None,
    )

    for text in (b"first", b"second"):
        inbox.kept += h2.data_frame(1, text)
        inbox.resume()
        rounds.pop()()

    assert [b"first", b"second"] == [data[5:] for data, _ in parts]
    assert transport.is_reading
    inbox.kept += b"third"
    inbox.close()
    assert not inbox.kept
