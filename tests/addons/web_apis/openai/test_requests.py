from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_addons.web_apis.openai.problems import RefusedField
from zmqtriton_addons.web_apis.openai.requests import TextRequest, read_chat, read_completion

USER = {"role": "user", "content": "hello"}


def chat(**fields: Any) -> TextRequest:
    return read_chat({"model": "m", "messages": [USER], **fields})


def completion(**fields: Any) -> TextRequest:
    return read_completion({"model": "m", "prompt": "hello", **fields})


def test_the_least_that_is_a_chat() -> None:
    assert TextRequest("m", [USER], [], 1, False, False, False, {}) == chat()


def test_the_least_that_is_a_completion() -> None:
    assert TextRequest("m", None, ["hello"], 1, False, False, False, {}) == completion()


def test_all_that_a_completion_may_say() -> None:
    request = completion(
        prompt=["a", "b"],
        n=3,
        stream=True,
        stream_options={"include_usage": True},
        echo=True,
        stop="end",
        temperature=1,
    )

    sampling = {"n": 3, "stop": ["end"], "temperature": 1.0}
    assert TextRequest("m", None, ["a", "b"], 3, True, True, True, sampling) == request


def test_what_is_null_or_means_nothing_to_a_model_is_left_out() -> None:
    ignored = {"user": "me", "metadata": {"a": "b"}, "store": True, "verbosity": "low"}
    defaults: dict[str, Any] = {
        "n": None,
        "stop": None,
        "logprobs": False,
        "tools": [],
        "tool_choice": "auto",
    }

    assert chat() == chat(**ignored, **defaults, response_format={"type": "text"}, seed=None)


def test_the_newer_name_of_the_limit_wins() -> None:
    assert {"max_tokens": 5} == chat(max_tokens=7, max_completion_tokens=5).sampling
    assert {"max_tokens": 7} == chat(max_tokens=7).sampling


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": ["m"]}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": [USER, "hello"]}, "messages[1]"),
        ({"messages": [{"content": "hello"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "hello"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"n": 1.0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 10**18}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "include_usage"),
        ({"stop": 7}, "stop"),
        ({"stop": ["a", 7]}, "stop"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": True}, "top_p"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1e3}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
    ],
)
def test_a_chat_that_is_wrong_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(RefusedField) as refused:
        chat(**fields)

    assert named == refused.value.field


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": ["a", [1]]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "n"),
        ({"echo": "yes"}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 3}, "logprobs"),
    ],
)
def test_a_completion_that_is_wrong_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(RefusedField) as refused:
        completion(**fields)

    assert named == refused.value.field


@pytest.mark.parametrize("document", [None, [], "text", 7, True])
def test_what_is_no_object_is_refused(document: Any) -> None:
    for read in (read_chat, read_completion):
        with pytest.raises(RefusedField, match="must be a JSON object"):
            read(document)
