"""OpenAI's API, as their own client for Python speaks it, from a real client to the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.server import Server

pytestmark = pytest.mark.system

MODELS = ["parrot"]
OPTIONS = ["--allow-openai"]

HELLO: list[Any] = [
    {"role": "system", "content": "Repeat."},
    {"role": "user", "content": "one two three"},
]


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120
    ) as client:
        yield client


def tokens(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


@pytest.mark.row("L08")
def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="parrot", messages=HELLO)

    assert ("chat.completion", "parrot") == (answer.object, answer.model)
    assert answer.id.startswith("chatcmpl-")
    (choice,) = answer.choices
    assert (0, "stop") == (choice.index, choice.finish_reason)
    assert ("assistant", "one two three") == (choice.message.role, choice.message.content)
    assert (7, 3, 10) == tokens(answer.usage)
