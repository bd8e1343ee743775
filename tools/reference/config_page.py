"""The page on config.pbtxt: the comments of model_config.proto, and the table of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from tools.build_protos import PACKAGE
from tools.reference.markdown import code, heading, table
from tools.reference.proto_comments import read_comments
from zmqtriton.config.known_parameters import PARAMETERS
from zmqtriton_floor.datatypes import DATATYPES
from zmqtriton_protos import ModelConfig

_ABOUT = """\
Every field of a model's `config.pbtxt`, in the order of the file, and the parameters that the
server reads. All of it is optional unless it says otherwise: a Python model tells its inputs and
outputs by `auto_complete_config`, too. `zmqtriton check` finds errors, with the line; an
unknown field is an error that names the closest known one. Fields that are *ignored* are those of
Triton that mean nothing to what this server runs: they are accepted, and shown to clients."""
_PARAMETERS = """\
`parameters { key: "NAME" value { string_value: "VALUE" } }`. A value that cannot be meant fails
the load. What the backends of [frameworks](../guides/frameworks.md) read stands there; all other
parameters are the model's own. A name that is similar to one of these is warned of."""
_GUIDES = {
    "ModelDynamicBatching": "batching",
    "ModelSequenceBatching": "sequences",
    "ModelTransactionPolicy": "streaming",
    "ModelOptimizationPolicy.ExecutionAccelerators": "frameworks",
    "ModelInstanceGroup": "scaling",
    "Environments and users": "environments",
    "Quotas": "overload",
    "Autoscaling": "scaling",
    "Canaries": "canaries",
    "OpenAI's API": "openai",
}
_KINDS = {
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_BOOL: "`true` or `false`",
    FieldDescriptor.TYPE_FLOAT: "number",
    FieldDescriptor.TYPE_DOUBLE: "number",
}


class Section(NamedTuple):
    #: Where the message stands in the file.
    path: str
    message: Any


def page() -> Iterator[str]:
    yield from heading("Configuration of a model", _ABOUT, "model_config.proto")
    comments = read_comments((PACKAGE / "model_config.proto").read_text("utf-8"))
    for path, message in sections():
        name = message.full_name.removeprefix("inference.")
        if not message.fields:
            continue
        yield from (f"## {path}" if path else "## Top level", "")
        if name in comments:
            yield from (comments[name], "")
        yield from _guide(name)
        rows = [_row(field, path, comments[f"{name}.{field.name}"]) for field in message.fields]
        yield from table(("Field", "Value", "Default", "Meaning"), rows)
    yield from ("## Types", "", "Of elements, by the name that requests have for them.", "")
    types = [(code(one.config_name), code(one.name), _numpy(one.numpy)) for one in DATATYPES]
    yield from table(("Type", "In requests", "In NumPy"), types)
    yield from ("## Parameters that the server reads", "", _PARAMETERS, "")
    for group, parameters in PARAMETERS.items():
        yield from (f"### {group}", "")
        yield from _guide(group)
        yield from table(
            ("Parameter", "Value", "Default", "Meaning"),
            [(code(one.name), one.takes, one.default, one.about) for one in parameters],
        )


def sections() -> list[Section]:
    """Return each message with its first place in the configuration, in the order of the file."""
    sections: list[Section] = []
    waiting = [Section("", ModelConfig.DESCRIPTOR)]
    while waiting:
        path, message = waiting.pop(0)
        if all(message is not other for _, other in sections):
            sections.append(Section(path, message))
            inner = [
                Section(f"{path}.{field.name}".lstrip("."), _message_of(field))
                for field in message.fields
                if _message_of(field) is not None
            ]
            waiting = inner + waiting
    return sections


def _message_of(field: Any) -> Any:
    """Return the message of a field, also of a map's values; None for other fields."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return message.fields_by_name["value"].message_type
    return message


def _row(field: Any, path: str, comment: str) -> tuple[str, str, str, str]:
    about, default = [], ""
    for part in re.split(r"\n(?=Default: |Ignored: )", comment):
        kind, _, rest = part.partition(": ")
        if kind == "Default":
            default = rest
        elif kind == "Ignored":
            about.append(f"*Ignored*: {rest}")
        else:
            about.append(part)
    return code(field.name), _value(field), default, " ".join(about)


def _value(field: Any) -> str:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return f"map of {_value(message.fields_by_name['value'])}"
    if message is not None and not message.fields:
        value = "`{ }`"
    elif message is not None:
        where = next(path for path, other in sections() if other is message)
        value = f"[{message.name.removeprefix('Model')}](#{where.replace('.', '')})"
    elif field.enum_type is not None:
        names = field.enum_type.values_by_name
        value = (
            "[type](#types)" if field.enum_type.name == "DataType" else ", ".join(map(code, names))
        )
    else:
        value = _KINDS.get(field.type, "whole number")
    return f"list of {value}" if field.is_repeated else value


def _numpy(kind: Any) -> str:
    return "" if kind is None else code(np.dtype(kind).name)


def _guide(name: str) -> Iterator[str]:
    if name in _GUIDES:
        yield from (f"[Guide](../guides/{_GUIDES[name]}.md).", "")
