"""Malformed requests (RFC 9113): refused stream by stream, at the cost of who sends them."""

from __future__ import annotations

import struct

import pytest

from tests.frontends.http2.talk import REQUEST, Talk
from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.header_blocks import literal
from zmqtriton_frontends.http2.stream import Stream

END = h2.END_HEADERS | h2.END_STREAM
_PLAIN = [(name.encode(), value.encode()) for name, value in REQUEST]
_REGULAR = [(b"content-type", b"application/grpc")]
_METHOD, _SCHEME, _PATH = _PLAIN[:3]

#: By the section of RFC 9113 that says so.
MALFORMED = {
    "8.2: upper case": [*_PLAIN, (b"X-Name", b"v")],
    "8.2.1: a space in a name": [*_PLAIN, (b"a b", b"v")],
    "8.2.1: no name": [*_PLAIN, (b"", b"v")],
    "8.2.1: NUL in a value": [*_PLAIN, (b"k", b"a\0b")],
    "8.2.1: CR LF in a value": [*_PLAIN, (b"k", b"a\r\nb: c")],
    "8.2.1: white space around a value": [_METHOD, _SCHEME, (b":path", b" /x"), *_REGULAR],
    "8.2.2: connection": [*_PLAIN, (b"connection", b"close")],
    "8.2.2: transfer-encoding": [*_PLAIN, (b"transfer-encoding", b"chunked")],
    "8.2.2: upgrade": [*_PLAIN, (b"upgrade", b"h2c")],
    "8.2.2: te": [*_PLAIN, (b"te", b"gzip")],
    "8.3: unknown": [_METHOD, _SCHEME, _PATH, (b":colour", b"red"), *_REGULAR],
    "8.3: of a response": [_METHOD, _SCHEME, _PATH, (b":status", b"200"), *_REGULAR],
    "8.3: misplaced": [_METHOD, _SCHEME, *_REGULAR, _PATH],
    "8.3: twice": [_METHOD, _METHOD, _SCHEME, _PATH, *_REGULAR],
    "8.3.1: no method": [_SCHEME, _PATH, *_REGULAR],
    "8.3.1: no scheme": [_METHOD, _PATH, *_REGULAR],
    "8.3.1: no path": [_METHOD, _SCHEME, *_REGULAR],
    "8.3.1: an empty path": [_METHOD, _SCHEME, (b":path", b""), *_REGULAR],
    "8.1.1: a length that is none": [*_PLAIN, (b"content-length", b"1x")],
    "8.1.1: two lengths": [*_PLAIN, (b"content-length", b"1"), (b"content-length", b"1")],
}


def _resets(talk: Talk) -> list[tuple[int, int]]:
    """Stream and code of each reset."""
    return [
        (frame.stream, int.from_bytes(frame.payload, "big"))
        for frame in talk.frames()
        if frame.kind == h2.RESET
    ]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_reset_and_nothing_else(name: str) -> None:
    talk = Talk()

    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, literal(MALFORMED[name])))

    assert [(1, frames.PROTOCOL_ERROR)] == _resets(talk)
    assert {} == talk.streams
    assert ["begin", "end"] == talk.open(3, flags=END).events


@pytest.mark.parametrize("value", [b" v", b"v ", b"\tv\t", b" "])
def test_blanks_around_metadata_are_kept_as_by_other_servers_of_grpc(value: bytes) -> None:
    talk = Talk()

    talk.send(h2.frame(h2.HEADERS, END, 1, literal([*_PLAIN, (b"k", value)])))

    assert [] == _resets(talk)
    assert ["begin", "end"] == talk.streams[1].events
    assert (b"k", value) in talk.streams[1].headers


@pytest.mark.parametrize(
    "trailers",
    [[_PATH], [(b":status", b"200")], [(b"connection", b"close")], [(b"K", b"v")]],
    ids=["request", "response", "connection", "upper case"],
)
def test_malformed_trailers_reset_their_stream(trailers: list[tuple[bytes, bytes]]) -> None:
    talk = Talk()
    heard = talk.open(1)

    talk.send(h2.frame(h2.HEADERS, END, 1, literal(trailers)))

    assert [(1, frames.PROTOCOL_ERROR)] == _resets(talk)
    assert ["begin", "reset"] == heard.events


@pytest.mark.parametrize("flags", [0, h2.END_STREAM])
@pytest.mark.parametrize(("length", "is_right"), [(4, False), (5, True), (6, False)])
def test_a_length_must_be_that_of_the_data(length: int, is_right: bool, flags: int) -> None:
    talk = Talk()
    headers = [*_PLAIN, (b"content-length", b"%d" % length)]
    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, literal(headers)))

    talk.send(h2.frame(h2.DATA, flags, 1, b"hello"))
    if not flags:
        talk.send(h2.frame(h2.DATA, h2.END_STREAM, 1))

    assert (["begin", "end"] if is_right else ["begin", "reset"]) == talk.streams[1].events
    assert ([] if is_right else [(1, frames.PROTOCOL_ERROR)]) == _resets(talk)


def test_resets_that_a_client_causes_are_its_own() -> None:
    talk = Talk()
    talk.send(h2.settings_frame({}))
    # Each is refused for a window that overflows.
    overflow = struct.pack(">I", 2**31 - 1)
    for number in range(1, 60_000, 2):
        if talk.connection.is_done:
            break
        talk.send(
            h2.frame(h2.HEADERS, h2.END_HEADERS, number, talk.block()),
            h2.frame(h2.WINDOW, 0, number, overflow),
        )

    answer = talk.goaway()
    assert answer is not None
    assert frames.ENHANCE_YOUR_CALM == answer[0]


def test_windows_of_streams_that_have_ended_cost_their_client() -> None:
    talk = Talk()
    talk.open(1)
    talk.send(h2.reset_frame(1))

    talk.send(h2.frame(h2.WINDOW, 0, 1, struct.pack(">I", 1)) * 2000)

    answer = talk.goaway()
    assert answer is not None
    assert frames.ENHANCE_YOUR_CALM == answer[0]


def test_of_all_windows_that_one_frame_sets_the_last_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Talk(max_streams=10_000)
    for number in range(1, 2001, 2):
        talk.open(number)
    visited: list[int] = []
    has_room = talk.connection.has_room

    def visit(stream: Stream) -> None:
        visited.append(stream.id)
        has_room(stream)

    monkeypatch.setattr(talk.connection, "has_room", visit)
    pairs = b"".join(struct.pack(">HI", 4, 1000 + n) for n in range(2700))

    talk.send(h2.frame(4, 0, 0, pairs))

    assert 1000 == len(visited)
    assert {1000 + 2699} == {stream.window for stream in talk.connection.streams.values()}


def test_changing_all_windows_again_and_again_ends_the_connection() -> None:
    talk = Talk(max_streams=10_000)
    for number in range(1, 4001, 2):
        talk.open(number)

    for size in range(200):
        talk.send(h2.settings_frame({4: 1000 + size}))

    answer = talk.goaway()
    assert answer is not None
    assert frames.ENHANCE_YOUR_CALM == answer[0]
