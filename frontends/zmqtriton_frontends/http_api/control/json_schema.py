"""The parts that schemas of the API's description are made of."""

from __future__ import annotations

from typing import Any

STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 0}


def object_of(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


def array_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def schema_named(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
