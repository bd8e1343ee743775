from __future__ import annotations

from typing import Any

import pytest

from zmqtriton_extras.openai.formats import (
    ANY_TEXT,
    Format,
    read_flat_format,
    read_format,
)
from zmqtriton_extras.openai.problems import RefusedField

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def of_schema(**more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, **more}}


def read(document: Any) -> Format:
    return read_format({"response_format": document})


@pytest.mark.parametrize("document", [None, {"type": "text"}])
def test_any_text_is_not_checked(document: Any) -> None:
    assert read(document) == ANY_TEXT
    assert not ANY_TEXT.is_checked


def test_an_object_is_any_object() -> None:
    form = read({"type": "json_object"})

    assert form.document == {"type": "json_object"}
    assert form.json_schema is None
    assert form.is_checked
    assert [form.fault(text) for text in ("{}", "[]", "{")] == [
        "",
        "it is no JSON object",
        "it is no JSON",
    ]


def test_a_strict_schema_is_checked_and_another_is_passed_on() -> None:
    strict, loose = read(of_schema(strict=True)), read(of_schema())

    assert SCHEMA == strict.json_schema == loose.json_schema
    assert (strict.is_checked, loose.is_checked) == (True, False)
    assert strict.fault('{"a": 1}') == ""
    assert strict.fault("{}") == "$ does not fit 'required'"


def test_a_schema_that_is_passed_on_may_have_any_keywords() -> None:
    document = of_schema()
    document["json_schema"]["schema"] = {"not": {"pattern": "^(a+)+$"}}

    assert read(document).json_schema == {"not": {"pattern": "^(a+)+$"}}


def test_a_response_has_its_schema_without_an_object_of_its_own() -> None:
    flat = {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}}

    form = read_flat_format(flat, "text.format")

    assert ("text.format", of_schema(strict=True)) == (form.field, form.document)
    assert read_flat_format({}, "text.format") == ANY_TEXT
    assert (
        read_flat_format({"format": {"type": "json_object"}}, "text.format").field == "text.format"
    )


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (7, "response_format"),
        ({}, "response_format.type"),
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        (of_schema(name=""), "response_format.json_schema.name"),
        (of_schema(name="n" * 65), "response_format.json_schema.name"),
        (of_schema(schema=None), "response_format.json_schema.schema"),
        (of_schema(schema={"not": {}}, strict=True), "response_format.json_schema.schema"),
        (of_schema(strict=1), "strict"),
    ],
)
def test_a_form_that_is_wrong_is_refused_by_the_name_of_its_field(
    document: Any, named: str
) -> None:
    with pytest.raises(RefusedField) as refused:
        read(document)

    assert named == refused.value.field
