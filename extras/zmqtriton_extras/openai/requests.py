"""Requests for text as OpenAI's clients write them, with their tools, read and checked.

Wishes about the text become sampling parameters for the model. Knows no model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from zmqtriton_extras.openai import fields as read
from zmqtriton_extras.openai.fields import flag, member
from zmqtriton_extras.openai.formats import ANY_TEXT, Format, read_format
from zmqtriton_extras.openai.problems import RefusedField

#: Choices of one request, for all of its prompts together.
MAX_CHOICES = 128

#: Fields that change the response: all values but these are refused, instead of being ignored.
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
#: Maximum number of tools, as in OpenAI's API.
_MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
NONE, AUTO, REQUIRED, NAMED = "none", "auto", "required", "named"


class Tools(NamedTuple):
    """The tools of a request: functions that a model may call, and the client's choice."""

    #: Documents of a chat in the form that templates expect.
    documents: Sequence[dict[str, Any]] = ()
    #: Choice of the client: the model may call functions, must call some, or must call `name`.
    choice: str = NONE
    #: The certain one.
    name: str = ""
    #: Several calls are welcome.
    is_parallel: bool = True

    @property
    def is_forced(self) -> bool:
        return self.choice in (REQUIRED, NAMED)

    def choice_document(self) -> Any:
        """Return the choice in OpenAI's form."""
        if self.choice != NAMED:
            return self.choice
        return {"type": "function", "function": {"name": self.name}}

    def forced_schema(self) -> dict[str, Any]:
        """Return the schema of a forced response: arguments, or a list of calls."""
        functions = [document["function"] for document in self.documents]
        if self.choice == NAMED:
            return next(_parameters(one) for one in functions if one["name"] == self.name)
        definitions: dict[str, Any] = {}
        calls = [_call_schema(one, definitions) for one in functions]
        schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
        if not self.is_parallel:
            schema["maxItems"] = 1
        return {**schema, "$defs": definitions} if definitions else schema


NO_TOOLS = Tools()


def read_tools(fields: dict[str, Any]) -> Tools:
    """Read the tools of a chat. Raises RefusedField."""
    return tools_of(fields, _documents(fields), fields.get("tool_choice"))


def tools_of(fields: dict[str, Any], documents: list[dict[str, Any]], choice: Any) -> Tools:
    """Return the tools with the client's choice. Raises RefusedField."""
    is_parallel = flag(fields, "parallel_tool_calls", standard=True)
    kind, name = _choice(choice)
    if not documents:
        if kind in (REQUIRED, NAMED):
            raise RefusedField("'tool_choice' needs 'tools'", "tool_choice")
        return NO_TOOLS
    names = [document["function"]["name"] for document in documents]
    if kind == NAMED and name not in names:
        raise RefusedField(
            f"'tool_choice' names '{name[:64]}', which is not in 'tools': add it there",
            "tool_choice",
        )
    if kind == REQUIRED and len(names) == 1:
        return Tools(documents, NAMED, names[0], is_parallel)
    return Tools(documents, kind, name, is_parallel) if kind != NONE else NO_TOOLS


def read_function(function: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a tool in the form of chats. Raises RefusedField."""
    name = function.get("name")
    if type(name) is not str or not _NAME.fullmatch(name):
        raise RefusedField(
            f"'{field}.name' must be a name of up to 64 letters, digits, '_', '-' and '.'",
            f"{field}.name",
        )
    member(function, "parameters", f"{field}.parameters")
    if type(function.get("description")) not in (str, type(None)):
        raise RefusedField(f"'{field}.description' must be a string", f"{field}.description")
    return {"type": "function", "function": function}


def tool_list(fields: dict[str, Any]) -> list[Any]:
    """Return the elements of `tools`, each an object of type function. Raises RefusedField."""
    tools = fields.get("tools")
    if tools is None:
        return []
    if type(tools) is not list or len(tools) > _MAX_TOOLS:
        raise RefusedField(f"'tools' must be a list of at most {_MAX_TOOLS} tools", "tools")
    for number, tool in enumerate(tools):
        if type(tool) is not dict or tool.get("type") != "function":
            field = f"tools[{number}].type"
            raise RefusedField(f"'{field}' must be 'function'; others are not supported", field)
    return tools


def _documents(fields: dict[str, Any]) -> list[dict[str, Any]]:
    documents = []
    for number, tool in enumerate(tool_list(fields)):
        field = f"tools[{number}].function"
        function = tool.get("function")
        if type(function) is not dict:
            raise RefusedField(f"'{field}' must be an object", field)
        documents.append(read_function(function, field))
    return documents


def _choice(choice: Any) -> tuple[str, str]:
    """Return the kind of choice, and the function that it names."""
    if choice is None:
        return AUTO, ""
    if type(choice) is str and choice in (NONE, AUTO, REQUIRED):
        return choice, ""
    if type(choice) is dict and choice.get("type") == "function":
        # chats have an object of its own, responses have not
        inner = choice.get("function", choice)
        name = inner.get("name") if type(inner) is dict else None
        if type(name) is str:
            return NAMED, name
    raise RefusedField(
        "'tool_choice' must be 'none', 'auto', 'required', or name a function", "tool_choice"
    )


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    return function.get("parameters") or {"type": "object"}


def _call_schema(function: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call; references in its arguments count from the whole schema."""
    parameters = dict(_parameters(function))
    inner = parameters.pop("$defs", None)
    definitions.update(inner if type(inner) is dict else {})
    return {
        "type": "object",
        "properties": {"name": {"enum": [function["name"]]}, "parameters": parameters},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


class TextRequest(NamedTuple):
    """A request for text."""

    model: str
    #: The messages of a chat, or else None.
    messages: list[dict[str, Any]] | None
    #: Prompts to continue; empty for a chat.
    prompts: list[str]
    #: Number of choices for each prompt.
    choices: int
    is_streamed: bool
    has_usage_in_stream: bool
    #: Each text begins with its prompt.
    has_echo: bool
    #: Sampling by vLLM's names, with `n` if it is not 1.
    sampling: dict[str, Any]
    #: Number of alternatives requested for each token; None without probabilities.
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
    """Return the sampling parameters with the number of alternatives that the client requests."""
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
        raise RefusedField(f"'n' must be at most {MAX_CHOICES}", "n")
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
    """Raise RefusedField if a value is no message."""
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
