"""Abilities that a request needs of its model: a model that lacks one is named with the field."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from zmqtriton_addons.web_apis.openai.problems import RefusedField
from zmqtriton_addons.web_apis.openai.requests import TextRequest
from zmqtriton_addons.web_apis.openai.tensor_names import TOOL_CALL_PARSER, TensorNames
from zmqtriton_addons.web_apis.openai.tools.call_text import (
    FORCED_LIST,
    FORMS,
    CallReader,
    CallText,
    ForcedCall,
    Form,
)
from zmqtriton_addons.web_apis.openai.tools.request import AUTO, NAMED
from zmqtriton_floor.errors import InternalError


def _reads_calls(names: TensorNames) -> bool:
    return bool(names.tool_calls or names.tool_call_parser)


def _is_shown_tools(names: TensorNames) -> bool:
    return names.tools is not None or (names.has_template and names.messages is None)


def _takes_choice(names: TensorNames) -> bool:
    return names.tool_choice is not None and _reads_calls(names)


def _can_be_forced(names: TensorNames) -> bool:
    return names.keeps_to_formats or _takes_choice(names)


class _Need(NamedTuple):
    field: str
    is_there: Callable[[TextRequest], bool]
    is_met: Callable[[TensorNames], bool]
    #: Why it is not, and what would be needed.
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
    """Raise RefusedField for a field that the model can do nothing with."""
    for need in _NEEDS:
        if need.is_there(request) and not need.is_met(names):
            field = request.format.field if need.field == "response_format" else need.field
            raise RefusedField(f"model '{names.model}' {need.why}", field)


def is_forced_by_format(request: TextRequest, names: TensorNames) -> bool:
    """Return True if the engine is to keep to the form of a call."""
    return request.tools.is_forced and not _takes_choice(names)


def call_form(request: TextRequest, names: TensorNames) -> Form | None:
    """Return the form in which the model writes calls, None if its text has none.

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
    """Return the maker of readers of calls, None if texts have no calls.

    Raises what call_form raises.
    """
    tools = request.tools
    if tools.documents and is_forced_by_format(request, names):
        is_one = tools.choice == NAMED
        return partial(ForcedCall, tools.name) if is_one else partial(CallText, FORCED_LIST)
    form = call_form(request, names)
    return None if form is None else partial(CallText, form)
