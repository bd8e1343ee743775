"""A function's interface as the server knows it: plain JSON and forms become inputs.

It is read from the parameter of the model's configuration that its backend makes of the hints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
import orjson

from zmqtriton_extras.functions.backend.documents import Documents, kind_of_schema
from zmqtriton_extras.functions.backend.kinds import (
    Kind,
    MismatchError,
    Place,
    RaggedError,
    as_bytes,
    named,
    raise_all,
)
from zmqtriton_extras.functions.backend.signature import DESCRIPTION, RAGGED
from zmqtriton_extras.routes.backend.multipart import Part, element_of, parts_of, read_form
from zmqtriton_floor import documents
from zmqtriton_floor.datatypes import BYTES
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.signature import config_parameter
from zmqtriton_floor.wire import Tensor
from zmqtriton_frontends.http_api.inference import json_documents

_JSON = "application/json"
_URL_ENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_NO_FILES: Mapping[str, Tensor] = {}
_RAGGED = Documents("lists of different lengths", {})
#: Digits of a number that 64 bits may not hold, and the table that makes all digits equal to them.
_DIGITS = b"0" * 19
_TO_DIGITS = bytes(48 if 48 <= each <= 57 else 32 for each in range(256))
_STEP_BYTES = 1 << 20
#: Returns the file at a URL. Raises MismatchError.
Fetch = Callable[[str], bytes]


def is_form(content_type: str) -> bool:
    """Return whether a body is a form with files."""
    return content_type.lower().startswith(_MULTIPART)


class Interface:
    def __init__(self, description: Mapping[str, Any]) -> None:
        self.about: str = description["about"]
        self.is_stream: bool = description["is_stream"]
        self.input: dict[str, Any] = description["input"]
        self.output: dict[str, Any] = description["output"]
        self._has_batches: bool = description["has_batches"]
        self.parameters = _kinds(self.input)
        self._outputs = _kinds(self.output)
        self._has_documents = any(isinstance(k, Documents) for k in self.parameters.values())
        self.takes_files = any(kind.is_file for kind in self.parameters.values())

    def read(self, content_type: str, body: Any, fetch: Fetch | None = None) -> dict[str, Any]:
        """Return the inputs that a body has; `fetch` reads files at URLs.

        Raises MismatchError, InvalidArgument for a document, and RefusedError for a form.
        """
        if is_form(content_type):
            return self._of_form(content_type, memoryview(body), fetch)
        body = bytes(body)
        # curl calls a document a form, too
        if content_type.lower().startswith(_URL_ENCODED) and not body.lstrip().startswith(b"{"):
            return self._of_texts(read_form(content_type, memoryview(body))[0], fetch)
        document = self._parse(body or b"{}")
        if not isinstance(document, dict):
            raise InvalidArgument("the body must be a JSON object with the arguments by name")
        rows = {k: v for k, v in document.items() if not self._is_absent(k, v)}
        return self.encode(rows, read=partial(self._value, fetch=fetch))

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

    def _of_texts(
        self, texts: Mapping[str, str], fetch: Fetch | None, files: Mapping[str, Tensor] = _NO_FILES
    ) -> dict[str, Any]:
        def read(kind: Kind, text: str) -> Any:
            try:
                return self._value(kind, kind.from_text(text, self._parse), fetch)
            except InvalidArgument as error:
                raise MismatchError(f"{kind.mismatch(text)} ({error.text})") from None

        return self.encode(texts, files, read)

    def _of_form(self, content_type: str, body: memoryview, fetch: Fetch | None) -> dict[str, Any]:
        texts, files = {}, {}
        for part in parts_of(content_type, body):
            kind = self.parameters.get(part.name)
            if part.filename is not None and kind and kind.is_file:
                files[part.name] = self._file(part, body)
            else:
                texts[part.name] = str(body[part.begin : part.end], "utf-8", "replace")
        return self._of_texts(texts, fetch, files)

    def _file(self, part: Part, body: memoryview) -> Tensor:
        shape = [1, 1][not self._has_batches :]
        return Tensor(part.name, BYTES, shape, element_of(part, body))

    def _kind(self, name: str) -> Kind:
        if name in self.parameters:
            return self.parameters[name]
        names = ", ".join(self.parameters) or "none"
        raise MismatchError(f"there is no such argument; there are: {names}")

    @staticmethod
    def _value(kind: Kind, document: Any, fetch: Fetch | None) -> Any:
        if fetch and kind.is_file and str(document).startswith(("http://", "https://")):
            return kind.decode(np.array([fetch(document)], np.object_))
        return kind.from_json(document)

    def encode(
        self,
        values: Mapping[str, Any],
        files: Mapping[str, Tensor] = _NO_FILES,
        read: Callable[[Kind, Any], Any] = lambda kind, value: value,
    ) -> dict[str, Any]:
        """Return the inputs that arguments are; `read` makes values of them.

        Raises MismatchError.
        """
        arrays: dict[str, Any] = {**files}
        errors = [
            MismatchError(f"expected {self.parameters[name].expected}, got nothing", name)
            for name in self.input["required"]
            if name not in values and name not in files
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

    def operation(self, name: str) -> dict[str, Any]:
        """Return the function's part of /openapi.json."""
        media = "text/event-stream" if self.is_stream else _JSON
        summary, _, description = self.about.partition("\n")
        return {
            "operationId": f"call_{name}",
            "summary": summary,
            "description": description.strip(),
            "tags": [name],
            "requestBody": {
                "required": True,
                "content": {kind: {"schema": self.input} for kind in (_JSON, _MULTIPART)},
            },
            "responses": {
                "200": {"description": "The answer.", "content": {media: {"schema": self.output}}},
                "422": {"description": "An argument is wrong."},
            },
        }


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
