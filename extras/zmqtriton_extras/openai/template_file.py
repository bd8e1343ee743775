"""The file in a model's directory with the template for prompts of chats."""

from __future__ import annotations

from zmqtriton.sdk.models import ClientFile

CHAT_TEMPLATE = ClientFile("openai_chat_template", "chat_template.jinja", "chat template")
