"""The text that a chat becomes for a model that continues text."""

from __future__ import annotations

from typing import Any

from zmqtriton_frontends.http_api.openai.problems import RefusedField


def plain_prompt(messages: list[dict[str, Any]]) -> str:
    """Return a line for each message, with its role, and the beginning of the answer."""
    lines = [f"{message['role']}: {message['content']}" for message in with_texts(messages)]
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
