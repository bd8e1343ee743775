"""Forms: `multipart/form-data` and `application/x-www-form-urlencoded`, read where they lie."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, NamedTuple, Tuple
from urllib.parse import parse_qsl

#: Parts of one form, and bytes of the headers of one part.
MAX_PARTS = 1000
MAX_HEADERS = 8 << 10
_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*([a-z*]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;]*))', re.IGNORECASE)


class RefusedError(Exception):
    """Raised for a form that cannot be read: a status and a text."""


class File(NamedTuple):
    """A file of a form."""

    #: As its client calls it: never to be used as a path.
    filename: str
    content_type: str
    #: Its contents; valid while the route runs.
    view: memoryview

    @property
    def bytes(self) -> bytes:
        """A copy of its contents."""
        return self.view.tobytes()


def read_form(content_type: str, body: memoryview) -> Tuple[Dict[str, str], Dict[str, File]]:
    """Return the fields and the files of a form, by name. Raises RefusedError."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/x-www-form-urlencoded":
            pairs = parse_qsl(str(body, "utf-8"), True, max_num_fields=MAX_PARTS)
            return dict(pairs), {}
        if kind != "multipart/form-data":
            raise RefusedError(415, "the route expects a form: multipart/form-data")
        match = _BOUNDARY.search(content_type)
        if match is None:
            raise RefusedError(400, "the form has no boundary")
        fields, files = {}, {}  # type: Dict[str, str], Dict[str, File]
        for number, (headers, content) in enumerate(_parts(match[1] or match[2], body)):
            if number >= MAX_PARTS:
                raise RefusedError(413, f"the form has more than {MAX_PARTS} parts")
            name, filename = _names(headers.get("content-disposition", ""))
            if filename is None:
                fields[name] = str(content, "utf-8")
            else:
                files[name] = File(filename, headers.get("content-type", ""), content)
        return fields, files
    except ValueError as error:
        raise RefusedError(400, f"the form cannot be read: {error}") from None


def _parts(boundary: str, body: memoryview) -> Iterator[Tuple[Dict[str, str], memoryview]]:
    """Iterate over the headers and the contents of the parts."""
    line = re.compile(
        rb"(?:^|\r\n)--" + re.escape(boundary.encode("latin-1")) + rb"(--)?[ \t]*(?=\r\n|$)"
    )
    begin = -1
    for match in line.finditer(body):
        if begin >= 0:
            yield _part(body[begin : match.start()])
        if match[1]:
            return
        begin = match.end() + 2
    raise RefusedError(400, "the form has no end")


def _part(part: memoryview) -> Tuple[Dict[str, str], memoryview]:
    if bytes(part[:2]) == b"\r\n":
        return {}, part[2:]
    end = bytes(part[:MAX_HEADERS]).find(b"\r\n\r\n")
    if end < 0:
        raise RefusedError(400, "a part of the form has no headers, or too long ones")
    headers = {}
    for text in str(part[:end], "utf-8").split("\r\n"):
        name, colon, value = text.partition(":")
        if not colon:
            raise RefusedError(400, "a part of the form has an invalid header")
        headers[name.strip().lower()] = value.strip()
    return headers, part[end + 4 :]


def _names(disposition: str) -> Tuple[str, Any]:
    """Return the name of a part, and that of its file; None for a field."""
    values = {
        match[1].lower(): re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
        for match in _PARAMETER.finditer(disposition)
    }
    if "name" not in values:
        raise RefusedError(400, "a part of the form has no name")
    return values["name"], values.get("filename")
