"""HTTP/1.1 without sockets: how requests are read from bytes, and how responses are written.

RFC 9110 and 9112; knows nothing of models. As strict as RFC 9112 allows: requests that two parties
could read in two ways are refused, as are features that this server does not use. A compressed body
may have both a length and chunks, because clients of Triton that make chunks themselves send both.
If the two disagree about the body's end, it is refused, and the connection ends. The grammar is
regular, so a few expressions cover it.

Requests are read one after the other: the owner of the bytes asks for the body as it comes, after
the head, and says when the request is answered; so nothing of a request is read before its turn.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

#: Limits of a head: bytes of the request line, and of each line of a field, with their ends;
#: number of fields; bytes in all.
MAX_LINE_BYTES = 8192
MAX_FIELDS = 100
MAX_HEAD_BYTES = 64 << 10
#: Largest body that may be announced, in bytes: what gRPC carries in one message, too.
MAX_BODY_BYTES = 2**31 - 1

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z0-9!$%&'*+.^_`|~-]{2,19}) ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELDS = re.compile(rb"(?:" + TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*")
_URI = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?]*)(.*)")
#: Bytes that a request may begin with: the letters of methods, and the CR of an empty line before
#: it.
_BEGINNINGS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ\r")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
#: Fields that may be given once only; if one came twice, it would be open which of them counts.
_SINGLE = frozenset((b"host", b"content-type", b"content-length", b"transfer-encoding"))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CLOSE = b"Connection: close\r\n"
#: Field for clients of HTTP/1.0 that asked to keep the connection; without it they expect its end.
KEEP_ALIVE = b"Connection: keep-alive\r\n"

#: The status lines of all statuses that have a phrase.
STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_date: tuple[int, bytes] = (0, b"")

_END = b"\r\n\r\n"
#: Limits of the line before a chunk, whose extensions are read over, and of all trailers, in
#: bytes.
_MAX_SIZE_LINE_BYTES = 256
_MAX_TRAILER_BYTES = 8192
#: Chunks that a body may have, besides one for each _MIN_CHUNK_BYTES of it: a small chunk costs
#: more to read than its bytes.
_FREE_CHUNKS = 65_536
_MIN_CHUNK_BYTES = 256

_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_EXTENSION = rb"[ \t]*;[ \t]*" + TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + TOKEN + rb"|" + _QUOTED + rb"))?"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]+)(?:" + _EXTENSION + rb")*")
_TRAILER = re.compile(rb"(" + TOKEN + rb"):[\t\x20-\x7e\x80-\xff]*")
#: Fields that are refused in trailers, because they say how a message is framed, routed or read,
#: or who sends it, and must come before its body.
_NO_TRAILERS = frozenset(
    (
        b"transfer-encoding",
        b"content-length",
        b"host",
        b"te",
        b"trailer",
        b"connection",
        b"content-encoding",
        b"content-type",
        b"authorization",
        b"cookie",
        b"expect",
    )
)


class Refused(Exception):
    """Raised for bytes that are no valid request; the connection ends with this response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Head(NamedTuple):
    method: str
    #: Path and query, not decoded.
    target: bytes
    #: Minor version of HTTP/1: 0 or 1.
    minor_version: int
    #: Names in lower case and values, in the order of the request.
    fields: Sequence[tuple[bytes, bytes]]
    #: The size of the body; None if it comes in chunks.
    body_bytes: int | None
    #: The size of the chunks with their lines, if the client says it.
    chunked_bytes: int | None
    keeps_alive: bool
    expects_continue: bool
    #: Bytes of the whole head as they came.
    raw: bytes

    def spelled_fields(self) -> Iterator[tuple[str, bytes]]:
        """Return the fields as the client spelled them; repeated fields are joined.

        Values are as Triton reads them: without leading blanks, but with trailing ones, and a space
        for an empty value.
        """
        fields: dict[bytes, tuple[bytes, bytes]] = {}
        for line in self.raw.split(b"\r\n")[1:-2]:
            name, _, value = line.partition(b":")
            value = value.lstrip(b" ") or b" "
            _, earlier = fields.get(name.lower(), (b"", b""))
            fields[name.lower()] = name, earlier + b"," + value if earlier else value
        for name, value in fields.values():
            yield name.decode("latin-1"), value


def check_beginning(begun: bytes) -> None:
    """Check an incomplete head. Raises Refused if it cannot become a complete one."""
    if begun[0] not in _BEGINNINGS:
        raise Refused(400, "Malformed request line")
    _check_lines(begun)
    if len(begun) > MAX_HEAD_BYTES:
        raise _too_large("head")


def _check_lines(head: bytes) -> None:
    if len(head) < MAX_LINE_BYTES:
        return
    first, *others = head.split(b"\r\n")
    if len(first) + 2 > MAX_LINE_BYTES:
        raise Refused(414, f"Request line can have at most {MAX_LINE_BYTES} bytes")
    if len(others) - 2 > MAX_FIELDS:
        raise _too_many_fields()
    if any(len(line) + 2 > MAX_LINE_BYTES for line in others):
        raise _too_large("header field")


def read_head(raw: bytes) -> Head:
    """Read a head, which ends with an empty line. Raises Refused."""
    _check_lines(raw)
    line, _, rest = raw.partition(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        if line == b"PRI * HTTP/2.0":  # a client with prior knowledge
            raise Refused(
                505, "This port speaks HTTP/1.1, not HTTP/2: use HTTP/1.1, or gRPC on its own port"
            )
        raise Refused(400, "Malformed request line")
    method, target, minor = match.groups()
    lines = rest[:-2]
    if not _FIELDS.fullmatch(lines):
        raise Refused(400, "Header field must be NAME: VALUE")
    rows = [row.partition(b":") for row in lines[:-2].split(b"\r\n")] if lines else []
    if len(rows) > MAX_FIELDS:
        raise _too_many_fields()
    fields = [(name.lower(), value.strip(b" \t")) for name, _, value in rows]
    if target[:1] != b"/":
        target = _path(method, target, dict(fields))
    return _framed(method.decode(), target, int(minor), fields, raw)


def _path(method: bytes, target: bytes, by_name: Mapping[bytes, bytes]) -> bytes:
    """Return the path of a whole URI; OPTIONS for all and CONNECT have no path."""
    if method == b"CONNECT" or (method == b"OPTIONS" and target == b"*"):
        return target
    match = _URI.fullmatch(target)
    if match is None or match[1].lower() != by_name.get(b"host", b"").lower():
        raise Refused(400, "Request target must be a path, or a URL with the name in header host")
    return match[2] if match[2][:1] == b"/" else b"/" + match[2]


def _framed(
    method: str, target: bytes, minor: int, fields: list[tuple[bytes, bytes]], raw: bytes
) -> Head:
    by_name = dict(fields)
    if len(by_name) < len(fields):
        names = [name for name, _ in fields]
        for name in _SINGLE:
            if names.count(name) > 1:
                raise Refused(400, f"Header {name.decode()} is given twice: send it once")
    host = by_name.get(b"host")
    if host is None and minor:
        raise Refused(400, "Header host is missing: send it")
    if host and not _HOST.fullmatch(host):
        raise Refused(400, "Header host must be HOST or HOST:PORT")
    body_bytes, chunked_bytes = _read_sizes(by_name, minor)
    options = {
        option.strip(b" \t").lower()
        for name, value in fields
        if name == b"connection"
        for option in value.split(b",")
    }
    keeps_alive = b"close" not in options if minor else b"keep-alive" in options
    if chunked_bytes is not None:
        keeps_alive = False
    expects = bool(minor) and by_name.get(b"expect", b"").lower() == b"100-continue"
    return Head(method, target, minor, fields, body_bytes, chunked_bytes, keeps_alive, expects, raw)


def _read_sizes(by_name: Mapping[bytes, bytes], minor: int) -> tuple[int | None, int | None]:
    """Return the announced size of the body and of its chunks, as far as they are known."""
    length = by_name.get(b"content-length")
    codings = by_name.get(b"transfer-encoding")
    size = None if length is None else _read_length(length)
    if codings is None:
        return size or 0, None
    if not minor:
        raise Refused(400, "Transfer-Encoding needs HTTP/1.1")
    if codings.lower() != b"chunked":
        raise Refused(501, "Transfer-Encoding must be chunked")
    if length is not None and b"content-encoding" not in by_name:
        raise framed_in_two_ways()
    return None, size


def _read_length(text: bytes) -> int:
    if not text.isdigit():
        raise Refused(400, "Header content-length must be a number of bytes")
    digits = text.lstrip(b"0")
    # more digits than the limit has: int() would take its time for very many
    if len(digits) > len(str(MAX_BODY_BYTES)) or int(digits or b"0") > MAX_BODY_BYTES:
        raise body_too_large()
    return int(digits or b"0")


def body_too_large() -> Refused:
    return Refused(413, f"Request body can have at most {MAX_BODY_BYTES} bytes")


def framed_in_two_ways() -> Refused:
    return Refused(400, "The body is framed in two ways: send Content-Length or chunks")


def _too_large(what: str) -> Refused:
    limit = MAX_HEAD_BYTES if what == "head" else MAX_LINE_BYTES
    return Refused(431, f"Request {what} can have at most {limit} bytes")


def _too_many_fields() -> Refused:
    return Refused(431, f"Request can have at most {MAX_FIELDS} header fields")


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()


def date() -> bytes:
    """Return the field with the time, which changes once a second."""
    global _date
    now = int(time.time())
    if now != _date[0]:
        _date = now, f"Date: {formatdate(now, usegmt=True)}\r\n".encode()
    return _date[1]


def fields(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write header fields. Raises ValueError for a value with a line end in it."""
    written = b"".join([b"%s: %s\r\n" % row for row in rows])
    if written.count(b"\n") != written.count(b"\r\n") or b"\0" in written:
        raise ValueError("a header field with a line in it")
    return written


def chunk(data: bytes | memoryview) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def has_no_body(method: str, status: int) -> bool:
    return method == "HEAD" or status in (204, 304) or status < 200


class ChunkedBody:
    """The state of reading a chunked body. It keeps at most the beginning of a line."""

    def __init__(self) -> None:
        self.is_whole = False
        #: Bytes of the current chunk that have not come; 0 between chunks.
        self._left_bytes = 0
        self._needs_end = False
        self._is_last = False
        self._chunks = 0
        self._bytes = 0
        self._trailer_bytes = 0

    def read(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the part of the body in the data, and the rest of the data.

        The rest follows the body, or is too short to be read. Raises Refused.
        """
        pieces: list[bytes] = []
        at = 0
        while not self.is_whole:
            if self._left_bytes:
                piece = data[at : at + self._left_bytes]
                pieces.append(piece)
                at += len(piece)
                self._left_bytes -= len(piece)
                if self._left_bytes:
                    break
            if self._needs_end:
                if not b"\r\n".startswith(data[at : at + 2]):
                    raise Refused(
                        400, "Chunk must have the bytes that its size names, and end in CRLF"
                    )
                if len(data) < at + 2:
                    break
                at += 2
                self._needs_end = False
            end = self._find_line(data, at)
            if end < 0:
                break
            (self._read_trailer if self._is_last else self._read_size)(data[at:end])
            at = end + 2
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), data[at:]

    def _find_line(self, data: bytes, at: int) -> int:
        limit = _MAX_TRAILER_BYTES if self._is_last else _MAX_SIZE_LINE_BYTES
        end = data.find(b"\r\n", at, at + limit)
        if end < 0 and len(data) - at >= limit:
            raise Refused(
                431 if self._is_last else 400, f"Line of a chunk can have at most {limit} bytes"
            )
        return end

    def _read_size(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise Refused(400, "Size of a chunk must be a hexadecimal number")
        digits = match[1].lstrip(b"0")
        if len(digits) > 8:
            raise body_too_large()
        size = int(digits or b"0", 16)
        if not size:
            self._is_last = True
            return
        self._chunks += 1
        self._bytes += size
        if self._bytes > MAX_BODY_BYTES:
            raise body_too_large()
        if self._chunks > _FREE_CHUNKS + self._bytes // _MIN_CHUNK_BYTES:
            raise Refused(400, f"Request body can have at most {_FREE_CHUNKS} small chunks")
        self._left_bytes = size
        self._needs_end = True

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.is_whole = True
            return
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > _MAX_TRAILER_BYTES:
            raise Refused(431, f"Request trailers can have at most {_MAX_TRAILER_BYTES} bytes")
        match = _TRAILER.fullmatch(line)
        if match is None or match[1].lower() in _NO_TRAILERS:
            raise Refused(400, "Malformed trailer")


class RequestReader:
    __slots__ = (
        "_chunked",
        "_last",
        "_missing",
        "_searched",
        "_unread",
        "head",
        "held",
        "is_whole",
    )

    def __init__(self) -> None:
        #: The request that is being read; its owner sets None once it is answered, so that the
        #: bytes that follow belong to the next one.
        self.head: Head | None = None
        #: Set once all of the request was read.
        self.is_whole = True
        #: Bytes that have been received and not read; the connection appends more.
        self.held = b""
        #: Bytes at the beginning of `held` that are known not to have the end of a head.
        self._searched = 0
        #: The last head: clients repeat themselves, so it is often the next one, too.
        self._last: Head | None = None
        #: Bytes of the body that have not been read; 0 for chunks, whose size is not known.
        self._missing = 0
        self._chunked: ChunkedBody | None = None
        #: Bytes of the chunks and their lines that have not been read; None if the head has no
        #: length.
        self._unread: int | None = None

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that must come before the body is whole; 0 if that is not known."""
        return max(0, self._missing - len(self.held))

    def read(self) -> bytes | None:
        """Return the part of the body that has come since the last call.

        None if the head has not come, which `head` has from then on. Raises Refused.
        """
        if self.head is not None:
            chunked = self._chunked
            return self._read_part() if chunked is None else self._read_chunks(chunked)
        held = self.held.removeprefix(b"\r\n")  # one empty line before a request means nothing
        end = held.find(_END, self._searched, MAX_HEAD_BYTES)
        if end < 0:
            if held:
                check_beginning(held)
            self._searched = max(0, len(held) - len(_END))
            return None
        end += len(_END)
        raw = held[:end]
        head = self._last
        if head is None or head.raw != raw:
            self._last = head = read_head(raw)
        self.head = head
        self._searched, size = 0, head.body_bytes
        if size is None:
            self.held = held[end:]
            self._chunked = chunked = ChunkedBody()
            self._unread = head.chunked_bytes
            self.is_whole = False
            return self._read_chunks(chunked)
        self._chunked, stop = None, end + size
        body, self.held = held[end:stop], held[stop:]
        self._missing = missing = size - len(body)
        self.is_whole = not missing
        return body

    def _read_part(self) -> bytes:
        """Return the next part of a body whose size is known."""
        held = self.held
        body, self.held = held[: self._missing], held[self._missing :]
        self.skip(len(body))
        return body

    def _read_chunks(self, chunked: ChunkedBody) -> bytes:
        """Return the next part of a body in chunks."""
        held = self.held
        if not held:
            return b""
        body, self.held = chunked.read(held)
        self.is_whole = chunked.is_whole
        if self._unread is not None:
            self._unread -= len(held) - len(self.held)
            if self._unread < 0 or (self.is_whole and self._unread):
                raise framed_in_two_ways()
        return body

    def skip(self, size: int) -> None:
        """Count bytes of the body that were received directly into their place in memory."""
        self._missing -= size
        self.is_whole = not self._missing
