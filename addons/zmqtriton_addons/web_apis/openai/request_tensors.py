"""The tensors of a request for text, as its model wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from zmqtriton_addons.web_apis.openai import abilities
from zmqtriton_addons.web_apis.openai.formats.request import of_schema
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
_ANY_TEXT = {"type": "text"}
_FORCED_CALL = "tool_call"
#: What the sampling calls an adapter, as in Triton's vLLM backend.
_ADAPTER = "lora_name"

#: The form of a text by OpenAI's document, and its schema; None for none.
_Form = tuple[Any, Any]


def text_body(own_id: str, request: TextRequest, prompt: str, names: TensorNames) -> RequestBody:
    """Return the request for one prompt.

    For a model that takes the messages of a chat it is these, as JSON. Raises InvalidArgument if
    the model is not one for text, or lacks an ability that the request needs.
    """
    if not names.text_output:
        raise _unfit(names, "output", "openai_text_output")
    abilities.check(request, names)
    form = _form_for_engine(request, names)
    tensors = [_prompt(request, prompt, names), *_sampling(request, names, form)]
    if names.stream is not None:
        tensors.append(_boolean(names.stream, request.is_streamed and names.is_decoupled))
    if names.exclude_input is not None:
        tensors.append(_boolean(names.exclude_input, True))
    tensors += [*_tools(request, names), *_format(names, form), *_wishes(request, names)]
    return RequestBody(own_id, {}, [], tensors)


def _prompt(request: TextRequest, prompt: str, names: TensorNames) -> Tensor:
    if request.messages is not None and names.messages is not None:
        return _text(names.messages, prompt.encode())
    if names.text is None:
        raise _unfit(names, "input", "openai_text_input")
    return _text(names.text, prompt.encode())


def _sampling(request: TextRequest, names: TensorNames, form: _Form) -> list[Tensor]:
    """Return what the client says of the sampling, as one input or as one for each wish."""
    wishes = dict(request.sampling)
    tensors = []
    document, schema = form
    if names.structured_key and names.response_format is None and document is not None:
        wish = {"json_object": True} if schema is None else {"json": schema}
        wishes[names.structured_key] = orjson.dumps(wish).decode()
    if request.adapter and names.lora is not None:
        tensors.append(_text(names.lora, request.adapter.encode()))
    elif request.adapter:
        wishes[_ADAPTER] = request.adapter
    calls = abilities.call_form(request, names)
    if calls is not None and calls.has_special_marks:
        wishes.setdefault("skip_special_tokens", False)
    if names.sampling is not None:
        return [*tensors, _text(names.sampling, orjson.dumps(wishes))]
    limit = names.input("max_tokens")
    if limit is not None and not limit.optional:
        wishes.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    for key, value in wishes.items():
        target = names.input(_OWN_NAMES.get(key, key))
        if target is not None:
            tensors.append(_values(target, key, value))
    return tensors


def _tools(request: TextRequest, names: TensorNames) -> Iterator[Tensor]:
    tools = request.tools
    for target, document in (
        (names.tools, tools.documents),
        (names.tool_choice, tools.choice_document()),
    ):
        if target is not None and (tools.documents or not target.optional):
            yield _text(target, orjson.dumps(document))


def _form_for_engine(request: TextRequest, names: TensorNames) -> _Form:
    """Return the form of the text, or of a call in its place, and its schema; None for none."""
    if abilities.is_forced_by_format(request, names):
        schema = request.tools.forced_schema()
        return of_schema(_FORCED_CALL, schema), schema
    return request.format.document, request.format.json_schema


def _format(names: TensorNames, form: _Form) -> Iterator[Tensor]:
    """Return what the engine is to keep to."""
    document, schema = form
    target, guides = names.response_format, names.guides
    if target is not None:
        if document is not None or not target.optional:
            yield _text(target, orjson.dumps(document or _ANY_TEXT))
    elif guides is not None and document is not None:
        kind, guide = guides
        yield _text(kind, b"json" if schema is None else b"json_schema")
        yield _text(guide, b"" if schema is None else orjson.dumps(schema))


def _wishes(request: TextRequest, names: TensorNames) -> Iterator[Tensor]:
    """Return the inputs that ask for outputs."""
    always = (names.finish_reason, names.prompt_tokens, names.completion_tokens)
    for wish in names.wishes(always):
        yield _boolean(wish, True)
    for output, is_asked_for in (
        (names.logprobs, request.logprobs is not None),
        (names.tool_calls, bool(request.tools.documents)),
    ):
        for wish in names.wishes((output,)):
            if is_asked_for or not wish.optional:
                yield _boolean(wish, is_asked_for)


def _values(target: Input, key: str, value: Any) -> Tensor:
    if type(value) is dict:
        value = orjson.dumps(value).decode()
    elements = value if type(value) is list else [value]
    shape = shape_of_one(target)
    if len(elements) > 1:
        shape[-1:] = [len(elements)]
    datatype = BY_NUMBER[target.datatype]
    try:
        data = json_to_bytes(target.name, datatype, len(elements), elements)
    except InvalidArgument as error:
        raise RefusedField(error.text, key) from None
    return Tensor(target.name, target.datatype, shape, data)


def _unfit(names: TensorNames, kind: str, parameter: str) -> RefusedField:
    return RefusedField(
        f"model '{names.model}' makes no text: it has no {kind} '{names.wanted_name(parameter)}' "
        f"of type TYPE_STRING; its parameter {parameter} may name another",
        "model",
    )


def _text(target: Input, text: bytes) -> Tensor:
    return Tensor(target.name, BYTES, shape_of_one(target), len(text).to_bytes(4, "little") + text)


def _boolean(target: Input, value: bool) -> Tensor:
    return Tensor(target.name, target.datatype, shape_of_one(target), b"\1" if value else b"\0")


def shape_of_one(target: Input) -> list[int]:
    """Return the shape of one element. Raises InvalidArgument if the input takes more."""
    shape = [1 if dim < 0 else dim for dim in target.dims]
    if count_elements(shape) != 1:
        raise InvalidArgument(f"input '{target.name}' must take one element")
    return shape
