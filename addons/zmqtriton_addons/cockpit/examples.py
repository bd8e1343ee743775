"""Example requests that a model accepts, made of its signature, for the description of the API.

Small, and the same each time.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.signature import Input, Signature

#: An example is there to be read.
_MAX_ELEMENTS = 64
_TEXT = "a few words of text"


def infer(signature: Signature) -> dict[str, Any] | None:
    """Return the JSON of an inference; None if JSON could not carry it or nobody would read it."""
    inputs = _required(signature)
    if not _is_presentable(inputs):
        return None
    return {
        "inputs": [
            {
                "name": declaration.name,
                "shape": _shape(declaration),
                "datatype": BY_NUMBER[declaration.datatype].name,
                "data": _elements(declaration),
            }
            for declaration in inputs
        ]
    }


def generate(signature: Signature) -> dict[str, Any] | None:
    """Return the flat JSON of generate; None as above."""
    inputs = _required(signature)
    if not _is_presentable(inputs):
        return None
    document = {}
    for declaration in inputs:
        elements = _elements(declaration)
        document[declaration.name] = elements[0] if len(elements) == 1 else elements
    return document


def _required(signature: Signature) -> list[Input]:
    return [declaration for declaration in signature.inputs.values() if not declaration.optional]


def _is_presentable(inputs: list[Input]) -> bool:
    return all(
        BY_NUMBER[declaration.datatype].json_kind
        and count_elements(_shape(declaration)) <= _MAX_ELEMENTS
        for declaration in inputs
    )


def _shape(declaration: Input) -> list[int]:
    return [1 if dim < 0 else dim for dim in declaration.dims]


def _elements(declaration: Input) -> list[Any]:
    count = count_elements(_shape(declaration))
    if declaration.datatype == BYTES:
        return [_TEXT] * count
    kind = BY_NUMBER[declaration.datatype].json_kind
    if kind == "boolean":
        return [index % 2 == 1 for index in range(count)]
    if kind == "number":
        return [float(index) for index in range(count)]
    return list(range(count))
