"""The tensors of a request for text, as its model wants them."""

from __future__ import annotations

import orjson

from zmqtriton_floor.datatypes import BYTES, count_elements
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.signature import Input
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.http_api.openai.problems import RefusedField
from zmqtriton_frontends.http_api.openai.requests import TextRequest
from zmqtriton_frontends.http_api.openai.tensor_names import TensorNames


def text_body(own_id: str, request: TextRequest, prompt: str, names: TensorNames) -> RequestBody:
    """Return the request for one prompt.

    For a model that takes the messages of a chat it is these, as JSON. Raises InvalidArgument if
    the model is not one for text.
    """
    if not names.text_output:
        raise _unfit(names.model, "output 'text_output'", "openai_text_output")
    tensors = [_prompt(request, prompt, names)]
    if names.sampling is not None:
        tensors.append(_text(names.sampling, orjson.dumps(request.sampling)))
    elif request.choices > 1:
        raise RefusedField(f"model '{names.model}' makes one choice only", "n")
    if names.stream is not None:
        tensors.append(_boolean(names.stream, request.is_streamed and names.is_decoupled))
    if names.exclude_input is not None:
        tensors.append(_boolean(names.exclude_input, True))
    wanted = (names.finish_reason, names.prompt_tokens, names.completion_tokens)
    tensors += [_boolean(wish, True) for wish in names.wishes(wanted)]
    return RequestBody(own_id, {}, [], tensors)


def _prompt(request: TextRequest, prompt: str, names: TensorNames) -> Tensor:
    if request.messages is not None and names.messages is not None:
        return _text(names.messages, prompt.encode())
    if names.text is None:
        raise _unfit(names.model, "input 'text_input'", "openai_text_input")
    return _text(names.text, prompt.encode())


def _unfit(model: str, missing: str, parameter: str) -> InvalidArgument:
    return RefusedField(
        f"model '{model}' makes no text: it has no {missing} of type TYPE_STRING; "
        f"its parameter {parameter} may name another",
        "model",
    )


def _text(wanted: Input, text: bytes) -> Tensor:
    return Tensor(wanted.name, BYTES, shape_of_one(wanted), len(text).to_bytes(4, "little") + text)


def _boolean(wanted: Input, value: bool) -> Tensor:
    return Tensor(wanted.name, wanted.datatype, shape_of_one(wanted), b"\1" if value else b"\0")


def shape_of_one(wanted: Input) -> list[int]:
    """Return the shape of one element. Raises InvalidArgument if the input takes more."""
    shape = [1 if dim < 0 else dim for dim in wanted.dims]
    if count_elements(shape) != 1:
        raise InvalidArgument(f"input '{wanted.name}' must take one element")
    return shape
