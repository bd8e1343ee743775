from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from zmqtriton_extras.openai.formats import Schema, UnusableSchemaError

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^(a+)+$"},
        "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        "friends": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
#: A schema, and values; the library says which of them fit.
CASES: list[tuple[Any, list[Any]]] = [
    (
        PERSON,
        [
            {"name": "aa", "age": 7},
            {"name": "aa", "age": None, "friends": [{"name": "a", "age": 1}]},
            {"name": "aa", "age": 7, "friends": [{"name": "a"}]},
            {"name": "aa", "age": 7, "friends": [{"name": "a", "age": 1}] * 3},
            {"name": "", "age": 7},
            {"name": "aa", "age": -1},
            {"name": "aa", "age": "7"},
            {"name": "aa", "age": 7, "more": 1},
            {"age": 7},
            [],
            "name",
        ],
    ),
    ({"type": "integer"}, [1, 1.0, 1.5, True, "1", None, 10**30]),
    ({"type": ["number", "null"]}, [1, 1.5, None, False, []]),
    ({"type": "boolean"}, [True, False, 0, 1, "true"]),
    ({"enum": [1, "a", None, [1]]}, [1, "a", None, [1], True, 2, "b", [2]]),
    ({"const": 0}, [0, False, 0.0, ""]),
    ({"minimum": 1, "exclusiveMaximum": 3}, [0, 1, 2.5, 3, "x"]),
    ({"maximum": 3, "exclusiveMinimum": 1}, [1, 1.5, 3, 4, None]),
    ({"multipleOf": 0.5}, [1, 1.25, 2.5, "x", 0]),
    ({"multipleOf": 7}, [14, 15, 7 * 10**40]),
    ({"minLength": 2, "maxLength": 3}, ["é", "éé", "aaaa", 7]),
    ({"minItems": 1, "items": {"type": "string"}}, [[], ["a"], ["a", 1]]),
    ({"prefixItems": [{"type": "string"}], "items": False}, [[], ["a"], [1], ["a", 1]]),
    ({"minProperties": 1, "maxProperties": 1}, [{}, {"a": 1}, {"a": 1, "b": 2}]),
    ({"additionalProperties": {"type": "integer"}}, [{"a": 1}, {"a": "x"}, {}]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, [1, 7, 7.5, "x"]),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [0, 1, 3]),
    (
        {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}},
        [{"a": 1}, {"a": "x"}, {}],
    ),
    ({"definitions": {"a/b": {"type": "null"}}, "$ref": "#/definitions/a~1b"}, [None, 1]),
    ({"title": "anything", "default": 7, "examples": []}, [None, {}, 1]),
]


@pytest.mark.parametrize(
    ("schema", "value"), [(schema, value) for schema, values in CASES for value in values]
)
def test_values_fit_as_the_library_says(schema: Any, value: Any) -> None:
    library = jsonschema.Draft202012Validator(schema).is_valid(value)

    fault = Schema(schema).fault(json.dumps(value))

    assert library == (not fault), fault


def test_a_fault_says_where_it_is() -> None:
    text = '{"name": "a", "age": 1, "friends": [{"name": "b", "age": "x"}]}'

    assert Schema(PERSON).fault(text) == "$.friends[0].age does not fit 'anyOf'"
    assert Schema(PERSON).fault('{"name": "a", "age": 1, "more": 1}') == "$.more may not be there"


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "Infinity", "[" * 100_000, "1" * 100_000, "{} {}"]
)
def test_what_is_no_json_fits_nothing(text: str) -> None:
    assert Schema({}).fault(text) == "it is no JSON"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ([], "must be an object"),
        ({"properties": {"a": 7}}, "must be an object"),
        ({"properties": []}, "the value of 'properties' has the wrong type"),
        ({"required": "name"}, "'required' has"),
        ({"type": "text"}, "'type' has"),
        ({"type": ["string", 7]}, "'type' has"),
        ({"anyOf": []}, "'anyOf' has"),
        ({"minLength": -1}, "'minLength' has"),
        ({"minimum": "1"}, "'minimum' has"),
        ({"not": {}}, "keyword 'not' is not supported"),
        ({"items": {"if": {}}}, "keyword 'if' is not supported"),
        ({"$ref": "#/$defs/none"}, "'\\$ref' must name a part"),
        ({"$ref": "#/const/$defs", "const": {"$defs": {"type": 7}}}, "'\\$ref' must name a part"),
        ({"$ref": "http://127.0.0.1/schema"}, "'\\$ref' must begin with"),
        ({"enum": [1] * 5001}, "too many values"),
        ({"anyOf": [{}] * 5001}, "too many or too deep schemas"),
    ],
)
def test_a_schema_that_says_nothing_is_refused(schema: Any, text: str) -> None:
    with pytest.raises(UnusableSchemaError, match=text):
        Schema(schema)


def test_a_schema_that_lies_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(50):
        schema = {"items": schema}

    with pytest.raises(UnusableSchemaError, match="too deep"):
        Schema(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#"}, 1),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1),
        # twice as many ways with each level
        (
            {
                "type": "array",
                "anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}, "minItems": 1}],
            },
            json.loads("[" * 60 + "1" + "]" * 60),
        ),
        ({"items": {"enum": list(range(4000))}}, [-1.5] * 4000),
        ({"items": {"enum": list(range(4000))}}, [3999] * 4000),
    ],
)
def test_a_check_ends_soon(schema: Any, value: Any) -> None:
    fault = Schema(schema).fault(json.dumps(value))

    assert fault.startswith(("it takes too long", "$"))


def test_a_pattern_is_left_to_the_engine() -> None:
    """An expression like this one takes for ever with the library's own."""
    assert Schema(PERSON).fault(json.dumps({"name": "a" * 40 + "b", "age": 1})) == ""
