from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import uvloop

from tests.frontends.http_api.text_models import text_model
from zmqtriton_extras.openai import text
from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.templates.children import Children
from zmqtriton_extras.openai.tensor_names import TensorNames
from zmqtriton_extras.openai.text import prompt_of
from zmqtriton_frontends.inference.model_version import ModelVersion

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": None},
]


def prompt(
    messages: list[dict[str, Any]], template: str = "", tools: Any = (), **parameters: str
) -> str:
    model = ModelVersion(text_model(parameters=parameters))
    names = TensorNames(model.config, model.signature)

    async def ask() -> str:
        children = Children()
        try:
            return await prompt_of(messages, tools, names, template, children)
        finally:
            await children.close()

    return uvloop.run(ask())


def test_a_chat_is_a_line_for_each_message() -> None:
    assert prompt(CHAT) == "system: Be brief.\nuser: a\nb\nassistant: \nassistant:"


@pytest.mark.slow
def test_a_template_makes_it_otherwise() -> None:
    template = "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}"
    variables = {"openai_chat_template_variables": '{"bos_token": "<s>"}'}

    assert prompt(CHAT, template, **variables) == "<s>[Be brief.][a\nb][]"


@pytest.mark.slow
def test_a_template_that_refuses_the_chat_is_told_with_the_field() -> None:
    with pytest.raises(
        RefusedField, match="does not take these messages, send others: too short"
    ) as refused:
        prompt(CHAT, "{{ raise_exception('too short') }}")

    assert refused.value.field == "messages"


def test_a_model_that_takes_messages_gets_them_as_they_are() -> None:
    taken = prompt(CHAT, "{{ template }}", openai_messages_input="text_input")

    assert json.loads(taken) == CHAT


@pytest.mark.parametrize(
    "part", ["text", {}, {"type": "text"}, {"type": "text", "text": 7}, {"type": "image_url"}]
)
def test_what_is_no_text_needs_a_model_that_takes_messages(part: Any) -> None:
    messages = [*CHAT, {"role": "user", "content": [part]}]

    with pytest.raises(RefusedField) as refused:
        prompt(messages)

    assert refused.value.field == "messages[3].content"
    assert messages == json.loads(prompt(messages, openai_messages_input="text_input"))


def test_others_are_answered_while_a_long_chat_becomes_a_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []

    def spy(messages: list[dict[str, Any]]) -> str:
        threads.append(threading.current_thread())
        return ""

    monkeypatch.setattr(text, "plain_prompt", spy)

    prompt(CHAT[:1] * 256)
    prompt(CHAT[:1] * 257)

    assert [thread is threading.main_thread() for thread in threads] == [True, False]


@pytest.mark.slow
def test_a_template_gets_the_tools_and_the_calls_of_the_chat() -> None:
    function = {"name": "f", "arguments": '{"a": "é"}'}
    odd = {"name": "g", "arguments": "{"}
    chat: list[dict[str, Any]] = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": function},
                {"id": "2", "type": "function", "function": odd},
                {"id": "3"},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "7"},
    ]
    template = (
        "{{ tools | map(attribute='function.name') | join }}"
        "{% for c in messages[0].tool_calls %} {{ c.id }}"
        "{% if c.function %}={{ c.function.arguments.a or c.function.arguments }}{% endif %}"
        "{% endfor %} {{ messages[1].tool_call_id }}"
    )

    # arguments that are JSON are objects, as language models' templates expect them
    assert prompt(chat, template, [{"function": {"name": "weather"}}]) == "weather 1=é 2={ 3 1"
    assert prompt(chat, "{{ tools or '' }}") == ""
