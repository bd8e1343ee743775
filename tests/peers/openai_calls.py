"""Calls of OpenAI's client, as a program that prints forms.

    python openai_calls.py URL MODEL

Prints a JSON object: the resources that the client has, and the form of each call's answer, plain,
asynchronous and streamed. What the server does not have answers 404.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import openai
from forms import form, outcome
from openai.resources import __all__ as resources

SAID: Any = [{"role": "user", "content": "Say a few words."}]


def calls(client: Any, model: str) -> dict[str, Callable[[], Any]]:
    """Return one call of each method that matters, by its name."""
    chat, completions = client.chat.completions, client.completions
    return {
        "models.list": client.models.list,
        "models.retrieve": lambda: client.models.retrieve(model),
        "models.retrieve unknown": lambda: client.models.retrieve("nobody"),
        "chat.completions.create": lambda: chat.create(model=model, messages=SAID),
        "chat.completions.create unknown": lambda: chat.create(model="nobody", messages=SAID),
        "chat.completions.create stream": lambda: chat.create(
            model=model, messages=SAID, stream=True
        ),
        "completions.create": lambda: completions.create(model=model, prompt="one two"),
        "completions.create stream": lambda: completions.create(
            model=model, prompt="one two", stream=True
        ),
        "completions.create several": lambda: completions.create(model=model, prompt=["a", "b"]),
        "embeddings.create": lambda: client.embeddings.create(
            model="lettering", input=["one", "two"]
        ),
        "files.list": client.files.list,
        "images.generate": lambda: client.images.generate(prompt="a pigeon"),
        "moderations.create": lambda: client.moderations.create(input="a"),
    }


def shape(answer: Any) -> Any:
    """Return the form of an answer: a model's names are those that it has set."""
    if hasattr(answer, "model_dump"):
        return {"keys": sorted(answer.model_dump(exclude_none=True))}
    return form(answer)


async def answers(client: Any, model: str) -> dict[str, Any]:
    found = {}
    for name, call in calls(client, model).items():
        answer = await outcome(call)
        if isinstance(answer, openai.Stream):
            answer = [*answer]
        elif isinstance(answer, openai.AsyncStream):
            answer = [item async for item in answer]
        found[name] = [shape(answer[-1])] if isinstance(answer, list) else shape(answer)
    return found


def main(url: str, model: str) -> None:
    names = (name for name in resources if "With" not in name and not name.startswith("Async"))
    given: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    found = {
        "resources": sorted(names),
        "plain": asyncio.run(answers(openai.OpenAI(**given), model)),
        "asynchronous": asyncio.run(answers(openai.AsyncOpenAI(**given), model)),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
