"""The tensors of a request for text, as its model wants them."""

from __future__ import annotations

from typing import Any

import orjson

from zmqtriton_addons.web_apis.openai.problems import RefusedField
from zmqtriton_addons.web_apis.openai.requests import TextRequest
from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.signature import Input
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.http_api import json_to_bytes

#: Where the client does not say, and the model needs to know.
DEFAULT_MAX_TOKENS = 16
#: Inputs of models like those of TensorRT-LLM whose names are not OpenAI's.
_OWN_NAMES = {"stop": "stop_words"}


def text_body(own_id: str, request: TextRequest, prompt: str, names: TensorNames) -> RequestBody:
    """Return the request for one prompt.

    For a model that takes the messages of a chat it is these, as JSON. Raises InvalidArgument if
    the model is not one for text.
    """
    if not names.text_output:
        raise _unfit(names, "output", "openai_text_output")
    tensors = [_prompt(request, prompt, names), *_sampling(request, names)]
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
        raise _unfit(names, "input", "openai_text_input")
    return _text(names.text, prompt.encode())


def _sampling(request: TextRequest, names: TensorNames) -> list[Tensor]:
    """Return what the client says of the sampling, as one input or as one for each wish."""
    if names.sampling is not None:
        return [_text(names.sampling, orjson.dumps(request.sampling))]
    if request.choices > 1 and names.input("n") is None:
        raise RefusedField(f"model '{names.model}' makes one choice only", "n")
    wishes = dict(request.sampling)
    most = names.input("max_tokens")
    if most is not None and not most.optional:
        wishes.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    found = []
    for key, value in wishes.items():
        wanted = names.input(_OWN_NAMES.get(key, key))
        if wanted is not None:
            found.append(_values(wanted, key, value))
    return found


def _values(wanted: Input, key: str, value: Any) -> Tensor:
    elements = value if type(value) is list else [value]
    shape = shape_of_one(wanted)
    if len(elements) > 1:
        shape[-1:] = [len(elements)]
    datatype = BY_NUMBER[wanted.datatype]
    try:
        data = json_to_bytes(wanted.name, datatype, len(elements), elements)
    except InvalidArgument as error:
        raise RefusedField(error.text, key) from None
    return Tensor(wanted.name, wanted.datatype, shape, data)


def _unfit(names: TensorNames, kind: str, parameter: str) -> RefusedField:
    return RefusedField(
        f"model '{names.model}' makes no text: it has no {kind} '{names.wanted_name(parameter)}' "
        f"of type TYPE_STRING; its parameter {parameter} may name another",
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
