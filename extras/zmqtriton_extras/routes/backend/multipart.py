"""Forms: `multipart/form-data` and `application/x-www-form-urlencoded`, read in place."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import parse_qsl

#: Parts of one form, and bytes of the headers of one part.
MAX_PARTS = 1000
MAX_HEADERS = 8 << 10
#: Bytes of a url-encoded form: all routes of a model wait while it is decoded.
MAX_ENCODED_BYTES = 1 << 20
#: A body is looked through in pieces of this size, since it may lie in a file.
_WINDOW_BYTES = 1 << 20
#: Maximum blanks after a boundary.
_MAX_PADDING = 256
_PADDING = re.compile(rb"(--)?[ \t]*(?=\r\n|\Z)")
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*([a-z*]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;]*))', re.IGNORECASE)


class RefusedError(Exception):
    """Raised for a form that cannot be read: a status and a text."""


class Part(NamedTuple):
    """A part of a form, and the place of its contents in the body."""

    name: str
    #: Name that its client gave it; never use it as a path. None for a field.
    filename: Optional[str]
    content_type: str
    begin: int
    end: int


class File(NamedTuple):
    """A file of a form."""

    #: Name that its client gave it; never use it as a path.
    filename: str
    content_type: str
    #: Contents of the file; valid while the route runs.
    view: memoryview

    @property
    def bytes(self) -> bytes:
        """A copy of the file's contents."""
        return self.view.tobytes()


def read_form(content_type: str, body: memoryview) -> Tuple[Dict[str, str], Dict[str, File]]:
    """Return the fields and the files of a form, by name. Raises RefusedError."""
    fields, files = {}, {}  # type: Dict[str, str], Dict[str, File]
    try:
        if _kind(content_type) == "application/x-www-form-urlencoded":
            return {name: str(value, "utf-8") for name, value in pairs_of(body)}, {}
        for part in parts_of(content_type, body):
            content = body[part.begin : part.end]
            if part.filename is None:
                fields[part.name] = str(content, "utf-8")
            else:
                files[part.name] = File(part.filename, part.content_type, content)
    except ValueError as error:
        raise _unreadable(error) from None
    return fields, files


def pairs_of(body: Any) -> List[Tuple[str, bytes]]:
    """Return the fields of `application/x-www-form-urlencoded`, or of a query.

    Raises RefusedError, and UnicodeDecodeError for a name that is no text.
    """
    try:
        if len(body) > MAX_ENCODED_BYTES:
            raise ValueError
        # letters that stand for bytes
        code = "latin-1"
        pairs = parse_qsl(str(body, code), True, encoding=code, max_num_fields=MAX_PARTS)
    except ValueError:
        limits = f"{MAX_PARTS} fields and {MAX_ENCODED_BYTES} bytes"
        text = f"a form of this kind may have {limits}, send its files as multipart/form-data"
        raise RefusedError(413, text) from None
    return [(str(name.encode(code), "utf-8"), value.encode(code)) for name, value in pairs]


def parts_of(content_type: str, body: Any) -> Iterator[Part]:
    """Iterate over the parts of `multipart/form-data`. Raises RefusedError.

    A body has a length, and slices that are bytes or views of them.
    """
    if _kind(content_type) != "multipart/form-data":
        raise RefusedError(415, "the route expects a form: multipart/form-data")
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise RefusedError(400, "the form's Content-Type needs a boundary")
    try:
        mark = b"\r\n--" + (match[1] or match[2]).encode("latin-1")
        begin = -1
        for at, end, is_last in _lines(mark, body):
            if begin >= 0:
                yield _part(body, begin, at)
            if is_last:
                return
            begin = end + 2
    except ValueError as error:
        raise _unreadable(error) from None
    raise RefusedError(400, "the form is cut off: send its last boundary")


def element_of(part: Part, body: Any) -> Any:
    """Return a file as a tensor's element without a copy: its length overwrites its head's end."""
    length, data = (part.end - part.begin).to_bytes(4, "little"), body[part.begin - 4 : part.end]
    if data.readonly or data[:4] != b"\r\n\r\n":
        return length + bytes(body[part.begin : part.end])
    data[:4] = length
    return data


def _unreadable(error: ValueError) -> RefusedError:
    return RefusedError(400, f"the form must be multipart or url-encoded: {error}")


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _lines(mark: bytes, body: Any) -> Iterator[Tuple[int, int, bool]]:
    """Yield begin and end of each line between parts, and whether it is the last one."""
    for number, begin in enumerate(_occurrences(mark, body)):
        if number > MAX_PARTS:
            raise RefusedError(413, f"the form can have at most {MAX_PARTS} parts")
        end = begin + len(mark)
        match = _PADDING.match(bytes(body[end : end + _MAX_PADDING]))
        if match is not None:
            yield max(begin, 0), end + match.end(), match[1] is not None


def _occurrences(mark: bytes, body: Any) -> Iterator[int]:
    """Yield the positions of a mark; at the start of the body it needs no line end before it."""
    if bytes(body[: len(mark) - 2]) == mark[2:]:
        yield -2
    at = 0
    while at < len(body):
        window = bytes(body[at : at + _WINDOW_BYTES])
        place = window.find(mark)
        while place >= 0:
            yield at + place
            place = window.find(mark, place + 1)
        at += max(len(window) - len(mark) + 1, 1)


def _part(body: Any, begin: int, end: int) -> Part:
    """Return the part between two boundary lines."""
    start = bytes(body[begin : min(begin + MAX_HEADERS, end)])
    size = 0 if start.startswith(b"\r\n") else start.find(b"\r\n\r\n")
    if size < 0:
        raise RefusedError(400, "each part of the form needs headers, but not so long ones")
    headers = {}
    for text in str(start[:size], "utf-8").split("\r\n") if size else ():
        name, colon, value = text.partition(":")
        if not colon:
            raise RefusedError(400, "a part of the form has an invalid header: correct it")
        headers[name.strip().lower()] = value.strip()
    values = _values(headers.get("content-disposition", ""))
    if "name" not in values:
        raise RefusedError(400, "each part of the form needs a name")
    content_type = headers.get("content-type", "")
    contents = begin + size + (4 if size else 2)
    return Part(values["name"], values.get("filename"), content_type, contents, end)


def _values(disposition: str) -> Dict[str, str]:
    return {
        match[1].lower(): re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        for match in _PARAMETER.finditer(disposition)
    }
