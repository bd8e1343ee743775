"""Requests for a response, read as chats.

Nothing is kept between requests, so a request that refers to an earlier one is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zmqtriton_addons.web_apis.openai import fields as read
from zmqtriton_addons.web_apis.openai.formats.request import read_flat_format
from zmqtriton_addons.web_apis.openai.problems import RefusedField
from zmqtriton_addons.web_apis.openai.requests import TextRequest, check_message, with_logprobs
from zmqtriton_addons.web_apis.openai.tools.request import (
    NONE,
    Tools,
    read_function,
    tool_list,
    tools_of,
)

#: They change what an answer is, or need what is kept: all values but these are refused.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "previous_response_id": (None,),
    "conversation": (None,),
    "background": (None, False),
    "prompt": (None,),
    "max_tool_calls": (None,),
}
_LOGPROBS = "message.output_text.logprobs"
#: Of tools that are not functions, so there is never anything of it.
_INCLUDED = ("reasoning.encrypted_content", _LOGPROBS)
_TEXT_PARTS = ("input_text", "output_text", "text")
#: Items of an earlier answer that say nothing to the model.
_SKIPPED = ("reasoning",)


class ResponseRequest(NamedTuple):
    """A request for a response."""

    text: TextRequest
    #: Fields that the answer repeats.
    repeated: dict[str, Any]


def read_response(document: Any) -> ResponseRequest:
    """Read the document of a response. Raises RefusedField."""
    fields = read.fields_of(document)
    name = read.model_name(fields)
    read.refuse(fields, _REFUSED)
    messages = [*_instructions(fields), *_messages(fields.get("input"))]
    if not messages:
        raise RefusedField("'input' must have at least one item", "input")
    tools = _tools(fields)
    text = read.member(fields, "text") or {}
    logprobs = _logprobs(fields)
    limit = read.number(fields, "max_output_tokens", read.SAMPLING["max_tokens"])
    sampling = read.sampling(fields)
    if limit is not None:
        sampling["max_tokens"] = limit
    request = TextRequest(
        name,
        messages,
        [],
        1,
        is_streamed=read.flag(fields, "stream"),
        has_usage_in_stream=False,
        has_echo=False,
        sampling=with_logprobs(sampling, logprobs),
        logprobs=logprobs,
        tools=tools,
        format=read_flat_format(text, "text.format"),
    )
    return ResponseRequest(request, _repeated(fields, tools, limit))


def _instructions(fields: dict[str, Any]) -> list[dict[str, Any]]:
    instructions = fields.get("instructions")
    if type(instructions) not in (str, type(None)):
        raise RefusedField("'instructions' must be a string", "instructions")
    return [{"role": "system", "content": instructions}] if instructions else []


def _messages(items: Any) -> list[dict[str, Any]]:
    """Return the items of the input as messages of a chat."""
    if type(items) is str:
        return [{"role": "user", "content": items}]
    if type(items) is not list:
        raise RefusedField("'input' must be a string or a list of items", "input")
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        field = f"input[{number}]"
        if type(item) is not dict:
            raise RefusedField(f"'{field}' must be an object", field)
        kind = str(item.get("type") or "message")
        if kind == "function_call":
            _add_call(messages, item, field)
        elif kind in _ITEMS:
            messages.append(_ITEMS[kind](item, field))
        elif kind not in _SKIPPED:
            raise RefusedField(f"'{field}.type' is not supported", f"{field}.type")
    return messages


def _message(item: dict[str, Any], field: str) -> dict[str, Any]:
    message = {"role": item.get("role"), "content": _content(item.get("content"), field)}
    check_message(message, field)
    return message


def _content(content: Any, field: str) -> Any:
    """Return a content with its parts as those of chats."""
    if type(content) is not list:
        return content
    return [_part(part, f"{field}.content") for part in content]


def _part(part: Any, field: str) -> Any:
    if type(part) is dict and part.get("type") in _TEXT_PARTS:
        return {"type": "text", "text": part.get("text")}
    raise RefusedField(f"'{field}' may have parts of type 'input_text' only", field)


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any], field: str) -> None:
    """Add a call to the message that has the calls before it."""
    name, arguments = _string(item, "name", field), _string(item, "arguments", field)
    call = {
        "id": _string(item, "call_id", field),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _call_output(item: dict[str, Any], field: str) -> dict[str, Any]:
    call_id, output = _string(item, "call_id", field), item.get("output")
    if type(output) not in (str, list):
        raise RefusedField(f"'{field}.output' must be a string", f"{field}.output")
    return {"role": "tool", "tool_call_id": call_id, "content": _content(output, field)}


def _string(item: dict[str, Any], member: str, field: str) -> str:
    value = item.get(member)
    if type(value) is not str:
        raise RefusedField(f"'{field}.{member}' must be a string", f"{field}.{member}")
    return value


_ITEMS = {"message": _message, "function_call_output": _call_output}


def _tools(fields: dict[str, Any]) -> Tools:
    documents = []
    for number, tool in enumerate(tool_list(fields)):
        function = {key: value for key, value in tool.items() if key != "type"}
        documents.append(read_function(function, f"tools[{number}]"))
    return tools_of(fields, documents, fields.get("tool_choice"))


def _logprobs(fields: dict[str, Any]) -> int | None:
    included = fields.get("include") or []
    if type(included) is not list or any(one not in _INCLUDED for one in included):
        raise RefusedField(f"'include' may have {', '.join(_INCLUDED)} only", "include")
    limit = read.number(fields, "top_logprobs", read.TOP_LOGPROBS)
    if limit or _LOGPROBS in included:
        return int(limit or 0)
    return None


def _repeated(fields: dict[str, Any], tools: Tools, limit: int | None) -> dict[str, Any]:
    """Return the fields of the request that its answer has, too."""
    choice: Any = fields.get("tool_choice")
    return {
        "instructions": fields.get("instructions"),
        "metadata": read.member(fields, "metadata") or {},
        "parallel_tool_calls": tools.is_parallel,
        "temperature": fields.get("temperature"),
        "top_p": fields.get("top_p"),
        "tool_choice": choice or ("auto" if tools.documents else NONE),
        "tools": [
            {"strict": None, **tool, "parameters": tool.get("parameters")}
            for tool in tool_list(fields)
        ],
        "max_output_tokens": limit,
        "text": fields.get("text") or {"format": {"type": "text"}},
    }
