"""Requirements of RFC 9113 and RFC 7541 on a server, by the numbers that h2spec gives to its cases.

A case is what a client sends after the introduction, and what the server has to do: go on, reset
the stream, or end the connection. Where the RFCs allow several answers, ours is one of them.
Cases without a word before their number are those of http2/, counted as in RFC 7540 by h2spec.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from tests.frontends.http2.talk import REQUEST, Talk, data_of
from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.header_blocks import literal
from zmqtriton_frontends.http2.reading import FRAME_BYTES

PRIORITY, PUSH_PROMISE, UNKNOWN = 2, 5, 0x16
PADDED, HAS_PRIORITY = 8, 32
END = h2.END_STREAM | h2.END_HEADERS
_FIELDS = [(name.encode(), value.encode()) for name, value in REQUEST]
BLOCK = literal(_FIELDS)
_PROTOCOL, _CLOSED = frames.PROTOCOL_ERROR, frames.STREAM_CLOSED
_SIZE, _FLOW, _HPACK = frames.FRAME_SIZE_ERROR, frames.FLOW_CONTROL_ERROR, frames.COMPRESSION_ERROR


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def headers(stream: int = 1, flags: int = h2.END_HEADERS, block: bytes = BLOCK) -> bytes:
    return h2.frame(h2.HEADERS, flags, stream, block)


def data(stream: int = 1, flags: int = 0, payload: bytes = b"hello") -> bytes:
    return h2.frame(h2.DATA, flags, stream, payload)


def more(stream: int = 1, flags: int = h2.END_HEADERS, block: bytes = b"") -> bytes:
    return h2.frame(h2.CONTINUATION, flags, stream, block)


def window(stream: int, increment: int) -> bytes:
    return h2.frame(h2.WINDOW, 0, stream, number(increment))


def priority(stream: int, on: int, weight: int = 15) -> bytes:
    return h2.frame(PRIORITY, 0, stream, number(on) + bytes([weight]))


def reset(stream: int, code: int = frames.CANCEL) -> bytes:
    return h2.frame(h2.RESET, 0, stream, number(code))


def settings(key: int, value: int) -> bytes:
    return h2.settings_frame({key: value})


def request(*fields: tuple[bytes, bytes]) -> bytes:
    """A request with these fields in place of the usual ones."""
    return headers(flags=END, block=literal(list(fields)))


class Goes(NamedTuple):
    """The connection goes on, and so do others on it; the stream hears this."""

    events: tuple[str, ...] = ()


class Reset(NamedTuple):
    """The stream is reset with one of these codes, and the connection goes on."""

    codes: tuple[int, ...]


class Ends(NamedTuple):
    """The connection ends with one of these codes."""

    codes: tuple[int, ...]


WHOLE = ("begin", "end")
PROTOCOL = Ends((_PROTOCOL,))
_METHOD, _SCHEME, _PATH, _TYPE = _FIELDS

CASES: dict[str, tuple[bytes, Goes | Reset | Ends]] = {
    "generic/2.1: PRIORITY on an idle stream": (priority(1, 0) + headers(flags=END), Goes(WHOLE)),
    "generic/2.2: WINDOW_UPDATE on a half-closed stream": (
        headers(flags=END) + window(1, 100),
        Goes(WHOLE),
    ),
    "generic/2.3: PRIORITY on a half-closed stream": (
        headers(flags=END) + priority(1, 0),
        Goes(WHOLE),
    ),
    "generic/2.4: RST_STREAM on a half-closed stream": (
        headers(flags=END) + reset(1),
        Goes((*WHOLE, "reset")),
    ),
    "generic/2.5: PRIORITY on a closed stream": (
        headers(flags=END) + reset(1) + priority(1, 0),
        Goes((*WHOLE, "reset")),
    ),
    "generic/3.1/1: DATA": (headers() + data(flags=h2.END_STREAM), Goes(WHOLE)),
    "generic/3.1/2: several DATA": (
        headers() + data() + data(flags=h2.END_STREAM),
        Goes(WHOLE),
    ),
    "generic/3.1/3: padded DATA": (
        headers() + data(flags=h2.END_STREAM | PADDED, payload=b"\3hello\0\0\0"),
        Goes(WHOLE),
    ),
    "generic/3.2/2: padded HEADERS": (
        headers(flags=END | PADDED, block=b"\2" + BLOCK + b"\0\0"),
        Goes(WHOLE),
    ),
    "generic/3.2/3: HEADERS with a priority": (
        headers(flags=END | HAS_PRIORITY, block=number(0) + b"\xff" + BLOCK),
        Goes(WHOLE),
    ),
    "generic/3.3/5: PRIORITY that is exclusive": (
        headers(flags=END) + priority(3, 0x80000001),
        Goes(WHOLE),
    ),
    "generic/3.4/1: RST_STREAM": (headers() + reset(1), Goes(("begin", "reset"))),
    "generic/3.7/1: PING": (h2.frame(h2.PING, 0, 0, b"12345678") + headers(flags=END), Goes(WHOLE)),
    "generic/3.8/1: GOAWAY": (
        headers(flags=END) + h2.frame(h2.GOAWAY, 0, 0, number(0) + number(0)),
        Goes(WHOLE),
    ),
    "generic/3.9/1: WINDOW_UPDATE of the connection": (
        window(0, 1) + headers(flags=END),
        Goes(WHOLE),
    ),
    "generic/3.9/2: WINDOW_UPDATE of a stream": (headers(flags=END) + window(1, 1), Goes(WHOLE)),
    "generic/3.10/1: CONTINUATION": (
        headers(flags=h2.END_STREAM, block=BLOCK[:9]) + more(block=BLOCK[9:]),
        Goes(WHOLE),
    ),
    "generic/3.10/2: several CONTINUATIONs": (
        headers(flags=h2.END_STREAM, block=BLOCK[:9])
        + more(flags=0, block=BLOCK[9:12])
        + more(block=BLOCK[12:]),
        Goes(WHOLE),
    ),
    "generic/4/4: trailers": (
        headers() + data() + headers(flags=END, block=literal([(b"k", b"v")])),
        Goes(WHOLE),
    ),
    "4.1/1: a frame of an unknown kind": (
        h2.frame(UNKNOWN, 0, 0, b"12345678") + headers(flags=END),
        Goes(WHOLE),
    ),
    "4.1/2: a flag without a meaning": (
        h2.frame(h2.PING, 0x16, 0, b"12345678") + headers(flags=END),
        Goes(WHOLE),
    ),
    "4.1/3: the reserved bit": (
        h2.frame(h2.PING, 0, 0x80000000, b"12345678") + headers(flags=END),
        Goes(WHOLE),
    ),
    "4.2/1: DATA of the largest size": (
        headers() + data(flags=h2.END_STREAM, payload=bytes(1 << 14)),
        Goes(WHOLE),
    ),
    "4.2/2: DATA that is too large": (
        headers() + struct.pack(">I", FRAME_BYTES + 1)[1:] + bytes([h2.DATA, 0]) + number(1),
        Ends((_SIZE,)),
    ),
    "4.2/3: HEADERS that are too large": (
        struct.pack(">I", FRAME_BYTES + 1)[1:] + bytes([h2.HEADERS, END]) + number(1),
        Ends((_SIZE,)),
    ),
    "4.3/1: a block that cannot be read": (headers(block=b"\x40\x01"), Ends((_HPACK,))),
    "4.3/2: PRIORITY within a block": (headers(flags=0) + priority(1, 0), PROTOCOL),
    "4.3/3: HEADERS of another stream within a block": (
        headers(flags=0) + headers(3),
        PROTOCOL,
    ),
    "5.1/1: DATA on an idle stream": (data(), PROTOCOL),
    "5.1/1: DATA on a stream of a server": (headers(3) + data(2), PROTOCOL),
    "5.1/2: RST_STREAM on an idle stream": (reset(1), PROTOCOL),
    "5.1/3: WINDOW_UPDATE on an idle stream": (window(1, 100), PROTOCOL),
    "5.1/4: CONTINUATION on an idle stream": (more(), PROTOCOL),
    "5.1/5: DATA on a half-closed stream": (headers(flags=END) + data(), Reset((_CLOSED,))),
    "5.1/6: HEADERS on a half-closed stream": (
        headers(flags=END) + headers(flags=END),
        Reset((_CLOSED,)),
    ),
    "5.1/7: CONTINUATION on a half-closed stream": (
        headers(flags=END) + more(),
        Ends((_CLOSED, _PROTOCOL)),
    ),
    "5.1/8: DATA after RST_STREAM": (headers() + reset(1) + data(), Ends((_CLOSED,))),
    "5.1/9: HEADERS after RST_STREAM": (
        headers() + reset(1) + headers(flags=END),
        Ends((_CLOSED, _PROTOCOL)),
    ),
    "5.1/10: CONTINUATION after RST_STREAM": (
        headers() + reset(1) + more(),
        Ends((_CLOSED, _PROTOCOL)),
    ),
    "5.1.1/1: an even number": (headers(2), PROTOCOL),
    "5.1.1/2: a number below another one": (headers(5) + headers(3), Ends((_PROTOCOL, _CLOSED))),
    "5.4.1/1: the end of a connection": (h2.frame(h2.PING, 0, 3, bytes(8)), PROTOCOL),
    "5.5/1: an unknown frame of an extension": (
        h2.frame(UNKNOWN, 0, 0, b"") + headers(flags=END),
        Goes(WHOLE),
    ),
    "5.5/2: an unknown frame within a block": (
        headers(flags=0) + h2.frame(UNKNOWN, 0, 1, b""),
        PROTOCOL,
    ),
    "6.1/1: DATA on stream 0": (data(0), PROTOCOL),
    "6.1/2: DATA on a stream that is not open": (
        headers(flags=END) + data(),
        Reset((_CLOSED,)),
    ),
    "6.1/3: more padding than DATA": (headers() + data(flags=PADDED, payload=b"\6hello"), PROTOCOL),
    "6.2/3: HEADERS on stream 0": (headers(0), PROTOCOL),
    "6.2/4: more padding than HEADERS": (
        headers(flags=h2.END_HEADERS | PADDED, block=bytes([len(BLOCK) + 1]) + BLOCK),
        PROTOCOL,
    ),
    "6.3/1: PRIORITY on stream 0": (priority(0, 0), PROTOCOL),
    "6.3/2: PRIORITY of another length": (
        headers() + h2.frame(PRIORITY, 0, 1, b"1234"),
        Reset((_SIZE,)),
    ),
    "6.4/1: RST_STREAM on stream 0": (reset(0), PROTOCOL),
    "6.4/3: RST_STREAM of another length": (
        headers() + h2.frame(h2.RESET, 0, 1, b"123"),
        Ends((_SIZE,)),
    ),
    "6.5/1: an acknowledgement that says something": (
        h2.frame(h2.SETTINGS, frames.ACK, 0, b"1"),
        Ends((_SIZE,)),
    ),
    "6.5/2: SETTINGS of a stream": (h2.frame(h2.SETTINGS, 0, 1), PROTOCOL),
    "6.5/3: SETTINGS of another length": (h2.frame(h2.SETTINGS, 0, 0, b"123"), Ends((_SIZE,))),
    "6.5.2/1: ENABLE_PUSH that is neither 0 nor 1": (settings(2, 2), PROTOCOL),
    "6.5.2/2: a window that is too large": (settings(4, 1 << 31), Ends((_FLOW,))),
    "6.5.2/3: frames that are too small": (settings(5, (1 << 14) - 1), PROTOCOL),
    "6.5.2/4: frames that are too large": (settings(5, 1 << 24), PROTOCOL),
    "6.5.2/5: an unknown setting": (settings(0xFF, 1) + headers(flags=END), Goes(WHOLE)),
    "6.7/3: PING of a stream": (h2.frame(h2.PING, 0, 1, bytes(8)), PROTOCOL),
    "6.7/4: PING of another length": (h2.frame(h2.PING, 0, 0, bytes(6)), Ends((_SIZE,))),
    "6.8/1: GOAWAY of a stream": (h2.frame(h2.GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    "6.9/1: a connection's window that does not grow": (window(0, 0), PROTOCOL),
    "6.9/2: a stream's window that does not grow": (headers() + window(1, 0), Reset((_PROTOCOL,))),
    "6.9/3: WINDOW_UPDATE of another length": (
        h2.frame(h2.WINDOW, 0, 0, b"123"),
        Ends((_SIZE,)),
    ),
    "6.9.1/2: a connection's window beyond 2^31 - 1": (window(0, 2**31 - 1) * 2, Ends((_FLOW,))),
    "6.9.1/3: a stream's window beyond 2^31 - 1": (
        headers() + window(1, 2**31 - 1) * 2,
        Reset((_FLOW,)),
    ),
    "6.10/2: HEADERS within a block": (
        headers(flags=h2.END_STREAM, block=BLOCK[:9]) + headers(3),
        PROTOCOL,
    ),
    "6.10/3: CONTINUATION on stream 0": (headers(flags=0) + more(0), PROTOCOL),
    "6.10/4: CONTINUATION after the end of a block": (headers() + more(), PROTOCOL),
    "6.10/5: CONTINUATION after the last one": (headers(flags=0) + more() + more(), PROTOCOL),
    "6.10/6: CONTINUATION after DATA": (headers() + data() + more(), PROTOCOL),
    "7/1: GOAWAY with an unknown code": (
        h2.frame(h2.GOAWAY, 0, 0, number(0) + number(0xFF)) + h2.frame(h2.PING, 0, 0, bytes(8)),
        Goes(),
    ),
    "7/2: RST_STREAM with an unknown code": (
        headers() + reset(1, 0xFF),
        Goes(("begin", "reset")),
    ),
    "8.1/1: HEADERS that are neither first nor last": (
        headers() + headers(),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2/1: a name in upper case": (request(*_FIELDS, (b"X-Test", b"ok")), Reset((_PROTOCOL,))),
    "8.1.2.1/1: an unknown pseudo-header": (
        request(_METHOD, _SCHEME, _PATH, (b":test", b"ok"), _TYPE),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.1/2: a pseudo-header of responses": (
        request(_METHOD, _SCHEME, _PATH, (b":status", b"200"), _TYPE),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.1/3: a pseudo-header in the trailers": (
        headers() + headers(flags=END, block=literal([(b":method", b"200")])),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.1/4: a pseudo-header after others": (
        request(_METHOD, _SCHEME, _TYPE, _PATH),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.2/1: a field of the connection": (
        request(*_FIELDS, (b"connection", b"keep-alive")),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.2/2: te that is not trailers": (
        request(*_FIELDS, (b"te", b"trailers, deflate")),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.3/1: an empty path": (
        request(_METHOD, _SCHEME, (b":path", b""), _TYPE),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.3/2: no method": (request(_SCHEME, _PATH, _TYPE), Reset((_PROTOCOL,))),
    "8.1.2.3/3: no scheme": (request(_METHOD, _PATH, _TYPE), Reset((_PROTOCOL,))),
    "8.1.2.3/4: no path": (request(_METHOD, _SCHEME, _TYPE), Reset((_PROTOCOL,))),
    "8.1.2.3/5: two methods": (request(_METHOD, *_FIELDS), Reset((_PROTOCOL,))),
    "8.1.2.3/6: two schemes": (request(_SCHEME, *_FIELDS), Reset((_PROTOCOL,))),
    "8.1.2.3/7: two paths": (request(_PATH, *_FIELDS), Reset((_PROTOCOL,))),
    "8.1.2.6/1: another length than the DATA has": (
        headers(block=literal([*_FIELDS, (b"content-length", b"1")]))
        + data(flags=h2.END_STREAM, payload=b"test"),
        Reset((_PROTOCOL,)),
    ),
    "8.1.2.6/2: another length than several DATA have": (
        headers(block=literal([*_FIELDS, (b"content-length", b"1")]))
        + data(payload=b"t")
        + data(flags=h2.END_STREAM, payload=b"est"),
        Reset((_PROTOCOL,)),
    ),
    "8.2/1: PUSH_PROMISE of a client": (
        headers() + h2.frame(PUSH_PROMISE, h2.END_HEADERS, 1, number(2) + BLOCK),
        PROTOCOL,
    ),
    "hpack/2.3.3/1: an index that is nobody's": (headers(block=b"\xff\x0f"), Ends((_HPACK,))),
    "hpack/2.3.3/2: a name by an index that is nobody's": (
        headers(block=b"\x7f\x20\x01v"),
        Ends((_HPACK,)),
    ),
    "hpack/4.2/1: a new size at the end of a block": (
        headers(block=BLOCK + b"\x20"),
        Ends((_HPACK,)),
    ),
    "hpack/5.2/1: padding of more than seven bits": (
        headers(block=BLOCK + b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"),
        Ends((_HPACK,)),
    ),
    "hpack/5.2/2: padding with zeros": (
        headers(block=BLOCK + b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"),
        Ends((_HPACK,)),
    ),
    "hpack/5.2/3: the symbol for the end": (
        headers(block=BLOCK + b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"),
        Ends((_HPACK,)),
    ),
    "hpack/6.1/1: index 0": (headers(block=b"\x80"), Ends((_HPACK,))),
    "hpack/6.3/1: a table that is too large": (
        headers(block=b"\x3f\xe2\x1f" + BLOCK),
        Ends((_HPACK,)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_section_is_kept(name: str) -> None:
    sent, expected = CASES[name]
    talk = Talk()

    talk.send(sent)

    frames_sent = talk.frames()
    went = [int.from_bytes(f.payload[4:8], "big") for f in frames_sent if f.kind == frames.GOAWAY]
    resets = [int.from_bytes(f.payload, "big") for f in frames_sent if f.kind == frames.RST_STREAM]
    if isinstance(expected, Ends):
        assert len(went) == 1
        assert went[0] in expected.codes
        return
    assert went == []
    if isinstance(expected, Reset):
        assert resets
        assert set(resets) <= set(expected.codes)
    else:
        assert resets == []
        assert tuple(talk.streams[1].events if 1 in talk.streams else ()) == expected.events
    if not name.startswith("generic/3.8") and not name.startswith("7/1"):
        assert talk.open(7, flags=END).events == ["begin", "end"]


@pytest.mark.parametrize(
    ("first", "then", "size"),
    [
        (settings(4, 1), b"", 1),
        (settings(4, 0), settings(4, 1), 1),
        (settings(4, 3), settings(4, 2) + window(1, 2), 4),
        (h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HIHI", 4, 100, 4, 1)), b"", 1),
    ],
    ids=["6.9.1/1", "6.9.2/1", "6.9.2/2", "6.5.3/1"],
)
def test_what_is_sent_fits_into_the_window_of_the_client(
    talk: Talk, first: bytes, then: bytes, size: int
) -> None:
    talk.send(first)
    talk.connection.send(talk.open(1, flags=END), [b"hello"])
    talk.send(then)
    talk.connection.go_on()

    assert size == len(data_of(talk.frames(), 1))
