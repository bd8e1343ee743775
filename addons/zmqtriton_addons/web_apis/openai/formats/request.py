"""`response_format` of a request, read, and the check of what a model has made for it."""

from __future__ import annotations

from typing import Any, NamedTuple

from zmqtriton_addons.web_apis.openai.fields import flag, member
from zmqtriton_addons.web_apis.openai.formats.schema import (
    Schema,
    UnusableSchemaError,
    parse,
)
from zmqtriton_addons.web_apis.openai.problems import RefusedField

FIELD = "response_format"
_TEXT, _OBJECT, _SCHEMA = "text", "json_object", "json_schema"
_KINDS = (_TEXT, _OBJECT, _SCHEMA)


class Format(NamedTuple):
    """The form of a text, as a client asks for it."""

    #: The field that has it.
    field: str = FIELD
    #: OpenAI's document for the engine; None for any text.
    document: dict[str, Any] | None = None
    #: Answers are checked by it.
    schema: Schema | None = None

    @property
    def is_checked(self) -> bool:
        return self.document is not None and (
            self.schema is not None or self.document["type"] == _OBJECT
        )

    @property
    def json_schema(self) -> Any:
        """The schema as the client wrote it; None for any JSON."""
        return (self.document or {}).get(_SCHEMA, {}).get("schema")

    def fault(self, text: str) -> str:
        """Return why a complete answer is not of the form, "" if it is."""
        if self.schema is not None:
            return self.schema.fault(text)
        try:
            is_object = type(parse(text)) is dict
        except ValueError:
            return "it is no JSON"
        return "" if is_object else "it is no JSON object"


ANY_TEXT = Format()


def of_schema(name: str, schema: Any, *, is_strict: bool = True) -> dict[str, Any]:
    """Return the document for JSON of a schema."""
    return {"type": _SCHEMA, _SCHEMA: {"name": name, "schema": schema, "strict": is_strict}}


def read_format(fields: dict[str, Any], field: str = FIELD) -> Format:
    """Read the form that a chat or completion asks for. Raises RefusedField."""
    document = member(fields, field.rpartition(".")[2], field)
    if document is None or document.get("type") == _TEXT:
        return ANY_TEXT
    if document.get("type") not in _KINDS:
        raise RefusedField(f"'{field}.type' must be one of {', '.join(_KINDS)}", f"{field}.type")
    if document["type"] == _OBJECT:
        return Format(field, {"type": _OBJECT})
    inner = member(document, _SCHEMA, f"{field}.{_SCHEMA}")
    if inner is None:
        raise RefusedField(f"'{field}.{_SCHEMA}' must be an object", f"{field}.{_SCHEMA}")
    return _of_schema(inner, field, f"{field}.{_SCHEMA}")


def read_flat_format(fields: dict[str, Any], field: str) -> Format:
    """Read the same as a request for a response has it, without an object of its own."""
    document = member(fields, field.rpartition(".")[2], field)
    if document is not None and document.get("type") == _SCHEMA:
        return _of_schema(document, field, field)
    return read_format(fields, field)


def _of_schema(described: dict[str, Any], field: str, place: str) -> Format:
    name, schema = described.get("name"), described.get("schema")
    if type(name) is not str or not 0 < len(name) <= 64:
        raise RefusedField(f"'{place}.name' must be a name of up to 64 letters", f"{place}.name")
    if type(schema) is not dict:
        raise RefusedField(f"'{place}.schema' must be an object", f"{place}.schema")
    is_strict = flag(described, "strict")
    try:
        checked = Schema(schema) if is_strict else None
    except UnusableSchemaError as error:
        raise RefusedField(f"'{place}.schema' is unusable: {error}", f"{place}.schema") from None
    return Format(field, of_schema(name, schema, is_strict=is_strict), checked)
