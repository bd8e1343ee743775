"""Calls without TLS to a port that speaks it: what they are told, and what they may cost."""

from __future__ import annotations

import hpack
import pytest

from tests.frontends.http2.talk import REQUEST, Frame, frames_of, kinds
from tests.support import raw_http2 as h2
from zmqtriton_frontends.grpc_api.transport.server import PlainCalls
from zmqtriton_frontends.http2 import frames

pytestmark = pytest.mark.slow

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


def test_a_call_is_told_and_need_not_send_its_rest() -> None:
    client = Client()

    sent = client.send(client.headers(1), h2.data_frame(1, b"a request"))

    # no GOAWAY: a large call that is about to begin would be lost with it
    assert [(h2.HEADERS, 1), (h2.RESET, 1)] == kinds(sent)[-2:]
    assert h2.GOAWAY not in {frame.kind for frame in sent}
    assert frames.END_STREAM | frames.END_HEADERS == sent[-2].flags
    assert _TOLD == client.read(sent[-2])


def test_later_calls_are_told_too() -> None:
    client = Client()
    client.send(client.headers(1), h2.data_frame(1, bytes(1000)))

    heads = [client.headers(number) for number in (3, 5)]
    sent = client.send(h2.data_frame(1, bytes(9000)), *heads)

    answers = [frame for frame in sent if frame.kind == h2.HEADERS]
    assert [3, 5] == [answer.stream for answer in answers]
    assert [_TOLD, _TOLD] == [client.read(answer) for answer in answers]
    assert not client.calls.is_complete


def test_what_is_no_call_is_not_told_that_it_succeeded() -> None:
    client = Client()

    sent = client.send(client.headers(1, content_type="text/plain"))

    assert [{":status": "415"}] == [client.read(one) for one in sent if one.kind == h2.HEADERS]


def test_however_many_calls_come_few_are_answered() -> None:
    client = Client()

    sent = client.send(*(client.headers(number) for number in range(1, 20_001, 2)))

    assert 100 == sum(frame.kind == h2.HEADERS for frame in sent)
    assert len(sent) < 1000
    assert client.calls.is_complete


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", h2.PREFACE + bytes(9) + b"\xff" * 100])
def test_what_is_not_http2_is_over_at_once(data: bytes) -> None:
    calls = PlainCalls()

    sent = frames_of(calls.answer(data))

    assert (h2.GOAWAY, 0) == kinds(sent)[-1]
    assert calls.is_complete
