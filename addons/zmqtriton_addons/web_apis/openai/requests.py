"""Requests for text as OpenAI's clients write them, read and checked.

What the model is to make of them goes to it as sampling parameters. Knows no model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zmqtriton_addons.web_apis.openai import fields as read
from zmqtriton_addons.web_apis.openai.formats import ANY_TEXT, Format, read_format
from zmqtriton_addons.web_apis.openai.problems import RefusedField
from zmqtriton_addons.web_apis.openai.tools import NO_TOOLS, Tools, read_tools

#: Choices of one request, for all of its prompts together.
MAX_CHOICES = 128

#: They change what an answer is, so they are refused and not ignored: all values but these.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "modalities": (None, ["text"]),
    "audio": (None,),
}
#: The same, where a text is continued.
_REFUSED_OF_COMPLETIONS: dict[str, tuple[Any, ...]] = {
    **_REFUSED,
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "top_logprobs": (None, 0),
}
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


class TextRequest(NamedTuple):
    """A request for text."""

    model: str
    #: The messages of a chat, or else None.
    messages: list[dict[str, Any]] | None
    #: What is to be continued; empty for a chat.
    prompts: list[str]
    #: Of each prompt so many.
    choices: int
    is_streamed: bool
    has_usage_in_stream: bool
    #: Each text begins with its prompt.
    has_echo: bool
    #: By vLLM's names, `n` among them if it is not 1.
    sampling: dict[str, Any]
    #: So many alternatives of each token are asked for; None if probabilities are not.
    logprobs: int | None = None
    tools: Tools = NO_TOOLS
    format: Format = ANY_TEXT
    #: The model's adapter.
    adapter: str = ""


def read_chat(document: Any) -> TextRequest:
    """Read the document of a chat completion. Raises RefusedField."""
    fields = read.fields_of(document)
    name = read.model_name(fields)
    messages = _messages(fields)
    read.refuse(fields, _REFUSED)
    request = _text_request(fields, name, messages, [], _chat_logprobs(fields))
    return request._replace(tools=read_tools(fields))


def read_completion(document: Any) -> TextRequest:
    """Read the document of a completion. Raises RefusedField."""
    fields = read.fields_of(document)
    name = read.model_name(fields)
    prompts = read.texts(fields, "prompt", MAX_CHOICES)
    read.refuse(fields, _REFUSED_OF_COMPLETIONS)
    request = _text_request(fields, name, None, prompts, _completion_logprobs(fields))
    return request._replace(has_echo=read.flag(fields, "echo"))


def with_logprobs(sampling: dict[str, Any], logprobs: int | None) -> dict[str, Any]:
    """Return what the model is told, with the alternatives that are asked for."""
    return sampling if logprobs is None else {**sampling, "logprobs": logprobs}


def _text_request(
    fields: dict[str, Any],
    name: str,
    messages: list[dict[str, Any]] | None,
    prompts: list[str],
    logprobs: int | None,
) -> TextRequest:
    choices = read.number(fields, "n", read.CHOICES) or 1
    if choices * max(1, len(prompts)) > MAX_CHOICES:
        raise RefusedField(f"'n' asks for more than {MAX_CHOICES} choices", "n")
    is_streamed = read.flag(fields, "stream")
    several = {"n": choices} if choices > 1 else {}
    return TextRequest(
        name,
        messages,
        prompts,
        choices,
        is_streamed,
        _has_usage(fields, is_streamed=is_streamed),
        has_echo=False,
        sampling=with_logprobs({**several, **read.sampling(fields)}, logprobs),
        logprobs=logprobs,
        format=read_format(fields),
    )


def _chat_logprobs(fields: dict[str, Any]) -> int | None:
    is_asked_for = read.flag(fields, "logprobs")
    alternatives = read.number(fields, "top_logprobs", read.TOP_LOGPROBS)
    if alternatives and not is_asked_for:
        raise RefusedField("'top_logprobs' needs 'logprobs' to be true", "top_logprobs")
    return (alternatives or 0) if is_asked_for else None


def _completion_logprobs(fields: dict[str, Any]) -> int | None:
    if fields.get("logprobs") is False:  # as a chat says it
        return None
    return read.number(fields, "logprobs", read.COMPLETION_LOGPROBS) or None


def _messages(fields: dict[str, Any]) -> list[dict[str, Any]]:
    messages = fields.get("messages")
    if type(messages) is not list or not messages:
        raise RefusedField("'messages' must be a list of at least one message", "messages")
    for position, message in enumerate(messages):
        check_message(message, f"messages[{position}]")
    return messages


def check_message(message: Any, field: str) -> None:
    """Raise RefusedField if it is no message."""
    if type(message) is not dict:
        raise RefusedField(f"'{field}' must be an object", field)
    if message.get("role") not in _ROLES:
        raise RefusedField(f"'{field}.role' must be one of {', '.join(_ROLES)}", f"{field}.role")
    if type(message.get("content")) not in (str, list, type(None)):
        raise RefusedField(
            f"'{field}.content' must be a string or a list of parts", f"{field}.content"
        )
    calls = message.get("tool_calls")
    if type(calls) not in (list, type(None)) or any(type(call) is not dict for call in calls or ()):
        raise RefusedField(f"'{field}.tool_calls' must be a list of calls", f"{field}.tool_calls")


def _has_usage(fields: dict[str, Any], *, is_streamed: bool) -> bool:
    options = read.member(fields, "stream_options")
    if options is None:
        return False
    if not is_streamed:
        raise RefusedField(
            "'stream_options' can only be used when 'stream' is true", "stream_options"
        )
    return read.flag(options, "include_usage")
