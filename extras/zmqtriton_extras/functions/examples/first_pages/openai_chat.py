"""LitServe's page on OpenAI's API: a chat with its history, by any client of OpenAI."""

from zmqtriton import model


@model
def chat(messages: list[dict], temperature: float = 1.0) -> str:
    return f"{len(messages)} messages, the last one: {messages[-1]['content']}"
