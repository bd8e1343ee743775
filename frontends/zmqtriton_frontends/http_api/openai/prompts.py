"""The text that a chat becomes for a model that continues text."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from zmqtriton_frontends.http_api.openai import chat_template
from zmqtriton_frontends.http_api.openai.problems import RefusedField
from zmqtriton_frontends.http_api.openai.tensor_names import TensorNames

#: A long chat, or a slow template, delays other chats only.
_lane = ThreadPoolExecutor(1, "chat-templates")
#: Without a template they need no thread.
_FEW_MESSAGES = 256
_VARIABLES = "openai_chat_template_variables"


async def prompt_of(messages: list[dict[str, Any]], names: TensorNames, template: str) -> str:
    """Return the prompt for a model; its messages as JSON if it takes these.

    Raises what chat_template.render raises.
    """
    if not template and len(messages) <= _FEW_MESSAGES:
        return _prompt(messages, names, template)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_lane, _prompt, messages, names, template)


def _prompt(messages: list[dict[str, Any]], names: TensorNames, template: str) -> str:
    if names.messages is not None:
        return orjson.dumps(messages).decode()
    chat = with_texts(messages)
    if not template:
        return plain_prompt(chat)
    return chat_template.render(names.model, template, chat, names.value(_VARIABLES))


def plain_prompt(messages: list[dict[str, Any]]) -> str:
    """Return a line for each message, with its role, and the beginning of the answer."""
    lines = [f"{message['role']}: {message['content']}" for message in messages]
    return "\n".join([*lines, "assistant:"])


def with_texts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
    found = []
    for part in content:
        is_text = type(part) is dict and part.get("type") == "text"
        if not is_text or type(part.get("text")) is not str:
            field = f"messages[{position}].content"
            raise RefusedField(f"'{field}' may have parts of type 'text' only", field)
        found.append(part["text"])
    return "\n".join(found)
