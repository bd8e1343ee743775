"""Frames are read as the RFC says, by its cases and beside wsproto."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from wsproto import events
from wsproto.connection import Connection, ConnectionType
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from zmqtriton_extras.web_sockets.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    INVALID_DATA,
    NO_CODE,
    PART,
    PING,
    PROTOCOL_ERROR,
    TEXT,
    TOO_LARGE,
    FrameReader,
    Message,
    Violation,
    accept_key,
    closing,
    frame,
)
from zmqtriton_extras.web_sockets.tests import conversations
from zmqtriton_extras.web_sockets.tests.conversations import client_frame

MAX_BYTES = 1 << 20


def read_all(reader: FrameReader, data: bytes) -> list[Message]:
    reader.feed(data)
    messages = []
    while (message := reader.read()) is not None:
        if message is not PART:
            messages.append(message)
    return messages


def violation_of(data: bytes, max_bytes: int = MAX_BYTES) -> int:
    with pytest.raises(Violation) as raised:
        read_all(FrameReader(max_bytes), data)
    return raised.value.code


def test_the_key_of_the_rfc_has_the_answer_of_the_rfc() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, MAX_BYTES])
@pytest.mark.parametrize("step", [1 << 30, 7, 4093])
def test_a_message_of_any_size_is_whole_however_it_comes(size: int, step: int) -> None:
    data = os.urandom(size)
    text = client_frame(BINARY, data)
    if len(text) // step > 10_000:
        step *= 1000
    reader, messages = FrameReader(MAX_BYTES), []

    for at in range(0, len(text), step):
        messages += read_all(reader, text[at : at + step])

    assert [Message(BINARY, data)] == messages
    assert reader.held_bytes == 0


def test_control_frames_come_between_the_parts_of_a_message() -> None:
    parts = (
        client_frame(TEXT, "grü".encode(), is_last=False),
        client_frame(PING, b"there?"),
        client_frame(CONTINUATION, b"", is_last=False),
        client_frame(CONTINUATION, b"n"),
    )

    messages = read_all(FrameReader(MAX_BYTES), b"".join(parts))

    assert [Message(PING, b"there?"), Message(TEXT, "grün".encode())] == messages


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (PROTOCOL_ERROR, frame(TEXT, 0)),
        (PROTOCOL_ERROR, client_frame(TEXT, b"", bits=0x40)),
        (PROTOCOL_ERROR, client_frame(3, b"")),
        (PROTOCOL_ERROR, client_frame(11, b"")),
        (PROTOCOL_ERROR, client_frame(PING, b"", is_last=False)),
        (PROTOCOL_ERROR, client_frame(PING, bytes(126))),
        (PROTOCOL_ERROR, client_frame(CONTINUATION, b"")),
        (PROTOCOL_ERROR, client_frame(TEXT, b"", is_last=False) + client_frame(TEXT, b"")),
        (PROTOCOL_ERROR, client_frame(CLOSE, b"\x03")),
        (PROTOCOL_ERROR, client_frame(CLOSE, (1005).to_bytes(2, "big"))),
        (PROTOCOL_ERROR, client_frame(CLOSE, (2999).to_bytes(2, "big"))),
        (INVALID_DATA, client_frame(TEXT, b"\xff")),
        (INVALID_DATA, client_frame(CLOSE, (1000).to_bytes(2, "big") + b"\xff")),
    ],
)
def test_bytes_that_are_no_message_end_the_connection_with_a_code(code: int, data: bytes) -> None:
    assert code == violation_of(data)


def test_a_message_is_refused_as_soon_as_it_says_that_it_is_too_large() -> None:
    whole = client_frame(BINARY, bytes(1001))
    parts = client_frame(BINARY, bytes(600), is_last=False) + client_frame(CONTINUATION, bytes(600))

    assert violation_of(whole[:8], 1000) == TOO_LARGE
    assert violation_of(parts[:-600], 1000) == TOO_LARGE


def test_a_ping_between_the_parts_of_a_message_is_no_part_of_its_size() -> None:
    parts = (
        client_frame(BINARY, bytes(950), is_last=False),
        client_frame(PING, bytes(100)),
        client_frame(CONTINUATION, bytes(50)),
    )

    messages = read_all(FrameReader(1000), b"".join(parts))

    assert [Message(PING, bytes(100)), Message(BINARY, bytes(1000))] == messages


@pytest.mark.parametrize(("width", "size"), [(2, 125), (8, 65_535), (8, 1 << 63)])
def test_a_length_has_the_fewest_bytes_that_it_needs(width: int, size: int) -> None:
    first = bytes((0x80 | BINARY, 0x80 | {2: 126, 8: 127}[width]))

    assert violation_of(first + size.to_bytes(width, "big") + bytes(4)) == PROTOCOL_ERROR


def test_a_closing_frame_has_a_code_and_a_reason_that_fits() -> None:
    assert closing(1000, "bye") == frame(CLOSE, 5) + (1000).to_bytes(2, "big") + b"bye"
    assert closing(NO_CODE) == frame(CLOSE, 0)
    assert len(closing(1000, "ü" * 100)) == 2 + 2 + 122


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_conversations_are_read_as_by_wsproto(seed: int) -> None:
    counts = Counter[str]()
    for number in range(500):
        conversation = conversations.make(Random(f"{seed} {number}"), counts)
        step = Random(number).choice([1, 3, 40, 1 << 20]) if len(conversation) < 4096 else 1000

        expected = _by_wsproto(conversation, step)

        assert expected == _by_ours(conversation, step), (seed, number)
        counts["closed"] += expected[-1:] != [] and _is_closing(expected[-1])

    assert set(conversations.FAULTS) < counts.keys()
    assert 300 < counts["closed"] < 490


def _is_closing(seen: object) -> bool:
    return isinstance(seen, tuple) and seen[0] == CLOSE


def _by_ours(data: bytes, step: int) -> list[object]:
    reader, seen = FrameReader(MAX_BYTES), list[object]()
    for at in range(0, len(data), step):
        try:
            reader.feed(data[at : at + step])
            while (message := reader.read()) is not None:
                if message.opcode == CLOSE:
                    return [*seen, (CLOSE, message.code)]
                if message is not PART:
                    seen.append((message.opcode, message.data))
        except Violation as violation:
            return [*seen, (CLOSE, violation.code)]
    return seen


def _by_wsproto(text: bytes, step: int) -> list[object]:
    connection = Connection(ConnectionType.SERVER)
    seen = list[object]()
    message = b""
    for at in range(0, len(text), step):
        try:
            connection.receive_data(text[at : at + step])
            for event in connection.events():
                if isinstance(event, events.Ping):
                    seen.append((PING, bytes(event.payload)))
                elif isinstance(event, events.Pong):
                    seen.append((10, bytes(event.payload)))
                elif isinstance(event, events.CloseConnection):
                    return [*seen, (CLOSE, int(event.code))]
                elif isinstance(event, (events.TextMessage, events.BytesMessage)):
                    is_text = isinstance(event, events.TextMessage)
                    data = event.data
                    message += data.encode() if isinstance(data, str) else bytes(data)
                    if event.message_finished:
                        seen.append((TEXT if is_text else BINARY, message))
                        message = b""
        except (RemoteProtocolError, LocalProtocolError):
            return [*seen, "error"]
    return seen


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (FrameReader(10), "more than the 10 bytes of --http-max-input-size"),
        # the limit of those who use it
        (FrameReader(10, ""), "more than the 10 bytes that it may have"),
    ],
)
def test_a_message_that_is_too_long_is_refused_by_the_name_of_its_limit(
    reader: FrameReader, text: str
) -> None:
    reader.feed(client_frame(TEXT, bytes(11)))

    with pytest.raises(Violation, match=text):
        reader.read()
