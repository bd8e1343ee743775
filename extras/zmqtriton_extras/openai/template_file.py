"""The file in a model's directory with the template for prompts of chats."""

from __future__ import annotations

PARAMETER = "openai_chat_template"
CHAT_TEMPLATE = (PARAMETER, "chat_template.jinja", "chat template")
