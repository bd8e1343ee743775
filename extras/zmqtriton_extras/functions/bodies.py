"""Reads the arguments of a function from a request's body and query: JSON, forms and files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from typing import Any, NamedTuple

import numpy as np

from zmqtriton.sdk.frontend import json_documents
from zmqtriton.sdk.wire import InvalidArgument, datatypes, documents, wire
from zmqtriton_extras.functions.backend.kinds import (
    Kind,
    MismatchError,
    Scalars,
    named,
)
from zmqtriton_extras.functions.backend.media import said_of
from zmqtriton_extras.functions.backend.names import DATATYPE
from zmqtriton_extras.functions.interface import BYTES_TYPE, JSON, MULTIPART, Interface, Request
from zmqtriton_extras.routes.backend.multipart import (
    Part,
    RefusedError,
    element_of,
    pairs_of,
    parts_of,
)

_URL_ENCODED = "application/x-www-form-urlencoded"
_BOOLEAN = "boolean"
#: Further words for true and false in form fields.
_WORDS = {"on": "true", "1": "true", "off": "false", "0": "false"}
#: Bytes at the beginning of a body that can show that it is JSON.
_HEAD_BYTES = 64
#: Put before a body that is a file, like the head of a part of a form.
NO_HEAD = b"\r\n\r\n"
#: 19 digits, which 64 bits may not hold, and a table that makes all digits `0`.
_DIGITS = b"0" * 19
_TO_DIGITS = bytes(48 if 48 <= each <= 57 else 32 for each in range(256))
_STEP_BYTES = 1 << 20
#: Returns the file at a URL. Raises MismatchError.
Fetch = Callable[[str], bytes]
_Fields = dict[str, list[bytes]]


class _Texts(NamedTuple):
    """The texts of all form fields with the same name."""

    data: list[bytes]


def kind_of_body(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_form(content_type: str) -> bool:
    """Return whether a body of this content type is a multipart form, which can have files."""
    return kind_of_body(content_type) == MULTIPART


def file_for(interface: Interface, content_type: str) -> str:
    """Return the parameter that gets the whole body as its file; "" if the body is no file."""
    kind, types = kind_of_body(content_type), interface.files.items()
    if kind in ("", JSON, _URL_ENCODED, MULTIPART):
        return ""
    names = [name for name, own in types if kind == BYTES_TYPE or fnmatch(kind, own)]
    return names[0] if len(names) == 1 else ""


def read(
    interface: Interface,
    content_type: str,
    body: Any,
    fetch: Fetch | None = None,
    query: bytes = b"",
) -> Request:
    """Return the request for a body. The query has arguments that the body lacks.

    `fetch` reads files at URLs. A body that is a file begins with NO_HEAD. Raises
    MismatchError, InvalidArgument for a document, and RefusedError for all else.
    """
    with ExitStack() as opened:  # empties long lists in steps
        return _Reader(interface, opened, fetch).read(content_type, body, query)


class _Reader:
    """Reads the body and query of a request."""

    def __init__(self, interface: Interface, opened: ExitStack, fetch: Fetch | None) -> None:
        self._interface, self._kinds = interface, interface.parameters
        self._opened, self._fetch = opened, fetch

    def read(self, content_type: str, body: Any, query: bytes) -> Request:
        kind, file = kind_of_body(content_type), file_for(self._interface, content_type)
        required = self._interface.input["required"]
        rows: dict[str, Any] = {}
        fields: _Fields = {}
        files: dict[str, list[Part]] = {}
        if kind == MULTIPART:
            fields, files = self._parts(content_type, memoryview(body))
        elif file:
            files[file] = [Part(file, "", content_type, len(NO_HEAD), len(body))]
        elif kind in ("", JSON) or bytes(body[:_HEAD_BYTES]).lstrip().startswith(b"{"):
            # curl calls a document a form
            kind, rows = JSON, self._parse(bytes(body) or b"{}")
            if not isinstance(rows, dict):
                raise InvalidArgument("the body must be a JSON object with the arguments by name")
        elif kind == _URL_ENCODED:
            fields = self._encoded(bytes(body))
        else:
            raise self._unfit(kind)
        there = {*rows, *fields, *files}
        fields |= {n: texts for n, texts in _grouped(pairs_of(query)).items() if n not in there}
        rows = {n: v for n, v in rows.items() if not self._is_absent(n, v)}
        # an empty field leaves out an optional argument
        rows |= {
            name: _Texts(data)
            for name, data in fields.items()
            if data != [b""] or name in required or name not in self._kinds
        }
        if kind in (MULTIPART, _URL_ENCODED):  # they have no unchecked boxes
            boxes = (n for n in required if self._kinds[n].schema.get("type") == _BOOLEAN)
            rows = {**dict.fromkeys(boxes, False), **rows}
        request = self._interface.encode(rows, self._value, files)
        # only now: a head in the body becomes a length, and before a file is fetched all is read
        for name, parts in files.items():
            request.inputs[name] = self._tensor(parts, memoryview(body))
        request.parameters.update(self._said(files))
        return request

    def _encoded(self, text: bytes) -> _Fields:
        try:
            return _grouped(pairs_of(text))
        except UnicodeDecodeError:  # a file that curl calls a form
            raise self._unfit("binary data") from None

    def _parts(self, content_type: str, body: memoryview) -> tuple[_Fields, dict[str, list[Part]]]:
        """Return the fields and the files of a multipart form; a list can have several files."""
        fields: _Fields = defaultdict(list)
        files: dict[str, list[Part]] = defaultdict(list)
        for part in parts_of(content_type, body):
            kind = self._kinds.get(part.name)
            if part.filename is None or kind is None or not _has_files(kind):
                fields[part.name].append(bytes(body[part.begin : part.end]))
            elif part.filename or part.end > part.begin:  # a browser sends a part without a file
                files[part.name].append(part)
        return fields, {n: rows[-self._kinds[n].is_file :] for n, rows in files.items()}

    def _unfit(self, kind: str) -> RefusedError:
        """Return the error for a body whose content type no parameter accepts."""
        files = [f"{types} as {named(name)}" for name, types in self._interface.files.items()]
        what = ", ".join([JSON, _URL_ENCODED, MULTIPART, *files[: len(files) == 1]])
        text = f"no parameter takes a body of {named(kind)}; Content-Type can be {what}"
        return RefusedError(415, text)

    def _parse(self, text: bytes) -> Any:
        """Parse JSON text. If an argument is JSON, integers can have any size.

        Raises InvalidArgument.
        """
        if not (self._interface.has_documents and has_long_number(text)):
            return self._opened.enter_context(json_documents.opened(text))
        limits = documents.LIMITS._replace(bytes=len(text))
        try:
            return self._opened.enter_context(documents.opened(text, documents.parse_piece, limits))
        except documents.DocumentError as error:
            raise InvalidArgument(str(error)) from None
        except ValueError as error:  # of numbers with too many digits
            raise InvalidArgument(f"failed to parse the request JSON buffer: {error}") from None

    def _is_absent(self, name: str, value: Any) -> bool:
        """Return whether the value is null and means the same as leaving out the argument."""
        schema = self._interface.input["properties"].get(name, {})
        return value is None and schema.get("default", name) is None

    def _value(self, kind: Kind, row: Any) -> Any:
        """Return the value of an argument for its JSON value or its form fields."""
        document = self._document(kind, row.data) if isinstance(row, _Texts) else row
        is_text = kind.is_file and isinstance(document, str)
        if is_text and document.startswith(("http://", "https://")):
            if self._fetch is None:
                raise MismatchError("the server reads no URLs: start it with --functions-url-host")
            return kind.decode(np.array([self._fetch(document)], np.object_))
        return kind.from_json(document)

    def _document(self, kind: Kind, data: list[bytes]) -> Any:
        """Return the JSON value for form fields; for a list each field is an element."""
        try:
            texts = [str(each, "utf-8") for each in data]
        except UnicodeDecodeError:
            raise MismatchError("expected text in UTF-8, got other bytes") from None
        is_list = kind.schema.get("type") == "array"
        if not is_list or (len(texts) == 1 and texts[0].lstrip().startswith("[")):
            return self._parsed(kind, kind.schema, texts[-1])
        return [self._parsed(kind, _items(kind), text) for text in texts]

    def _parsed(self, kind: Kind, schema: Mapping[str, Any], text: str) -> Any:
        """Return the JSON value of a field's text, by the schema of the argument or element.

        Text that is not JSON stays text if the schema permits that.
        """
        types = {each.get("type") for each in schema.get("anyOf", [schema])}
        if types == {"string"}:
            return text
        if types == {_BOOLEAN}:
            text = _WORDS.get(text.lower(), text.lower())
        try:
            return self._parse(text.encode())
        except InvalidArgument as error:
            if types & {"string", None}:
                return text
            is_scalar = isinstance(kind, Scalars) and not kind.depth
            reason = "" if is_scalar else f" ({error.text})"
            raise MismatchError(f"{kind.mismatch(text)}{reason}") from None

    def _tensor(self, parts: Sequence[Part], body: memoryview) -> wire.Tensor:
        elements = [element_of(part, body) for part in parts]
        shape = [1, len(parts)][not self._interface.has_batches :]
        data = elements[0] if len(parts) == 1 else b"".join(elements)
        return wire.Tensor(parts[0].name, datatypes.BYTES, shape, data)

    def _said(self, files: Mapping[str, Sequence[Part]]) -> dict[str, str]:
        """Return request parameters with the names and content types of the files."""
        places = (
            (name if self._kinds[name].is_file else f"{name}.{n}", part)
            for name, parts in files.items()
            for n, part in enumerate(parts)
            if self._kinds[name].has_names
        )
        return said_of((place, part.filename or "", part.content_type) for place, part in places)


def _has_files(kind: Kind) -> bool:
    return kind.is_file or (kind.dims == [-1] and "contentEncoding" in _items(kind))


def _items(kind: Kind) -> Any:
    """Return the schema of the elements of a list."""
    of_array = {"type": "string"} if kind.schema.get(DATATYPE) == "STRING" else {}
    return kind.schema.get("items", of_array)


def _grouped(pairs: Iterable[tuple[str, bytes]]) -> _Fields:
    fields: _Fields = defaultdict(list)
    for name, value in pairs:
        fields[name].append(value)
    return fields


def has_long_number(text: bytes) -> bool:
    """Return whether a text has a number with 19 or more digits, which 64 bits may not hold."""
    steps = range(0, len(text), _STEP_BYTES)  # other threads run between them
    pieces = (text[at : at + _STEP_BYTES + len(_DIGITS)] for at in steps)
    return any(_DIGITS in each.translate(_TO_DIGITS) for each in pieces)
