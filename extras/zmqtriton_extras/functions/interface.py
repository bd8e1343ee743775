"""A function's interface as the server knows it: bodies and queries become inputs.

It is read from the parameter of the model's configuration that its backend makes of the hints.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import orjson

from zmqtriton.sdk.frontend import json_documents
from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.wire import InvalidArgument, datatypes, documents, wire
from zmqtriton_extras.functions.backend.documents import Documents, kind_of_schema
from zmqtriton_extras.functions.backend.kinds import (
    CONTENT,
    DATATYPE,
    HintError,
    Kind,
    MismatchError,
    Place,
    RaggedError,
    as_bytes,
    named,
    raise_all,
)
from zmqtriton_extras.functions.backend.media import Media, types_like
from zmqtriton_extras.functions.backend.signature import DESCRIPTION, RAGGED
from zmqtriton_extras.routes.backend.multipart import (
    Part,
    RefusedError,
    element_of,
    pairs_of,
    parts_of,
)

_JSON, _STREAM = "application/json", "text/event-stream"
_URL_ENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_NO_FILE = ("", _JSON, _URL_ENCODED, _MULTIPART)
_BYTES = Media.content_type
_ANY = "*/*"
_BOOLEAN = "boolean"
#: Words for true and false in fields, beside these two.
_WORDS = {"on": "true", "1": "true", "off": "false", "0": "false"}
#: Bytes of a body that are looked at for the begin of a document.
_HEAD_BYTES = 64
#: Before a body that is a file, in place of the head of a part of a form.
NO_HEAD = b"\r\n\r\n"
_RAGGED = Documents("lists of different lengths", {})
#: Digits of a number that 64 bits may not hold, and the table that makes all digits equal to them.
_DIGITS = b"0" * 19
_TO_DIGITS = bytes(48 if 48 <= each <= 57 else 32 for each in range(256))
_STEP_BYTES = 1 << 20
#: Returns the file at a URL. Raises MismatchError.
Fetch = Callable[[str], bytes]
_Fields = dict[str, list[bytes]]
_NO_KIND = Kind()


class _Texts(NamedTuple):
    """The fields with one name."""

    data: list[bytes]


def kind_of_body(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def is_form(content_type: str) -> bool:
    """Return whether a body is a form with files."""
    return kind_of_body(content_type) == _MULTIPART


class Request(NamedTuple):
    """A request to the model: its inputs, and what a client says of its files."""

    inputs: dict[str, Any]
    parameters: dict[str, str]


class Interface:
    def __init__(self, description: Mapping[str, Any]) -> None:
        self.about: str = description["about"]
        #: Name of the tuple that the function returns; "" for a dict, or one value.
        self.tuple: str = description.get("tuple", "")
        self.is_stream: bool = description["is_stream"]
        self.input: dict[str, Any] = description["input"]
        self.output: dict[str, Any] = description["output"]
        self._has_batches: bool = description["has_batches"]
        self.parameters = _kinds(self.input)
        self._outputs = _kinds(self.output)
        self._has_documents = any(isinstance(k, Documents) for k in self.parameters.values())
        #: The content types of the parameters that are files, by name: "image/*".
        self._files = {name: _range(k) for name, k in self.parameters.items() if k.is_file}
        files = [] if self.is_stream else [n for n, kind in self._outputs.items() if kind.is_file]
        #: The output that an answer may be the file of, or none.
        self._file = files if len(files) == 1 else []
        #: The content types of its answers, the usual one first.
        self.offers = [_STREAM, _JSON] if self.is_stream else [_JSON]
        for name in self._file:
            self.offers += [*types_like(_content_type(self._outputs[name])), _BYTES]

    def file_for(self, content_type: str) -> str:
        """Return the one parameter that a body of this type is the file of; "" for another body."""
        kind = kind_of_body(content_type)
        if kind in _NO_FILE:
            return ""
        names = [n for n, types in self._files.items() if kind == _BYTES or fnmatch(kind, types)]
        return names[0] if len(names) == 1 else ""

    def read(
        self, content_type: str, body: Any, fetch: Fetch | None = None, query: bytes = b""
    ) -> Request:
        """Return the request of a body, and of the query for what that lacks.

        `fetch` reads files at URLs. A body that is a file begins with NO_HEAD. Raises
        MismatchError, InvalidArgument for a document, and RefusedError for all else.
        """
        kind, file = kind_of_body(content_type), self.file_for(content_type)
        rows: dict[str, Any] = {}
        fields: _Fields = {}
        files: dict[str, list[Part]] = {}
        if kind == _MULTIPART:
            fields, files = self._parts(content_type, memoryview(body))
        elif file:
            files[file] = [Part(file, "", content_type, len(NO_HEAD), len(body))]
        elif kind in ("", _JSON) or bytes(body[:_HEAD_BYTES]).lstrip().startswith(b"{"):
            # curl calls a document a form
            kind, rows = _JSON, self._members(bytes(body))
        elif kind == _URL_ENCODED:
            fields = self._encoded(bytes(body))
        else:
            raise self._unfit(kind)
        there = {*rows, *fields, *files}
        fields |= {n: texts for n, texts in _grouped(pairs_of(query)).items() if n not in there}
        rows = {n: v for n, v in rows.items() if not self._is_absent(n, v)}
        rows |= {n: _Texts(data) for n, data in fields.items() if self._is_filled(n, data)}
        if kind in (_MULTIPART, _URL_ENCODED):
            rows = {**dict.fromkeys(self._boxes(), False), **rows}
        inputs = self.encode(rows, partial(self._value, fetch=fetch), files)
        # only now: a head in the body becomes a length, and before a file is fetched all is read
        for name, parts in files.items():
            inputs[name] = self._tensor(parts, memoryview(body))
        return Request(inputs, self._said(files))

    def _members(self, text: bytes) -> dict[str, Any]:
        document = self._parse(text or b"{}")
        if not isinstance(document, dict):
            raise InvalidArgument("the body must be a JSON object with the arguments by name")
        return document

    def _encoded(self, text: bytes) -> _Fields:
        try:
            return _grouped(pairs_of(text))
        except UnicodeDecodeError:  # a file that curl calls a form
            raise self._unfit("binary data") from None

    def _parts(self, content_type: str, body: memoryview) -> tuple[_Fields, dict[str, list[Part]]]:
        """Return the fields and the files of a form; those of a list may be several."""
        fields: _Fields = defaultdict(list)
        files: dict[str, list[Part]] = defaultdict(list)
        for part in parts_of(content_type, body):
            if part.filename is None or not self._takes_files(part.name):
                fields[part.name].append(bytes(body[part.begin : part.end]))
            elif part.filename or part.end > part.begin:  # a browser sends a part without a file
                files[part.name].append(part)
        return fields, files

    def _unfit(self, kind: str) -> RefusedError:
        """Return the refusal of a body that is of no parameter."""
        files = [f"{types} as {named(name)}" for name, types in self._files.items()]
        what = ", ".join([_JSON, _URL_ENCODED, _MULTIPART, *files[: len(files) == 1]])
        return RefusedError(415, f"no parameter takes a body of {named(kind)}; send {what}")

    def _takes_files(self, name: str) -> bool:
        kind = self.parameters.get(name, _NO_KIND)
        return kind.is_file or (kind.dims == [-1] and "contentEncoding" in _items(kind))

    def _parse(self, text: bytes) -> Any:
        """Return the document of a text; an argument that is JSON has integers of any size.

        Raises InvalidArgument.
        """
        if not (self._has_documents and has_long_number(text)):
            return json_documents.parse(text)
        try:
            return documents.parse(text, limits=documents.LIMITS._replace(bytes=len(text)))
        except documents.DocumentError as error:
            raise InvalidArgument(str(error)) from None
        except ValueError as error:  # of numbers with too many digits
            raise InvalidArgument(f"failed to parse the request JSON buffer: {error}") from None

    def _is_absent(self, name: str, value: Any) -> bool:
        """Return whether null stands for an argument that is left out."""
        schema = self.input["properties"].get(name, {})
        return value is None and schema.get("default", name) is None

    def _is_filled(self, name: str, texts: list[bytes]) -> bool:
        """Return whether fields are an argument; an empty field leaves out an optional one."""
        return texts != [b""] or name in self.input["required"] or name not in self.parameters

    def _boxes(self) -> Iterable[str]:
        """Return the parameters that are false in a form without them: unchecked boxes."""
        return [n for n in self.input["required"] if _is_boolean(self.parameters[n])]

    def _document(self, kind: Kind, data: list[bytes]) -> Any:
        """Return the document that fields with a name are; those of a list are its elements."""
        try:
            texts = [str(each, "utf-8") for each in data]
        except UnicodeDecodeError:
            raise MismatchError("expected text in UTF-8, got other bytes") from None
        is_list = kind.schema.get("type") == "array"
        if not is_list or (len(texts) == 1 and texts[0].lstrip().startswith("[")):
            return self._parsed(kind, kind, texts[-1])
        element = _element_of(kind)
        return [self._parsed(kind, element, text) for text in texts]

    def _parsed(self, kind: Kind, element: Kind, text: str) -> Any:
        """Return the document that a field of this kind has as text, or an element of its list."""
        word = _WORDS.get(text.lower(), text) if _is_boolean(element) else text
        try:
            return element.from_text(word, self._parse)
        except InvalidArgument as error:
            raise MismatchError(f"{kind.mismatch(text)} ({error.text})") from None

    def _tensor(self, parts: Sequence[Part], body: memoryview) -> wire.Tensor:
        name = parts[-1].name
        several = parts[-1:] if self._kind(name).is_file else parts
        elements = [element_of(part, body) for part in several]
        shape = [1, len(several)][not self._has_batches :]
        return wire.Tensor(
            name, datatypes.BYTES, shape, elements[0] if len(several) == 1 else b"".join(elements)
        )

    def _said(self, files: Mapping[str, Sequence[Part]]) -> dict[str, str]:
        """Return the parameters of a request with the names and content types of its files."""
        return {
            f"{name}.{word}": text
            for name, (*_, part) in files.items()
            for word, text in (("filename", part.filename), ("content_type", part.content_type))
            if text and CONTENT in self._kind(name).schema
        }

    def _kind(self, name: str) -> Kind:
        if name in self.parameters:
            return self.parameters[name]
        names = ", ".join(self.parameters) or "none"
        raise MismatchError(f"there is no such argument; there are: {names}")

    def _value(self, kind: Kind, row: Any, fetch: Fetch | None) -> Any:
        """Return the value of a document, or of the fields that are one."""
        document = self._document(kind, row.data) if isinstance(row, _Texts) else row
        is_text = kind.is_file and isinstance(document, str)
        if is_text and document.startswith(("http://", "https://")):
            if fetch is None:
                raise MismatchError("the server reads no URLs, allow some by --functions-url-host")
            return kind.decode(np.array([fetch(document)], np.object_))
        return kind.from_json(document)

    def encode(
        self,
        values: Mapping[str, Any],
        read: Callable[[Kind, Any], Any] = lambda kind, value: value,
        others: Collection[str] = (),
    ) -> dict[str, Any]:
        """Return the inputs that arguments are; `read` makes values of them, `others` come later.

        Raises MismatchError.
        """
        arrays: dict[str, Any] = {}
        errors = [
            MismatchError(f"expected {self.parameters[name].expected}, got nothing", name)
            for name in self.input["required"]
            if name not in values and name not in others
        ]
        for name, value in values.items():
            with Place(name if name in self.parameters else named(name), errors):
                kind = self._kind(name)
                arrays.update(self._arrays(name, kind, read(kind, value)))
        raise_all(errors)
        return arrays

    def _arrays(self, name: str, kind: Kind, value: Any) -> dict[str, Any]:
        """Return the tensor of a value; of lists of different lengths there are two."""
        try:
            array = kind.encode(value)
        except RaggedError:
            if self._has_batches:
                raise
            return {name: kind.encode([]), name + RAGGED: _RAGGED.encode(kind.to_json(value))}
        return {name: array[np.newaxis] if self._has_batches else array}

    def decode(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each output; None for one that a response lacks."""
        rows = self._rows(outputs)
        values = {n: k.decode(rows[n]) if n in rows else None for n, k in self._outputs.items()}
        for name in [each for each in values if each + RAGGED in rows]:
            ragged = _RAGGED.decode(rows[name + RAGGED])
            values[name] = self._outputs[name].from_json(ragged)
        return values

    def _rows(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        return {n: a[0] if self._has_batches else a for n, a in outputs.items() if a is not None}

    def write(self, outputs: Mapping[str, Any]) -> bytes:
        """Return the document of a response's outputs."""
        rows = self._rows(outputs)
        document = {n: _answer(k, rows[n]) if n in rows else None for n, k in self._outputs.items()}
        ragged = {n: _answer(_RAGGED, rows[n + RAGGED]) for n in document if n + RAGGED in rows}
        return b"".join(documents.pieces({**document, **ragged}, _write))

    def file(self, outputs: Mapping[str, Any]) -> tuple[bytes, str] | None:
        """Return the file that an answer is, with its content type; None if it has none."""
        [name] = self._file
        if name not in (rows := self._rows(outputs)):
            return None
        value = self._outputs[name].decode(rows[name])
        return (value.data, value.content_type) if isinstance(value, Media) else (value, _BYTES)

    def operation(self, name: str, example: Any = None) -> dict[str, Any]:
        """Return the function's part of /openapi.json."""
        summary, _, description = self.about.partition("\n")
        parts = {each: _part(schema) for each, schema in self.input["properties"].items()}
        body = {_JSON: {"schema": self.input}}
        if example is not None:
            body[_JSON]["examples"] = {name: {"value": example}}
        body[_MULTIPART] = {"schema": {**self.input, "properties": parts}}
        if len(self._files) == 1:
            body |= {types: {} for types in self._files.values()}
        answers: dict[str, Any] = {self.offers[0]: {"schema": self.output}}
        answers |= {_range(self._outputs[each]): {} for each in self._file}
        return {
            "operationId": f"call_{name}",
            "summary": summary,
            "description": description.strip(),
            "tags": [name],
            "requestBody": {"required": True, "content": body},
            "responses": {
                "200": {"description": "The answer.", "content": answers},
                "406": {"description": "The answer is of no content type in Accept."},
                "413": {"description": "The body is too large."},
                "415": {"description": "No parameter takes a body of this type."},
                "422": {"description": "An argument is wrong."},
            },
        }


def _part(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an argument in a form, where a file is no text."""
    if "contentEncoding" not in schema:
        return schema
    return {"type": "string", "format": "binary", CONTENT: schema.get(CONTENT, _BYTES)}


def _content_type(kind: Kind) -> str:
    return str(kind.schema.get(CONTENT, _BYTES))


def _range(kind: Kind) -> str:
    """Return the content types of a kind of files: "image/*"."""
    major = _content_type(kind).partition("/")[0]
    return _ANY if major == "application" else f"{major}/*"


def _is_boolean(kind: Kind) -> bool:
    return kind.schema.get("type") == _BOOLEAN


def _items(kind: Kind) -> Any:
    """Return the schema of an array's elements."""
    of_array = {"type": "string"} if kind.schema.get(DATATYPE) == "STRING" else {}
    return kind.schema.get("items", of_array)


def _element_of(kind: Kind) -> Kind:
    """Return the kind of an array's elements, that of all JSON for one without a name."""
    try:
        return kind_of_schema(_items(kind))
    except HintError:
        return Kind()


def _grouped(pairs: Iterable[tuple[str, bytes]]) -> _Fields:
    fields: _Fields = defaultdict(list)
    for name, value in pairs:
        fields[name].append(value)
    return fields


def _answer(kind: Kind, row: Any) -> Any:
    """Return the document of an output, without parsing one that is JSON."""
    if isinstance(kind, Documents):
        return orjson.Fragment(as_bytes(row.reshape(-1)[0]).replace(b"\n", b" "))
    return kind.to_json(kind.decode(row))


def _write(document: Any) -> bytes:
    """Write a piece of an answer; numbers that are not finite are null, as pydantic writes them."""
    return orjson.dumps(document)


def has_long_number(text: bytes) -> bool:
    """Return whether a text has a number of so many digits that 64 bits may not hold it."""
    steps = range(0, len(text), _STEP_BYTES)  # other threads run between them
    pieces = (text[at : at + _STEP_BYTES + len(_DIGITS)] for at in steps)
    return any(_DIGITS in each.translate(_TO_DIGITS) for each in pieces)


def _kinds(schema: Mapping[str, Any]) -> dict[str, Kind]:
    return {name: kind_of_schema(each) for name, each in schema["properties"].items()}


@lru_cache(maxsize=1024)
def _read(text: str) -> Interface:
    return Interface(json.loads(text))


def interface_of(config: Mapping[str, Any]) -> Interface | None:
    """Return the interface of a model; None for one that is no function."""
    text = config_parameter(config, DESCRIPTION)
    return _read(text) if text else None
