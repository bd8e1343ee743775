from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.requests import TextRequest
from zmqtriton_extras.openai.responses import ResponseRequest, read_response

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}


def read(**fields: Any) -> ResponseRequest:
    return read_response({"model": "m", "input": "hello", **fields})


def messages(items: Any, **fields: Any) -> Any:
    return read(input=items, **fields).text.messages


def test_the_least_that_is_a_request() -> None:
    user = {"role": "user", "content": "hello"}

    assert TextRequest("m", [user], [], 1, False, False, False, {}) == read().text


def test_items_are_messages() -> None:
    parts = [{"type": "input_text", "text": "a"}]

    assert messages(
        [
            {"role": "user", "content": parts},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "b", "annotations": []}],
            },
        ],
        instructions="Be brief.",
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    ]


def test_calls_and_their_results_are_messages() -> None:
    def item(number: int) -> dict[str, Any]:
        return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}

    def call(number: int) -> dict[str, Any]:
        function = {"name": "f", "arguments": "{}"}
        return {"id": f"c{number}", "type": "function", "function": function}

    assert [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "y"}]},
    ] == messages(
        [
            {"role": "user", "content": "a"},
            item(1),
            item(2),
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "y"}],
            },
        ]
    )


def test_what_is_wanted_of_the_answer_is_read() -> None:
    request, repeated = read(
        tools=[TOOL],
        tool_choice={"type": "function", "name": "f"},
        text={"format": {"type": "json_object"}},
        max_output_tokens=7,
        temperature=1,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        metadata={"a": "b"},
        stream=True,
    )

    assert request.sampling == {"max_tokens": 7, "temperature": 1.0, "logprobs": 2}
    assert (request.tools.choice, request.tools.name) == ("named", "f")
    assert (request.tools.documents[0]["function"]) == {
        "name": "f",
        "parameters": {"type": "object"},
        "strict": True,
    }
    assert request.format.document == {"type": "json_object"}
    assert (request.is_streamed, request.logprobs) == (True, 2)
    assert (
        repeated["tools"],
        repeated["metadata"],
        repeated["max_output_tokens"],
    ) == ([TOOL], {"a": "b"}, 7)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": ""}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [7]}, "input[0]"),
        ({"input": [{"role": "nobody", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input[0].type"),
        ({"input": [{"type": ["message"]}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "call_id": 7}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input[0].output"),
        ({"instructions": 7}, "instructions"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": 7}, "text"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"include": 7}, "include"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"metadata": []}, "metadata"),
    ],
)
def test_a_request_that_is_wrong_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(RefusedField) as refused:
        read(**fields)

    assert named == refused.value.field


@pytest.mark.parametrize(
    ("fields", "named", "remedy"),
    [
        (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            "input[0].type",
            "send the item itself; clients do so with 'store' set to false",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "send the whole conversation"),
        ({"conversation": "conv_1"}, "conversation", "send the whole conversation"),
    ],
)
def test_a_reference_to_what_was_stored_says_what_to_send_instead(
    fields: dict[str, Any], named: str, remedy: str
) -> None:
    with pytest.raises(RefusedField, match="the server stores no") as refused:
        read(**fields)

    assert (named, True) == (refused.value.field, remedy in refused.value.text)
