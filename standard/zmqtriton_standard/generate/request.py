"""The flat JSON of generate: keys that name inputs are tensors, all others are parameters.

The document has no shapes; they are deduced from the model's. Whether the request fits its model is
checked by admission.prepare. Texts are Triton's, which takes neither nested lists nor bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

from zmqtriton.sdk.frontend import admission, infer_request, json_documents, tensor_data
from zmqtriton.sdk.wire import InvalidArgument, datatypes, documents, signature, wire

#: The key whose members are read as if they stood at the top.
_NESTED = "parameters"
#: The one key of an object that stands for bytes.
_BASE64 = "b64"


def read_bytes(data: bytes, inputs: dict[str, signature.Input]) -> wire.RequestBody:
    """Read a body that is the value of the one BYTES input that a model has, or requires.

    Raises InvalidArgument.
    """
    of_bytes = [each for each in inputs.values() if each.datatype == datatypes.BYTES]
    declarations = [each for each in of_bytes if not each.optional] or of_bytes
    if len(declarations) != 1:
        raise InvalidArgument(
            "a body that is not JSON is the value of the model's one input of TYPE_STRING; this "
            f"model's are: {', '.join(each.name for each in declarations) or 'none'}"
        )
    return wire.RequestBody("", {}, [], [_tensor(declarations[0], data)])


def read_text(text: bytes, inputs: dict[str, signature.Input]) -> wire.RequestBody:
    """Read the text of a request for a model with these inputs. Raises InvalidArgument."""
    with json_documents.opened(text) as document:
        quoted = (json.dumps(name, ensure_ascii=False).encode() for name in inputs)
        twice = [name for name in quoted if text.count(name) > 1]
        if twice and len(text) < json_documents.LARGE_BYTES:
            _check_keys(text, inputs)
        elif any(len(re.findall(re.escape(name) + rb"\s*:", text)) > 1 for name in twice):
            raise InvalidArgument("an input is given twice: leave one out")
        return read(document, inputs)


def _as_text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _check_keys(text: bytes, inputs: dict[str, signature.Input]) -> None:
    """Raise InvalidArgument for an input that is a key twice: a document has it only once.

    As in Triton the error is about the first member that does not fit.
    """
    try:
        # an object is a tuple of its members here, in the order of the text
        members = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return  # whoever has read it knows more of JSON than this reader
    if type(members) is not tuple:
        return
    nested = [value for key, value in members if key == _NESTED and type(value) is tuple]
    names = [key for each in (members, *nested) for key, _ in each if key in inputs]
    if len(set(names)) < len(names):
        _convert(members, inputs)


def read(document: Any, inputs: dict[str, signature.Input]) -> wire.RequestBody:
    """Read the request for a model with these inputs. Raises InvalidArgument."""
    if type(document) is not dict:
        raise InvalidArgument("attempt to get members for non-object")
    tensors, parameters = _convert(document.items(), inputs)
    if len(parameters) > infer_request.MAX_PARAMETERS:
        raise InvalidArgument(
            f"a request cannot have more than {infer_request.MAX_PARAMETERS} parameters"
        )
    return wire.RequestBody(infer_request.request_id(document), parameters, [], tensors)


def _convert(
    members: Iterable[tuple[str, Any]], inputs: dict[str, signature.Input]
) -> tuple[list[wire.Tensor], dict[str, Any]]:
    """Return the tensors and the parameters among the members of a request."""
    tensors: list[wire.Tensor] = []
    parameters: dict[str, Any] = {}
    for key, value in members:
        if key != _NESTED:
            _take(key, value, inputs, tensors, parameters)
            continue
        if key in inputs:
            raise InvalidArgument(
                f"Keyword '{key}' for nested schema also given as input tensor name"
            )
        if type(value) not in (dict, tuple):
            raise InvalidArgument(
                f"Expected JSON object for keyword: '{key}': attempt to access JSON non-object as "
                "object"
            )
        nested = value.items() if type(value) is dict else value
        try:
            for nested_key, nested_value in nested:
                if (
                    nested_key not in inputs
                    and nested_key != _NESTED
                    and type(nested_value) in (dict, list, tuple)
                ):
                    # a parameter has no type for it
                    nested_value = b"".join(documents.pieces(nested_value, _as_text)).decode()
                _take(nested_key, nested_value, inputs, tensors, parameters)
        except InvalidArgument as error:
            raise InvalidArgument(f"Converting keyword: '{key}': {error.text}") from None
    return tensors, parameters


def _take(
    key: str,
    value: Any,
    inputs: dict[str, signature.Input],
    tensors: list[wire.Tensor],
    parameters: dict[str, Any],
) -> None:
    declaration = inputs.get(key)
    if declaration is not None:
        if any(tensor.name == key for tensor in tensors):
            raise InvalidArgument(
                f"[request id: <id_unknown>] input '{key}' already exists in request"
            )
        if value is not None:
            tensors.append(_tensor(declaration, value))
        elif not declaration.optional:
            raise InvalidArgument(f"input '{key}' is required and cannot be null")
    elif type(value) in (str, int, bool, float):
        admission.check_parameter_name(key)
        parameters[key] = value
    else:
        raise InvalidArgument(
            f"parameter '{key[: admission.MAX_NAME]}' has invalid type. It should be either 'int', "
            f"'bool', or 'string'. The inputs of this model are: {', '.join(inputs)}."
        )


def _tensor(declaration: signature.Input, value: Any) -> wire.Tensor:
    name, datatype = declaration.name, datatypes.BY_NUMBER[declaration.datatype]
    if declaration.datatype == datatypes.BYTES:
        value = _with_bytes(name, value)
    elements = value if type(value) is list else [value]
    try:
        shape = _shape(name, declaration.dims, len(elements))
        data = tensor_data.json_to_bytes(name, datatype, math.prod(shape), elements)
    except InvalidArgument:
        shape, elements = _unnested(value, len(declaration.dims))
        # a dimension of any length has the list's
        if shape != [
            own if dim < 0 else dim for dim, own in zip(declaration.dims, shape, strict=False)
        ]:
            raise
        data = tensor_data.json_to_bytes(name, datatype, len(elements), elements)
    return wire.Tensor(name, datatype.number, shape, data)


def _with_bytes(name: str, value: Any) -> Any:
    """Return a value with bytes for each object that has only a text in base64."""
    if type(value) is list:
        return [_with_bytes(name, element) for element in value]
    members = dict(value) if type(value) in (dict, tuple) else {}
    text = members.get(_BASE64)
    if type(text) is not str or len(members) > 1:
        return value
    try:
        return documents.from_base64(text)
    except ValueError as error:
        raise InvalidArgument(
            f"input '{name}' has invalid base64 in '{_BASE64}': {error}"
        ) from None


def _unnested(value: Any, rank: int) -> tuple[list[int], list[Any]]:
    """Return the shape of nested lists and their elements.

    As in Triton, missing dimensions are 1. Lists of no shape get one dimension too many.
    """
    shape: list[int] = []
    elements = [value]
    while list in (kinds := tensor_data.types_of(elements)):
        if len(kinds) > 1 or any(len(each) != len(elements[0]) for each in elements):
            return [0] * (rank + 1), []
        shape.append(len(elements[0]))
        elements = [element for each in elements for element in each]
    return [1] * (rank - len(shape)) + shape, elements


def _shape(name: str, dims: tuple[int, ...], count: int) -> list[int]:
    """Deduce the shape.

    The innermost variable dimension takes the elements that the fixed ones leave, other variable
    ones are 1.
    """
    shape = list(dims)
    for dim in dims:
        if dim == 0 or (dim > 0 and count % dim):
            raise _misfit(name)
        if dim > 0:
            count //= dim
    for position in reversed(range(len(shape))):
        if shape[position] < 0:
            shape[position] = count
            count = 1
    if count != 1:
        raise _misfit(name)
    return shape


def _misfit(name: str) -> InvalidArgument:
    return InvalidArgument(f"The schema can not convert input '{name}' to tensor with proper shape")
