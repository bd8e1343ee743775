"""The frames of a WebSocket (RFC 6455), as its server reads and writes them, without sockets.

Nothing is negotiated: a frame with a reserved bit is refused. Only complete messages are returned;
their bytes are unmasked as they arrive, so a large one needs no long step at its end.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
from collections.abc import Callable
from typing import NamedTuple

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
#: Codes of the closing frame.
NORMAL, GOING_AWAY, PROTOCOL_ERROR, INVALID_DATA = 1000, 1001, 1002, 1007
TOO_LARGE, INTERNAL_ERROR, TRY_AGAIN_LATER = 1009, 1011, 1013
#: A closing frame without a code counts as this one, which no frame carries.
NO_CODE = 1005

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: The codes that a frame may carry, below those of applications.
_VALID_CODES = frozenset({*range(1000, 1004), *range(1007, 1015)})
_MAX_CONTROL_BYTES = 125
_MAX_HEAD_BYTES = 14
#: The smallest frame for each size of a head.
_LEAST = {4: 126, 10: 1 << 16}
_UTF8 = codecs.getincrementaldecoder("utf-8")


class Violation(Exception):
    """Raised for bytes that are no valid message; the connection ends with the code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Message(NamedTuple):
    """A complete message, or a control frame."""

    opcode: int
    data: bytes

    @property
    def code(self) -> int:
        """The status code in a closing frame."""
        return int.from_bytes(self.data[:2], "big") if self.data else NO_CODE


#: A frame that completes no message.
PART = Message(CONTINUATION, b"")


def accept_key(key: str) -> str:
    """Return the proof that the server has read the client's key."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


def frame(opcode: int, size: int) -> bytes:
    """Return the head of a frame with this many bytes."""
    first = 0x80 | opcode
    if size <= _MAX_CONTROL_BYTES:
        return bytes((first, size))
    if size < 1 << 16:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")


def closing(code: int, text: str = "") -> bytes:
    """Return a complete closing frame."""
    reason = text.encode()[: _MAX_CONTROL_BYTES - 2].decode(errors="ignore").encode()
    body = b"" if code == NO_CODE else code.to_bytes(2, "big") + reason
    return frame(CLOSE, len(body)) + body


class FrameReader:
    def __init__(self, max_bytes: int, option: str = "--http-max-input-size") -> None:
        """Set up with the limit of a message's size, and the option that sets it, or ""."""
        self._max_bytes = max_bytes
        self._of_option = f" of {option}" if option else ""
        #: Received bytes, and the number of those that were read.
        self._held, self._at = b"", 0
        #: The frame that is read: its kind, whether the message ends with it, its mask, how many
        #: of its bytes are missing, and how many have come.
        self._opcode: int | None = None
        self._is_control = self._is_last = False
        self._mask = b""
        self._missing = self._read = 0
        #: The message whose frames come: its kind, None between two, and its bytes.
        self._kind: int | None = None
        self._message = bytearray()
        self._control = bytearray()
        self._decode = _UTF8().decode

    @property
    def held_bytes(self) -> int:
        """The size of the incomplete message."""
        return len(self._message)

    def feed(self, data: bytes) -> None:
        """Add arrived bytes."""
        self._held = self._held[self._at :] + data
        self._at = 0

    def read(self) -> Message | None:
        """Read the received part of one frame; None until the message is whole. Raises Violation.

        Returns the message that the frame completes, or PART.
        """
        if self._opcode is None and not self._begin():
            return None
        part = self._held[self._at : self._at + self._missing]
        self._at += len(part)
        into = self._control if self._is_control else self._message
        data = _unmasked(part, self._mask, self._read)
        self._read += len(part)
        self._missing -= len(part)
        if not self._is_control and TEXT in (self._opcode, self._kind):
            _check_text(data, self._decode, is_last=self._is_last and not self._missing)
        into += data
        return None if self._missing else self._end()

    def _begin(self) -> bool:
        """Read the head of a frame; False if it has not arrived."""
        head = self._held[self._at : self._at + _MAX_HEAD_BYTES]
        if len(head) < 2:
            return False
        first, second = head[0], head[1]
        size = second & 0x7F
        begin = {126: 4, 127: 10}.get(size, 2)
        self._check(first, second)
        if len(head) < begin + 4:
            return False
        if size > _MAX_CONTROL_BYTES:
            size = int.from_bytes(head[2:begin], "big")
            if not _LEAST[begin] <= size < 1 << 63:
                raise Violation(PROTOCOL_ERROR, "a length must have as few bytes as it can")
        if first & 0x0F < CLOSE and size + len(self._message) > self._max_bytes:
            text = f"a message has more than the {self._max_bytes} bytes"
            raise Violation(TOO_LARGE, f"{text}{self._of_option or ' that it may have'}")
        self._opcode, self._is_last = first & 0x0F, bool(first & 0x80)
        self._is_control = self._opcode >= CLOSE
        self._mask, self._missing, self._read = head[begin : begin + 4], size, 0
        self._at += begin + 4
        return True

    def _check(self, first: int, second: int) -> None:
        opcode = first & 0x0F
        if first & 0x70:
            raise Violation(PROTOCOL_ERROR, "a reserved bit is set: use no extensions")
        if not second & 0x80:
            raise Violation(PROTOCOL_ERROR, "a frame of a client must be masked")
        if opcode >= CLOSE:
            if opcode > PONG or not first & 0x80 or second & 0x7F > _MAX_CONTROL_BYTES:
                raise Violation(
                    PROTOCOL_ERROR,
                    f"a control frame must be whole, known, and at most {_MAX_CONTROL_BYTES} bytes",
                )
        elif opcode > BINARY or (opcode == CONTINUATION) != (self._kind is not None):
            raise Violation(
                PROTOCOL_ERROR, "unexpected data frame: end each message before the next"
            )

    def _end(self) -> Message:
        """Return the message that the frame completes."""
        opcode, self._opcode = self._opcode, None
        assert opcode is not None, "it was read"
        if self._is_control:
            data = bytes(self._control)
            self._control.clear()
            if opcode == CLOSE:
                _check_closing(data)
            return Message(opcode, data)
        if opcode != CONTINUATION:
            self._kind = opcode
        if not self._is_last:
            return PART
        kind, self._kind = self._kind, None
        assert kind is not None, "a continuation follows something"
        data = bytes(self._message)
        self._message = bytearray()
        return Message(kind, data)


def _unmasked(part: bytes, mask: bytes, at: int) -> bytes:
    """Return a frame's part, unmasked; `at` is its first byte's position after the head."""
    size = len(part)
    turned = mask[at % 4 :] + mask[: at % 4]
    key = (turned * (size // 4 + 1))[:size]
    number = int.from_bytes(part, "little") ^ int.from_bytes(key, "little")
    return number.to_bytes(size, "little")


def _check_text(data: bytes, decode: Callable[[bytes, bool], str], *, is_last: bool) -> None:
    try:
        decode(data, is_last)
    except UnicodeDecodeError:
        raise Violation(INVALID_DATA, "a text is not UTF-8") from None


def _check_closing(data: bytes) -> None:
    if not data:
        return
    code = int.from_bytes(data[:2], "big")
    if len(data) == 1 or not (code in _VALID_CODES or 3000 <= code < 5000):
        raise Violation(PROTOCOL_ERROR, "the code of a closing frame is not valid")
    _check_text(data[2:], _UTF8().decode, is_last=True)
