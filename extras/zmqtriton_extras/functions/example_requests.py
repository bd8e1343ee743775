"""Makes the example request of a function, which `zmqtriton run` prints, from its schema.

The supervisor imports this module, which therefore leaves out numpy: that takes 10 MB.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zmqtriton.sdk.models import config_parameter
from zmqtriton_extras.functions.backend.names import CONTENT, DATATYPE, DESCRIPTION, DIMS

#: A picture of one pixel and a sound of one sample, in base64, by content type.
_FILES = {
    "image/png": (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
        "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    ),
    "audio/wav": "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==",
}
_BASE64 = "aGVsbG8="
#: Example elements of arrays, if they are not numbers.
_ELEMENTS: Mapping[str, Any] = {"BOOL": True, "STRING": "hello"}
_VALUES: Mapping[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "null": None}
#: Example texts by their `format` in a JSON schema.
_FORMATS: Mapping[str, str] = {
    "date": "2020-01-31",
    "date-time": "2020-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "time": "12:00:00",
    "uri": "https://example.com",
    "uuid": "12345678-1234-4234-8234-123456789012",
}
#: Maximum characters of an example; longer ones are not readable.
_MAX_CHARACTERS = 1000


def requests(name: str, config: Mapping[str, Any], options: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and JSON of an example request, unless it is long, and the URL of the page."""
    if not (text := config_parameter(config, DESCRIPTION)):
        return
    description = json.loads(text)
    example = example_for(description["input"], description.get("examples", []))
    if example is not None:
        yield f"/{name}", json.dumps(example, ensure_ascii=False)
    if options.value("allow_web_page"):
        yield "", f"# in a browser, with a form: {{url}}/{name}"


def example_for(schema: Mapping[str, Any], examples: Sequence[Mapping[str, Any]]) -> Any:
    """Return example arguments of a function; None if their JSON is too long to read."""
    example = example_of(schema)
    messages = example.get("messages")
    for each in messages if isinstance(messages, list) else ():
        if each == {} or (isinstance(each, dict) and "role" in each):  # one of a chat
            each.update(role="user", content="hello")
    for each in (*examples, example):
        if len(json.dumps(each, ensure_ascii=False)) < _MAX_CHARACTERS:
            return each
    return None


def example_of(schema: Mapping[str, Any]) -> Any:
    """Return an example value for a JSON schema. It ignores patterns."""
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if DATATYPE in schema:
        example = _ELEMENTS.get(schema[DATATYPE], 1)
        for dim in reversed(schema[DIMS][kind == "number" :]):
            example = [example] * max(dim, 1)
    elif several := schema.get("enum") or schema.get("examples") or [*_constant(schema)]:
        example = several[0]
    elif several := schema.get("anyOf") or schema.get("oneOf"):
        example = example_of(several[0])
    elif kind == "array":
        rows = schema.get("prefixItems", [schema.get("items", {})] * schema.get("minItems", 1))
        example = [example_of(each) for each in rows]
    elif kind == "object":
        rows = schema.get("properties", {})
        example = {name: example_of(rows[name]) for name in schema.get("required", ())}
    elif kind == "string":
        text = _BASE64 if "contentEncoding" in schema else _FORMATS.get(schema.get("format", ""))
        text = text or "hello"[: schema.get("maxLength")].ljust(schema.get("minLength", 0), "o")
        example = _FILES.get(schema.get(CONTENT, ""), text)
    elif kind in ("integer", "number"):
        example = _number(schema, _VALUES[kind])
    else:
        example = _VALUES[kind]
    return example


def _constant(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the constant and the default of a schema, if it has them."""
    yield from (schema[name] for name in ("const", "default") if name in schema)


def _number(schema: Mapping[str, Any], usual: float) -> float:
    """Return the usual number if the schema's bounds permit it, or else one that they permit."""
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = (
        schema.get("exclusiveMinimum", -math.inf),
        schema.get("exclusiveMaximum", math.inf),
    )
    middle = (max(low, above) + min(high, below)) / 2
    numbers = (schema.get("multipleOf", usual), low, high, above + 1, below - 1, middle)
    return next((n for n in numbers if low <= n <= high and above < n < below), usual)
