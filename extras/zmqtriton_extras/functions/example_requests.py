"""The request that `zmqtriton run` prints for a function: plain JSON with a value of each kind."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton_extras.functions.backend.kinds import CONTENT, DATATYPE, DIMS
from zmqtriton_extras.functions.backend.media import Audio, Image
from zmqtriton_extras.functions.interface import Interface, interface_of

#: A picture of one pixel, as PNG.
_PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_FILES = {
    Image.content_type: _PIXEL,
    Audio.content_type: base64.b64encode(Audio.of([0.0], 8000).data).decode(),
}
_BASE64 = "aGVsbG8="
#: Elements of arrays that are no numbers.
_ELEMENTS: Mapping[str, Any] = {"BOOL": True, "STRING": "hello"}
_VALUES: Mapping[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "string": "hello"}
#: Longer requests cannot be read.
_MAX_CHARACTERS = 1000


def requests(name: str, config: Mapping[str, Any], options: object) -> Iterator[tuple[str, str]]:
    """Yield the path and the JSON, but not for other models, or if it would be long."""
    interface = interface_of(config)
    if interface and (example := example_of(interface)) is not None:
        yield f"/{name}", json.dumps(example, ensure_ascii=False)


def example_of(interface: Interface) -> Any:
    """Return the arguments of a call as JSON; None if they would be long."""
    example = _example(interface.input, interface.input)
    return example if len(json.dumps(example, ensure_ascii=False)) < _MAX_CHARACTERS else None


def _example(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    """Return a document that a schema describes; `whole` has what it refers to."""
    kind = schema.get("type", "object")
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        example = _example(whole["$defs"][name], whole)
    elif DATATYPE in schema:
        example = _ELEMENTS.get(schema[DATATYPE], 1)
        for dim in reversed(schema[DIMS][kind == "number" :]):
            example = [example] * max(dim, 1)
    elif several := schema.get("enum") or schema.get("examples"):
        example = several[0]
    elif "anyOf" in schema:
        example = _example(schema["anyOf"][0], whole)
    elif kind == "array":
        example = [_example(schema["items"], whole)]
    elif kind == "object":
        own = schema if "$defs" in schema else whole
        rows = schema.get("properties", {})
        example = {name: _example(rows[name], own) for name in schema.get("required", ())}
    else:
        value = _BASE64 if "contentEncoding" in schema else _VALUES[kind]
        example = _FILES.get(schema.get(CONTENT, ""), schema.get("minimum", value))
    return example
