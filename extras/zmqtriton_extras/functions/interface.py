"""A function's interface as the server knows it: plain JSON and forms become inputs.

It is read from the parameter of the model's configuration that its backend makes of the hints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from zmqtriton_extras.functions.backend.documents import kind_of_schema
from zmqtriton_extras.functions.backend.kinds import Kind, MismatchError, Place
from zmqtriton_extras.functions.backend.signature import DESCRIPTION
from zmqtriton_extras.routes.backend.multipart import read_form
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.signature import config_parameter
from zmqtriton_frontends.http_api.inference import json_documents

_JSON = "application/json"
_URL_ENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"


class Interface:
    def __init__(self, description: Mapping[str, Any]) -> None:
        self.about: str = description["about"]
        self.is_stream: bool = description["is_stream"]
        self.input: dict[str, Any] = description["input"]
        self.output: dict[str, Any] = description["output"]
        self._has_batches: bool = description["has_batches"]
        self._parameters = _kinds(self.input)
        self._outputs = _kinds(self.output)

    def read(self, content_type: str, body: bytes) -> dict[str, Any]:
        """Return the inputs that a body has.

        Raises MismatchError, InvalidArgument for a document, and RefusedError for a form.
        """
        kind = content_type.partition(";")[0].strip().lower()
        # curl calls a document a form, too
        if kind == _URL_ENCODED and not body.lstrip().startswith(b"{"):
            return self._of_form(dict(parse_qsl(body.decode(), True)), {})
        if kind == _MULTIPART:
            fields, files = read_form(content_type, memoryview(body))
            return self._of_form(fields, {name: each.bytes for name, each in files.items()})
        document = json_documents.parse(body or b"{}")
        if not isinstance(document, dict):
            raise InvalidArgument("the body must be a JSON object with the arguments by name")
        documents = {k: v for k, v in document.items() if not self._is_absent(k, v)}
        return self._encoded({name: self._value(name, documents[name]) for name in documents})

    def _is_absent(self, name: str, value: Any) -> bool:
        """Return whether null stands for an argument that is left out."""
        schema = self.input["properties"].get(name, {})
        return value is None and schema.get("default", name) is None

    def _of_form(self, fields: Mapping[str, str], files: Mapping[str, bytes]) -> dict[str, Any]:
        values = {}
        for name, text in fields.items():
            with Place(name):
                document = self._kind(name).from_text(text)
            values[name] = self._value(name, document)
        for name, data in files.items():
            with Place(name):
                values[name] = self._kind(name).from_bytes(data)
        return self._encoded(values)

    def _kind(self, name: str) -> Kind:
        if name not in self._parameters:
            names = ", ".join(self._parameters) or "none"
            raise MismatchError(f"there is no such argument; there are: {names}", name)
        return self._parameters[name]

    def _value(self, name: str, document: Any) -> Any:
        kind = self._kind(name)
        with Place(name):
            return kind.from_json(document)

    def _encoded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        for name in self.input["required"]:
            if name not in values:
                expected = self._parameters[name].expected
                raise MismatchError(f"expected {expected}, got nothing", name)
        arrays = {}
        for name, value in values.items():
            with Place(name):
                array = self._parameters[name].encode(value)
            arrays[name] = array[np.newaxis] if self._has_batches else array
        return arrays

    def write(self, outputs: Mapping[str, Any]) -> bytes:
        """Return the document of a response's outputs."""
        document = {}
        for name, kind in self._outputs.items():
            array = outputs.get(name)
            if array is not None:
                row = array[0] if self._has_batches else array
                document[name] = kind.to_json(kind.decode(row))
            else:
                document[name] = None
        written: bytes = json_documents.write(document)
        return written

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


def _kinds(schema: Mapping[str, Any]) -> dict[str, Kind]:
    return {name: kind_of_schema(each) for name, each in schema["properties"].items()}


@lru_cache(maxsize=1024)
def _read(text: str) -> Interface:
    return Interface(json.loads(text))


def interface_of(config: Mapping[str, Any]) -> Interface | None:
    """Return the interface of a model; None for one that is no function."""
    text = config_parameter(config, DESCRIPTION)
    return _read(text) if text else None
