"""The tensors of a request for text for its model, and the abilities that the model must have.

A model that lacks an ability is named with the field that needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import orjson

from zmqtriton.sdk.frontend import tensor_data
from zmqtriton.sdk.wire import InternalError, InvalidArgument, datatypes, documents, signature, wire
from zmqtriton_extras.openai.call_text import (
    FORCED_LIST,
    FORMS,
    CallReader,
    CallText,
    ForcedCall,
    Form,
)
from zmqtriton_extras.openai.formats import of_schema
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.requests import AUTO, NAMED, TextRequest
from zmqtriton_extras.openai.tensor_names import TOOL_CALL_PARSER, TensorNames

#: Number of tokens if the client names none and the model requires one.
DEFAULT_MAX_TOKENS = 16
#: Inputs of models like those of TensorRT-LLM whose names are not OpenAI's.
_OWN_NAMES = {"stop": "stop_words"}
_ANY_TEXT = {"type": "text"}
_FORCED_CALL = "tool_call"
#: Name of an adapter in the sampling, as in Triton's vLLM backend.
_ADAPTER = "lora_name"

#: The form of a text by OpenAI's document, and its schema; None for none.
_Form = tuple[Any, Any]


def _reads_calls(names: TensorNames) -> bool:
    return bool(names.tool_calls or names.tool_call_parser)


def _is_shown_tools(names: TensorNames) -> bool:
    return names.tools is not None or (names.has_template and names.messages is None)


def _takes_choice(names: TensorNames) -> bool:
    return names.tool_choice is not None and _reads_calls(names)


def _can_be_forced(names: TensorNames) -> bool:
    return _takes_choice(names) or (names.keeps_to_formats and not names.message)


class _Need(NamedTuple):
    field: str
    is_there: Callable[[TextRequest], bool]
    is_met: Callable[[TensorNames], bool]
    #: Reason of the refusal, which names the missing ability of the model.
    why: str


_NEEDS = (
    _Need("n", lambda r: r.choices > 1, lambda m: m.takes("n"), "makes one choice only"),
    _Need(
        "logprobs",
        lambda r: r.logprobs is not None,
        lambda m: bool(m.logprobs) and m.takes("logprobs"),
        "tells no probabilities: it has no output 'logprobs' of type TYPE_STRING",
    ),
    _Need(
        "logit_bias",
        lambda r: "logit_bias" in r.sampling,
        lambda m: m.takes("logit_bias"),
        "has no input for biases of tokens",
    ),
    _Need(
        "response_format",
        lambda r: r.format.document is not None,
        lambda m: m.keeps_to_formats,
        "has no input for the form of a text, 'response_format'",
    ),
    _Need(
        "tools",
        lambda r: bool(r.tools.documents),
        _is_shown_tools,
        "is shown no tools: it needs a chat template, or an input 'tools'",
    ),
    _Need(
        "tools",
        lambda r: r.tools.choice == AUTO,
        _reads_calls,
        f"calls no tools: its parameter {TOOL_CALL_PARSER} names no form of calls, and it has no "
        "output 'tool_calls'",
    ),
    _Need(
        "tool_choice",
        lambda r: r.tools.is_forced,
        _can_be_forced,
        "cannot be made to call a tool: it has no input 'response_format' or 'tool_choice'",
    ),
    _Need(
        "model",
        lambda r: bool(r.adapter),
        lambda m: m.lora is not None or m.sampling is not None,
        "has no input for the name of an adapter, 'lora_name'",
    ),
)


def check(request: TextRequest, names: TensorNames) -> None:
    """Raise RefusedField for a field that the model cannot use."""
    for need in _NEEDS:
        if need.is_there(request) and not need.is_met(names):
            field = request.format.field if need.field == "response_format" else need.field
            raise RefusedField(f"model '{names.model}' {need.why}", field)


def is_forced_by_format(request: TextRequest, names: TensorNames) -> bool:
    """Return True if the engine must follow the form of a call."""
    return request.tools.is_forced and not _takes_choice(names)


def call_form(request: TextRequest, names: TensorNames) -> Form | None:
    """Return the form of calls in the model's text; None if its text has no calls.

    Raises InternalError if the model's parameter names no form.
    """
    is_by_text = request.tools.documents and not names.tool_calls
    if not is_by_text or is_forced_by_format(request, names):
        return None
    form = FORMS.get(names.tool_call_parser)
    if form is None:
        raise InternalError(
            f"parameter {TOOL_CALL_PARSER} of model '{names.model}' must be one of "
            f"{', '.join(FORMS)}"
        )
    return form


def call_reader(request: TextRequest, names: TensorNames) -> Callable[[], CallReader] | None:
    """Return the maker of readers of calls; None if texts have no calls.

    Raises the errors of call_form().
    """
    tools = request.tools
    if tools.documents and is_forced_by_format(request, names):
        is_one = tools.choice == NAMED
        return partial(ForcedCall, tools.name) if is_one else partial(CallText, FORCED_LIST)
    form = call_form(request, names)
    return None if form is None else partial(CallText, form)


def text_body(
    own_id: str, request: TextRequest, prompt: str, names: TensorNames
) -> wire.RequestBody:
    """Return the request for one prompt.

    For a model that takes a chat's messages, the prompt is these as JSON. Raises InvalidArgument if
    the model does not generate text, or lacks an ability that the request needs.
    """
    if not names.text_output:
        raise _unfit(names, "output", "openai_text_output")
    check(request, names)
    form = _form_for_engine(request, names)
    tensors = [_prompt(request, prompt, names), *_sampling(request, names, form)]
    if names.stream is not None:
        tensors.append(_boolean(names.stream, request.is_streamed and names.is_decoupled))
    if names.exclude_input is not None:
        tensors.append(_boolean(names.exclude_input, True))
    tensors += [*_tools(request, names), *_format(names, form), *_wishes(request, names)]
    return wire.RequestBody(own_id, {}, [], tensors)


def _prompt(request: TextRequest, prompt: str, names: TensorNames) -> wire.Tensor:
    if request.messages is not None and names.messages is not None:
        return _text(names.messages, prompt.encode())
    if names.text is None:
        raise _unfit(names, "input", "openai_text_input")
    return _text(names.text, prompt.encode())


def written(document: Any) -> bytes:
    """Return a part of a request as JSON, in pieces, because it may be very long."""
    return b"".join(documents.pieces(document, orjson.dumps))


def _sampling(request: TextRequest, names: TensorNames, form: _Form) -> list[wire.Tensor]:
    """Return the sampling parameters as one input, or as one input for each field."""
    wishes = dict(request.sampling)
    tensors = []
    document, schema = form
    if names.structured_key and names.response_format is None and document is not None:
        wish = {"json_object": True} if schema is None else {"json": schema}
        wishes[names.structured_key] = written(wish).decode()
    if request.adapter and names.lora is not None:
        tensors.append(_text(names.lora, request.adapter.encode()))
    elif request.adapter:
        wishes[_ADAPTER] = request.adapter
    calls = call_form(request, names)
    if calls is not None and calls.has_special_marks:
        wishes.setdefault("skip_special_tokens", False)
    if names.sampling is not None:
        return [*tensors, _text(names.sampling, written(wishes))]
    limit = names.input("max_tokens")
    if limit is not None and not limit.optional:
        wishes.setdefault("max_tokens", DEFAULT_MAX_TOKENS)
    for key, value in wishes.items():
        target = names.input(_OWN_NAMES.get(key, key)) or names.input(key)
        if target is not None:
            tensors.append(tensor_of(target, key, value))
    return tensors


def _tools(request: TextRequest, names: TensorNames) -> Iterator[wire.Tensor]:
    tools = request.tools
    for target, document in (
        (names.tools, tools.documents),
        (names.tool_choice, tools.choice_document()),
    ):
        if target is not None and (tools.documents or not target.optional):
            is_word = isinstance(document, str) and not names.takes_json(target.name)
            yield _text(target, str(document).encode() if is_word else written(document))


def _form_for_engine(request: TextRequest, names: TensorNames) -> _Form:
    """Return the form of the text or of the call to generate, and its schema; None for none."""
    if is_forced_by_format(request, names):
        schema = request.tools.forced_schema()
        return of_schema(_FORCED_CALL, schema), schema
    return request.format.document, request.format.json_schema


def _format(names: TensorNames, form: _Form) -> Iterator[wire.Tensor]:
    """Yield the inputs with the form that the engine must follow."""
    document, schema = form
    target, guides = names.response_format, names.guides
    if target is not None:
        if document is not None or not target.optional:
            yield _text(target, written(document or _ANY_TEXT))
    elif guides is not None and document is not None:
        kind, guide = guides
        yield _text(kind, b"json" if schema is None else b"json_schema")
        yield _text(guide, b"" if schema is None else written(schema))


def _wishes(request: TextRequest, names: TensorNames) -> Iterator[wire.Tensor]:
    """Yield the inputs that request outputs."""
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


def tensor_of(target: signature.Input, key: str, value: Any) -> wire.Tensor:
    """Return the value of a field as an input. Raises RefusedField."""
    if type(value) is dict:
        value = written(value).decode()
    elements = value if type(value) is list else [value]
    shape = shape_of_one(target)
    if len(elements) > 1:
        shape[-1:] = [len(elements)]
    datatype = datatypes.BY_NUMBER[target.datatype]
    try:
        data = tensor_data.json_to_bytes(target.name, datatype, len(elements), elements)
    except InvalidArgument as error:
        raise RefusedField(error.text, key) from None
    return wire.Tensor(target.name, target.datatype, shape, data)


def _unfit(names: TensorNames, kind: str, parameter: str) -> RefusedField:
    return RefusedField(
        f"model '{names.model}' makes no text: it has no {kind} '{names.wanted_name(parameter)}' "
        f"of type TYPE_STRING; its parameter {parameter} may name another",
        "model",
    )


def _text(target: signature.Input, text: bytes) -> wire.Tensor:
    return wire.Tensor(
        target.name, datatypes.BYTES, shape_of_one(target), len(text).to_bytes(4, "little") + text
    )


def _boolean(target: signature.Input, value: bool) -> wire.Tensor:
    return wire.Tensor(
        target.name, target.datatype, shape_of_one(target), b"\1" if value else b"\0"
    )


def shape_of_one(target: signature.Input) -> list[int]:
    """Return the shape of one element. Raises InvalidArgument if the input needs more elements."""
    shape = [1 if dim < 0 else dim for dim in target.dims]
    if math.prod(shape) != 1:
        raise InvalidArgument(f"input '{target.name}' must take one element")
    return shape
