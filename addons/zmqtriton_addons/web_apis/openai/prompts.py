"""The text that a chat becomes for a model that continues text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from zmqtriton_addons.web_apis.openai.problems import RefusedField
from zmqtriton_addons.web_apis.openai.tensor_names import TensorNames
from zmqtriton_addons.web_apis.templates.chat import RefusedChatError
from zmqtriton_addons.web_apis.templates.children import Children, request_of

Documents = Sequence[dict[str, Any]]

#: A long chat delays other chats only.
_lane = ThreadPoolExecutor(1, "chat-prompts")
#: Without a template they need no thread.
_FEW_MESSAGES = 256
_VARIABLES = "openai_chat_template_variables"
#: The user that a model chooses for its processes.
_USER = "stub_user"


async def prompt_of(
    messages: Documents,
    tools: Documents,
    names: TensorNames,
    template: str,
    children: Children,
) -> str:
    """Return the prompt for a model; its messages as JSON if it takes these.

    Raises RefusedField, and what Children.render raises.
    """
    loop = asyncio.get_running_loop()
    if names.messages is not None or not template:
        if len(messages) <= _FEW_MESSAGES:
            return _prompt(messages, names)
        return await loop.run_in_executor(_lane, _prompt, messages, names)
    request = await loop.run_in_executor(_lane, _request, messages, tools, names, template)
    try:
        return await children.render(names.model, names.value(_USER), request)
    except RefusedChatError as error:
        raise RefusedField(str(error), "messages") from None


def _prompt(messages: Documents, names: TensorNames) -> str:
    if names.messages is not None:
        return orjson.dumps(messages).decode()
    return plain_prompt(with_texts(messages))


def _request(messages: Documents, tools: Documents, names: TensorNames, template: str) -> bytes:
    variables = names.value(_VARIABLES)
    return request_of(names.model, template, _for_template(messages), variables, tools)


def plain_prompt(messages: Documents) -> str:
    """Return a line for each message, with its role, and the beginning of the answer."""
    lines = [f"{message['role']}: {message['content']}" for message in messages]
    return "\n".join([*lines, "assistant:"])


def with_texts(messages: Documents) -> list[dict[str, Any]]:
    """Return the messages with their contents as one text each.

    Raises RefusedField for contents that are no text.
    """
    return [
        {**message, "content": _content(message.get("content"), position)}
        for position, message in enumerate(messages)
    ]


def _content(content: Any, position: int) -> str:
    if not isinstance(content, list):
        return content or ""
    texts = []
    for part in content:
        is_text = type(part) is dict and part.get("type") == "text"
        if not is_text or type(part.get("text")) is not str:
            field = f"messages[{position}].content"
            raise RefusedField(f"'{field}' may have parts of type 'text' only", field)
        texts.append(part["text"])
    return "\n".join(texts)


def _for_template(messages: Documents) -> list[dict[str, Any]]:
    """Return the messages as templates expect them: with the arguments of calls as objects."""
    copies = with_texts(messages)
    for message in copies:
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [_with_arguments(call) for call in calls]
    return copies


def _with_arguments(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if type(function) is not dict or type(function.get("arguments")) is not str:
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}
