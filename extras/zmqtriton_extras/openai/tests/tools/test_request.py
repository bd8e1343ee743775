from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.openai.problems import RefusedField
from zmqtriton_extras.openai.requests import NO_TOOLS, Tools, read_tools

POINT = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/n"}},
    "$defs": {"n": {"type": "integer"}},
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": POINT}}
TIME = {"type": "function", "function": {"name": "time"}}


@pytest.mark.parametrize(
    ("fields", "tools"),
    [
        ({}, NO_TOOLS),
        ({"tools": None, "tool_choice": "auto"}, NO_TOOLS),
        ({"tools": [], "tool_choice": "none"}, NO_TOOLS),
        ({"tools": [TIME]}, Tools([TIME], "auto")),
        ({"tools": [TIME], "tool_choice": "none"}, NO_TOOLS),
        ({"tools": [TIME, WEATHER], "tool_choice": "required"}, Tools([TIME, WEATHER], "required")),
        # there is only one that it can be
        ({"tools": [TIME], "tool_choice": "required"}, Tools([TIME], "named", "time")),
        (
            {
                "tools": [TIME, WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "time"}},
            },
            Tools([TIME, WEATHER], "named", "time"),
        ),
        ({"tools": [TIME], "parallel_tool_calls": False}, Tools([TIME], "auto", "", False)),
    ],
)
def test_tools_are_those_that_may_be_called(fields: dict[str, Any], tools: Tools) -> None:
    assert tools == read_tools(fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [TIME] * 129}, "tools"),
        ({"tools": [7]}, "tools[0].type"),
        ({"tools": [TIME, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "description": 7}}]},
            "tools[0].function.description",
        ),
        ({"tools": [TIME], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TIME], "tool_choice": 7}, "tool_choice"),
        ({"tools": [TIME], "tool_choice": {"type": "function"}}, "tool_choice"),
        (
            {"tools": [TIME], "tool_choice": {"type": "function", "function": {"name": "other"}}},
            "tool_choice",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [], "tool_choice": {"type": "function", "name": "time"}}, "tool_choice"),
        ({"tools": [TIME], "parallel_tool_calls": 1}, "parallel_tool_calls"),
    ],
)
def test_tools_that_are_wrong_are_refused_by_the_name_of_their_field(
    fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(RefusedField) as refused:
        read_tools(fields)

    assert named == refused.value.field


def test_a_forced_call_is_the_arguments_of_its_function() -> None:
    assert Tools([TIME, WEATHER], "named", "weather").forced_schema() == POINT
    assert Tools([TIME, WEATHER], "named", "time").forced_schema() == {"type": "object"}


def test_some_forced_call_is_a_list_of_calls() -> None:
    schema = Tools([TIME, WEATHER], "required", is_parallel=False).forced_schema()

    time, weather = schema["items"]["anyOf"]
    assert (schema["minItems"], schema["maxItems"]) == (1, 1)
    assert time["properties"]["name"] == {"enum": ["time"]}
    # references count from the whole schema
    assert schema["$defs"] == {"n": {"type": "integer"}}
    assert (weather["properties"]["parameters"]) == {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/n"}},
    }
