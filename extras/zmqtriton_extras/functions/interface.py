"""Converts arguments and results of a function to and from tensors in the server.

The server does not import the function. Its backend has written a description into a parameter of
the model's configuration.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import orjson

from zmqtriton.sdk.models import config_parameter
from zmqtriton.sdk.wire import documents
from zmqtriton_extras.functions.backend.documents import Documents, kind_of_schema
from zmqtriton_extras.functions.backend.kinds import (
    ERROR,
    MAX_ERRORS,
    Kind,
    MismatchError,
    Place,
    RaggedError,
    as_bytes,
    named,
    raise_all,
)
from zmqtriton_extras.functions.backend.media import Media, types_like
from zmqtriton_extras.functions.backend.names import CONTENT, DESCRIPTION
from zmqtriton_extras.functions.backend.signature import RAGGED

JSON, MULTIPART, _STREAM = "application/json", "multipart/form-data", "text/event-stream"
#: The content type of bytes without a known type.
BYTES_TYPE = Media.content_type
_ANY = "*/*"
#: Maximum bytes of placeholders for wrong values in a request.
_MAX_BLANK_BYTES = 64 << 10
_RAGGED = Documents("lists of different lengths", {})


class Request(NamedTuple):
    """The inputs of a request to the model, and its parameters, such as names of files."""

    inputs: dict[str, Any]
    parameters: dict[str, str]


class Interface:
    def __init__(self, description: Mapping[str, Any]) -> None:
        self.about: str = description["about"]
        #: Name of the function's NamedTuple; "" if it returns a dict or one value.
        self.tuple: str = description.get("tuple", "")
        self.is_stream: bool = description["is_stream"]
        self.input: dict[str, Any] = description["input"]
        self.output: dict[str, Any] = description["output"]
        self.has_batches: bool = description["has_batches"]
        #: Requests that the author offers, as JSON arguments.
        self.examples: list[dict[str, Any]] = description.get("examples", [])
        self._is_checked: bool = description.get("is_checked", False)
        self.parameters = _kinds(self.input)
        self._outputs = _kinds(self.output)
        self.has_documents = any(isinstance(k, Documents) for k in self.parameters.values())
        #: Content types of file parameters by name, such as "image/*".
        self.files = {name: _range(k) for name, k in self.parameters.items() if k.is_file}
        files = [] if self.is_stream else [n for n, kind in self._outputs.items() if kind.is_file]
        #: The name of the only file output, or nothing.
        self._file = files if len(files) == 1 else []
        #: Content types of responses, the default first.
        self.offers = [_STREAM, JSON] if self.is_stream else [JSON]
        for name in self._file:
            self.offers += [*types_like(_content_type(self._outputs[name])), BYTES_TYPE]

    def encode(
        self,
        values: Mapping[str, Any],
        read: Callable[[Kind, Any], Any] = lambda kind, value: value,
        others: Collection[str] = (),
    ) -> Request:
        """Return the request for arguments by name.

        `read` converts an argument to its value. `others` are names of arguments that the caller
        adds.

        Raises MismatchError, unless the model's process can find further errors: then the request
        has these errors as parameters.
        """
        arrays: dict[str, Any] = {}
        errors = [
            MismatchError(f"expected {self.parameters[name].expected}, got nothing", name)
            for name in self.input["required"]
            if name not in values and name not in others
        ]
        for name, value in values.items():
            kind = self.parameters.get(name)
            with Place(named(name) if kind is None else name, errors):
                if kind is None:
                    names = ", ".join(self.parameters) or "none"
                    raise MismatchError(f"there is no such argument; there are: {names}")
                arrays.update(self._arrays(name, kind, read(kind, value)))
        if not errors:
            return Request(arrays, {})
        said: dict[str, list[str]] = defaultdict(list)
        for each in errors:
            said[each.place[0]] += each.lines(MAX_ERRORS)
        blanks = {n: self._batched(k.blank()) for n, k in self.parameters.items() if n in said}
        is_large = sum(each.nbytes for each in blanks.values()) > _MAX_BLANK_BYTES
        is_checked = self._is_checked and not is_large and bool(arrays or others)
        if not is_checked or sum(len(each.more) + 1 for each in errors) > MAX_ERRORS:
            raise_all(errors)
        parameters = {name + ERROR: "\n".join(lines) for name, lines in said.items()}
        return Request({**arrays, **blanks}, parameters)

    def _batched(self, array: Any) -> Any:
        return array[np.newaxis] if self.has_batches else array

    def _arrays(self, name: str, kind: Kind, value: Any) -> dict[str, Any]:
        """Return the arrays of a value by name; lists of different lengths need a second one."""
        try:
            array = kind.encode(value)
        except RaggedError:
            if self.has_batches:
                raise
            return {name: kind.encode([]), name + RAGGED: _RAGGED.encode(kind.to_json(value))}
        return {name: self._batched(array)}

    def decode(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Convert a response's outputs to values by name; a missing output is None."""
        rows = self._rows(outputs)
        values = {n: k.decode(rows[n]) if n in rows else None for n, k in self._outputs.items()}
        for name in [each for each in values if each + RAGGED in rows]:
            ragged = _RAGGED.decode(rows[name + RAGGED])
            values[name] = self._outputs[name].from_json(ragged)
        return values

    def _rows(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        return {n: a[0] if self.has_batches else a for n, a in outputs.items() if a is not None}

    def write(self, outputs: Mapping[str, Any]) -> bytes:
        """Return a response's outputs as a JSON object; NaN and infinities become null."""
        rows = self._rows(outputs)
        document = {n: _answer(k, rows[n]) if n in rows else None for n, k in self._outputs.items()}
        ragged = {n: _answer(_RAGGED, rows[n + RAGGED]) for n in document if n + RAGGED in rows}
        text = b"".join(documents.pieces({**document, **ragged}, orjson.dumps))
        for each in document.values():
            documents.empty(each)
        return text

    def file(self, outputs: Mapping[str, Any]) -> tuple[bytes, str] | None:
        """Return the content and content type of the only file output; None if it is missing."""
        [name] = self._file
        if name not in (rows := self._rows(outputs)):
            return None
        value = self._outputs[name].decode(rows[name])
        return (value.data, value.content_type) if isinstance(value, Media) else (value, BYTES_TYPE)

    def operation(self, name: str, example: Any = None) -> dict[str, Any]:
        """Return the function's part of /openapi.json."""
        summary, _, description = self.about.partition("\n")
        parts = {each: _part(schema) for each, schema in self.input["properties"].items()}
        body = {JSON: {"schema": self.input}}
        examples = self.examples or ([] if example is None else [example])
        if examples:
            names = [name, *(f"{name} {number}" for number in range(2, len(examples) + 1))]
            rows = zip(names, examples, strict=True)
            body[JSON]["examples"] = {each: {"value": value} for each, value in rows}
        body[MULTIPART] = {"schema": {**self.input, "properties": parts}}
        if len(self.files) == 1:
            body |= {types: {} for types in self.files.values()}
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
    """Return the schema of an argument in a form, where files are binary instead of base64."""
    if "contentEncoding" not in schema:
        return schema
    return {"type": "string", "format": "binary", CONTENT: schema.get(CONTENT, BYTES_TYPE)}


def _content_type(kind: Kind) -> str:
    return str(kind.schema.get(CONTENT, BYTES_TYPE))


def _range(kind: Kind) -> str:
    """Return the content types that a kind of file accepts, such as "image/*"."""
    major = _content_type(kind).partition("/")[0]
    return _ANY if major == "application" else f"{major}/*"


def _answer(kind: Kind, row: Any) -> Any:
    """Convert an output for JSON; text that is already JSON is not parsed."""
    if isinstance(kind, Documents):
        return orjson.Fragment(as_bytes(row.reshape(-1)[0]).replace(b"\n", b" "))
    return kind.to_json(kind.decode(row))


def _kinds(schema: Mapping[str, Any]) -> dict[str, Kind]:
    return {name: kind_of_schema(each) for name, each in schema["properties"].items()}


@lru_cache(maxsize=1024)
def _read(text: str) -> Interface:
    return Interface(json.loads(text, parse_int=_as_number))


def _as_number(digits: str) -> float:
    """Return an integer of a default or an example, as a float if it is too large for orjson."""
    number = float(digits)
    return int(digits) if -(2.0**63) <= number < 2.0**64 else number


def interface_of(config: Mapping[str, Any]) -> Interface | None:
    """Return the interface of a model by its configuration; None if it is not a function."""
    text = config_parameter(config, DESCRIPTION)
    return _read(text) if text else None
