from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.requests import TextRequest, read_chat, read_completion

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


def test_what_a_client_wants_of_tokens_is_told_to_the_model() -> None:
    few, many = chat(logprobs=True), chat(logprobs=True, top_logprobs=3, logit_bias={"7": -100})

    assert (few.logprobs, few.sampling) == (0, {"logprobs": 0})
    assert (many.logprobs, many.sampling) == (3, {"logprobs": 3, "logit_bias": {"7": -100}})
    assert (
        completion(logprobs=2).logprobs,
        completion(logprobs=2).sampling,
    ) == (2, {"logprobs": 2})
    assert completion() == completion(logprobs=0) == completion(logprobs=False)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 0), ("temperature", 2), ("top_p", 1), ("frequency_penalty", -2), ("n", 128)],
)
def test_the_ends_of_ranges_are_within(field: str, value: Any) -> None:
    assert {field: value} == completion(**{field: value}).sampling


def test_the_newer_name_of_the_limit_wins() -> None:
    assert chat(max_tokens=7, max_completion_tokens=5).sampling == {"max_tokens": 5}
    assert chat(max_tokens=7).sampling == {"max_tokens": 7}


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
        ({"stop": ["a", ""]}, "stop"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"top_p": True}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"ignore_eos": 123}, "ignore_eos"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1e3}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": "much"}}, "logit_bias"),
        ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias"),
        ({"messages": [{**USER, "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{**USER, "tool_calls": [7]}]}, "messages[0].tool_calls"),
        ({"functions": [{"name": "f"}]}, "functions"),
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
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ],
)
def test_a_completion_that_is_wrong_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(RefusedField) as refused:
        completion(**fields)

    assert named == refused.value.field


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"best_of": 2}, "'best_of' must be 1"),
        ({"function_call": {"name": "f"}}, "'function_call' must be none or auto"),
        ({"modalities": ["audio"]}, "'modalities' must be [\"text\"]"),
        ({"audio": {"voice": "alto"}}, "'audio' is not supported"),
        ({"functions": [{"name": "f"}]}, "'functions' is not supported"),
    ],
)
def test_a_field_with_other_values_says_what_it_may_be(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedField) as refused:
        chat(**fields)

    assert text == refused.value.text


@pytest.mark.parametrize("document", [None, [], "text", 7, True])
def test_what_is_no_object_is_refused(document: Any) -> None:
    for read in (read_chat, read_completion):
        with pytest.raises(RefusedField, match="must be a JSON object"):
            read(document)
