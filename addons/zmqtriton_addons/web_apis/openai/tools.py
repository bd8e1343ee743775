"""`tools` and `tool_choice` of a request, read and checked; and what an engine is to keep to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from zmqtriton_addons.web_apis.openai.fields import flag, member
from zmqtriton_addons.web_apis.openai.problems import RefusedField

#: As with OpenAI.
_MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
NONE, AUTO, REQUIRED, NAMED = "none", "auto", "required", "named"


class Tools(NamedTuple):
    """The functions that a model may call."""

    #: In the form of chats, as templates expect them.
    documents: Sequence[dict[str, Any]] = ()
    #: Whether it may call them, must, or must call a certain one.
    choice: str = NONE
    #: The certain one.
    name: str = ""
    #: Several calls are welcome.
    is_parallel: bool = True

    @property
    def is_forced(self) -> bool:
        return self.choice in (REQUIRED, NAMED)

    def choice_document(self) -> Any:
        """Return the choice in OpenAI's form."""
        if self.choice != NAMED:
            return self.choice
        return {"type": "function", "function": {"name": self.name}}

    def forced_schema(self) -> dict[str, Any]:
        """Return the schema of a forced answer: arguments, or a list of calls."""
        functions = [document["function"] for document in self.documents]
        if self.choice == NAMED:
            return next(_parameters(one) for one in functions if one["name"] == self.name)
        definitions: dict[str, Any] = {}
        calls = [_call_schema(one, definitions) for one in functions]
        schema: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
        if not self.is_parallel:
            schema["maxItems"] = 1
        return {**schema, "$defs": definitions} if definitions else schema


NO_TOOLS = Tools()


def read_tools(fields: dict[str, Any]) -> Tools:
    """Read the tools of a chat. Raises RefusedField."""
    return tools_of(fields, _documents(fields), fields.get("tool_choice"))


def tools_of(fields: dict[str, Any], documents: list[dict[str, Any]], choice: Any) -> Tools:
    """Return the tools with the client's choice among them. Raises RefusedField."""
    is_parallel = flag(fields, "parallel_tool_calls", standard=True)
    kind, name = _choice(choice)
    if not documents:
        if kind in (REQUIRED, NAMED):
            raise RefusedField("'tool_choice' needs 'tools'", "tool_choice")
        return NO_TOOLS
    names = [document["function"]["name"] for document in documents]
    if kind == NAMED and name not in names:
        raise RefusedField(
            f"'tool_choice' names '{name[:64]}', which is not in 'tools'", "tool_choice"
        )
    if kind == REQUIRED and len(names) == 1:
        return Tools(documents, NAMED, names[0], is_parallel)
    return Tools(documents, kind, name, is_parallel) if kind != NONE else NO_TOOLS


def read_function(function: dict[str, Any], field: str) -> dict[str, Any]:
    """Return a tool in the form of chats. Raises RefusedField."""
    name = function.get("name")
    if type(name) is not str or not _NAME.fullmatch(name):
        raise RefusedField(
            f"'{field}.name' must be a name of up to 64 letters, digits, '_', '-' and '.'",
            f"{field}.name",
        )
    member(function, "parameters", f"{field}.parameters")
    if type(function.get("description")) not in (str, type(None)):
        raise RefusedField(f"'{field}.description' must be a string", f"{field}.description")
    return {"type": "function", "function": function}


def tool_list(fields: dict[str, Any]) -> list[Any]:
    """Return the elements of `tools`, each an object of type function. Raises RefusedField."""
    tools = fields.get("tools")
    if tools is None:
        return []
    if type(tools) is not list or len(tools) > _MAX_TOOLS:
        raise RefusedField(f"'tools' must be a list of at most {_MAX_TOOLS} tools", "tools")
    for number, tool in enumerate(tools):
        if type(tool) is not dict or tool.get("type") != "function":
            field = f"tools[{number}].type"
            raise RefusedField(f"'{field}' must be 'function'; others are not supported", field)
    return tools


def _documents(fields: dict[str, Any]) -> list[dict[str, Any]]:
    documents = []
    for number, tool in enumerate(tool_list(fields)):
        field = f"tools[{number}].function"
        function = tool.get("function")
        if type(function) is not dict:
            raise RefusedField(f"'{field}' must be an object", field)
        documents.append(read_function(function, field))
    return documents


def _choice(choice: Any) -> tuple[str, str]:
    """Return the kind of choice, and the function that it names."""
    if choice is None:
        return AUTO, ""
    if type(choice) is str and choice in (NONE, AUTO, REQUIRED):
        return choice, ""
    if type(choice) is dict and choice.get("type") == "function":
        # chats have an object of its own, responses have not
        inner = choice.get("function", choice)
        name = inner.get("name") if type(inner) is dict else None
        if type(name) is str:
            return NAMED, name
    raise RefusedField(
        "'tool_choice' must be 'none', 'auto', 'required', or name a function", "tool_choice"
    )


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    return function.get("parameters") or {"type": "object"}


def _call_schema(function: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a call; references of its arguments count from the whole schema."""
    parameters = dict(_parameters(function))
    inner = parameters.pop("$defs", None)
    definitions.update(inner if type(inner) is dict else {})
    return {
        "type": "object",
        "properties": {"name": {"enum": [function["name"]]}, "parameters": parameters},
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }
