"""Requests for a response, read as chats, and the documents that answer them, whole or as events.

Nothing is kept between requests, so a request that refers to an earlier one is refused.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.openai import fields as read
from zmqtriton_extras.openai import problems
from zmqtriton_extras.openai.call_text import CallPart
from zmqtriton_extras.openai.choices import Addition, Choice, Choices, TokenLogprob
from zmqtriton_extras.openai.documents import Completion, usage
from zmqtriton_extras.openai.formats import read_flat_format
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.requests import (
    NONE,
    TextRequest,
    Tools,
    check_message,
    read_function,
    tool_list,
    tools_of,
    with_logprobs,
)

#: Reasons of incomplete responses, by the finish reason of the text.
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_IN_PROGRESS, _COMPLETED, _PARTIAL = "in_progress", "completed", "incomplete"
#: Fields that refer to what OpenAI's server stores.
_STORED = ("previous_response_id", "conversation")
_REFERENCE = "item_reference"
#: Fields that change the response: all values but these are refused.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "background": (None, False),
    "prompt": (None,),
    "max_tool_calls": (None,),
}
_LOGPROBS = "message.output_text.logprobs"
#: Fields to include that only tools other than functions have, so that they are always empty.
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
    for field in _STORED:
        if fields.get(field) is not None:
            why = f"'{field}' is not supported, because the server stores no responses: "
            raise RefusedField(f"{why}send the whole conversation as 'input'", field)
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
    """Return the items of a request's input as messages of a chat."""
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
        elif kind == _REFERENCE:
            why = f"'{field}' refers to a stored item, but the server stores nothing: "
            remedy = "send the item itself; clients do so with 'store' set to false"
            raise RefusedField(why + remedy, f"{field}.type")
        elif kind not in _SKIPPED:
            raise RefusedField(
                f"'{field}.type' must be message, function_call or function_call_output",
                f"{field}.type",
            )
    return messages


def _message(item: dict[str, Any], field: str) -> dict[str, Any]:
    message = {"role": item.get("role"), "content": _content(item.get("content"), field)}
    check_message(message, field)
    return message


def _content(content: Any, field: str) -> Any:
    """Return a content, with its parts in the form of chats."""
    if type(content) is not list:
        return content
    return [_part(part, f"{field}.content") for part in content]


def _part(part: Any, field: str) -> Any:
    if type(part) is dict and part.get("type") in _TEXT_PARTS:
        return {"type": "text", "text": part.get("text")}
    raise RefusedField(f"'{field}' may have parts of type 'input_text' only", field)


def _add_call(messages: list[dict[str, Any]], item: dict[str, Any], field: str) -> None:
    """Add a call to the model's last message, or to a new one."""
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
    """Return the fields of the request that its response repeats."""
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


class _Item:
    """A message or a call in a response, as it grows."""

    def __init__(self, first: CallPart | None = None) -> None:
        """Set up an item: a call if its first part is given, else a message."""
        self.call = first
        self.id = f"{'msg' if first is None else 'fc'}_{uuid.uuid4().hex}"
        self._pieces: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> None:
        self._pieces.append(text)
        self._logprobs += logprobs

    def part(self) -> dict[str, Any]:
        """Return the only part of a message."""
        tokens = [token.document() for token in self._logprobs]
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": tokens}

    def document(self, status: str) -> dict[str, Any]:
        if self.call is not None:
            return {
                "type": "function_call",
                "id": self.id,
                "call_id": self.call.id,
                "name": self.call.name,
                "arguments": self.text,
                "status": status,
            }
        content = [] if status == _IN_PROGRESS else [self.part()]
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "status": status,
            "content": content,
        }


class Response(Completion):
    """A response of /v1/responses."""

    prefix = "resp"
    # of the part, of the item, and twice of the text itself
    repetitions = 4

    def __init__(self, model: str, repeated: dict[str, Any]) -> None:
        super().__init__(model)
        self._repeated = repeated
        self._created = int(time.time())
        self._model = model
        self._number = 0
        #: Finished items as documents, and the item that grows.
        self._done: list[dict[str, Any]] = []
        self._item: _Item | None = None

    def document(self, answers: Sequence[Choices]) -> bytes:
        """Return the complete response."""
        (choice,) = answers[0].all
        status = self._status(choice)
        if choice.text or not choice.calls:
            message = _Item()
            message.add(choice.text, choice.logprobs)
            self._done.append(message.document(status))
        for call in choice.calls:
            item = _Item(CallPart(0, "", call.id, call.name))
            item.add(call.arguments)
            self._done.append(item.document(status))
        return orjson.dumps(self._response(status, answers))

    def begin(self, index: int) -> bytes:
        created = self._response(_IN_PROGRESS)
        return b"".join(
            self._tell(f"response.{name}", response=created) for name in ("created", "in_progress")
        )

    def add(self, index: int, new: Addition) -> bytes:
        events = []
        if new.text or new.logprobs:
            events.append(self._open(None))
            events.append(self._grow("output_text.delta", new.text, new.logprobs))
        for part in new.calls:
            if part.name:
                events.append(self._open(part))
            if part.arguments:
                events.append(self._grow("function_call_arguments.delta", part.arguments))
        return b"".join(events)

    def end(self, index: int, choice: Choice) -> bytes:
        begun = b"" if self._done or self._item is not None else self._open(None)
        return begun + self._close(self._status(choice))

    def finish(self, answers: Sequence[Choices]) -> bytes:
        status = self._status(answers[0].all[0])
        response = self._response(status, answers)
        return self._tell(f"response.{status}", response=response)

    def failure(self, error: ZmqTritonError) -> bytes:
        response = self._response("failed")
        description = problems.describe(error)
        code = "server_error" if error.http_status >= 500 else "invalid_prompt"
        response["error"] = {**description, "code": description["code"] or code}
        return self._tell("response.failed", response=response)

    def _status(self, choice: Choice) -> str:
        return _PARTIAL if choice.reason in _INCOMPLETE else _COMPLETED

    def _open(self, first: CallPart | None) -> bytes:
        """Begin an item, a call if its first part is given, unless a message continues."""
        if first is None and self._item is not None and self._item.call is None:
            return b""
        before = self._close(_COMPLETED)
        item = self._item = _Item(first)
        events = [
            before,
            self._tell_item("response.output_item.added", item=item.document(_IN_PROGRESS)),
        ]
        if first is None:
            events.append(self._tell_part("response.content_part.added", part=item.part()))
        return b"".join(events)

    def _grow(self, kind: str, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        assert self._item is not None, "it was begun"
        self._item.add(text, logprobs)
        if self._item.call is not None:
            return self._tell_item(f"response.{kind}", item_id=self._item.id, delta=text)
        tokens = [token.document() for token in logprobs]
        return self._tell_part(f"response.{kind}", delta=text, logprobs=tokens)

    def _close(self, status: str) -> bytes:
        item = self._item
        if item is None:
            return b""
        if item.call is not None:
            events = [
                self._tell_item(
                    "response.function_call_arguments.done",
                    item_id=item.id,
                    name=item.call.name,
                    arguments=item.text,
                )
            ]
        else:
            part = item.part()
            events = [
                self._tell_part(
                    "response.output_text.done", text=part["text"], logprobs=part["logprobs"]
                ),
                self._tell_part("response.content_part.done", part=part),
            ]
        document = item.document(status)
        events.append(self._tell_item("response.output_item.done", item=document))
        self._done.append(document)
        self._item = None
        return b"".join(events)

    def _tell_part(self, kind: str, **members: Any) -> bytes:
        assert self._item is not None, "a part has an item"
        return self._tell_item(kind, item_id=self._item.id, content_index=0, **members)

    def _tell_item(self, kind: str, **members: Any) -> bytes:
        return self._tell(kind, output_index=len(self._done), **members)

    def _tell(self, kind: str, **members: Any) -> bytes:
        """Return an event, numbered."""
        document = {"type": kind, "sequence_number": self._number, **members}
        self._number += 1
        return b"".join((b"event: ", kind.encode(), b"\ndata: ", orjson.dumps(document), b"\n\n"))

    def _response(self, status: str, answers: Sequence[Choices] = ()) -> dict[str, Any]:
        reason = answers[0].all[0].reason if answers else ""
        incomplete = {"reason": _INCOMPLETE[reason]} if reason in _INCOMPLETE else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": incomplete,
            "model": self._model,
            "output": list(self._done),
            "usage": _usage(answers) if answers else None,
            "previous_response_id": None,
            "store": False,
            **self._repeated,
        }


def _usage(answers: Sequence[Choices]) -> dict[str, Any]:
    used = usage(answers)
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["total_tokens"],
    }
