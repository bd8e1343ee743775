"""A configuration as clients and models read it: the JSON of /config, metadata, datatype names.

Keys stand in the order of the .proto file, defaults are printed, enums are names and 64-bit
integers are numbers: clients compare and parse this, so the form is part of the interface.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

import zmqtriton_protos


def from_bytes(data: bytes) -> Any:
    """Return the configuration of its protobuf."""
    return zmqtriton_protos.ModelConfig.FromString(data)


def to_dict(config: Any) -> dict[str, Any]:
    """Return the configuration as plain data.

    Only sections and oneof members that are set appear.
    """
    return _message_to_dict(config)


def to_json(config: Any) -> str:
    """Return the text of the /config endpoint and of the model's `args["model_config"]`."""
    return json.dumps(to_dict(config), separators=(",", ":"), ensure_ascii=False)


def to_text(config: Any) -> str:
    """Return the form of config.pbtxt, for the log."""
    return str(text_format.MessageToString(config))


def _message_to_dict(message: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    # Scalar members of a oneof come last, as in the JSON of Triton's protobuf.
    for field in sorted(message.DESCRIPTOR.fields, key=_is_scalar_oneof_member):
        if field.has_presence and not message.HasField(field.name):
            continue
        document[field.name] = _field_to_json(field, getattr(message, field.name))
    return document


def _is_scalar_oneof_member(field: Any) -> bool:
    return field.containing_oneof is not None and field.message_type is None


def _field_to_json(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {_key(key): _value_to_json(item, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value_to_json(field, item) for item in value]
    return _value_to_json(field, value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def _value_to_json(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _message_to_dict(value)
    if field.enum_type is not None:
        entry = field.enum_type.values_by_number.get(value)
        return value if entry is None else entry.name
    if isinstance(value, float):
        return _float_to_json(value, is_float32=field.type == FieldDescriptor.TYPE_FLOAT)
    return value


def _float_to_json(value: float, *, is_float32: bool) -> float | int | str:
    """Return proto JSON's form.

    1.0 is 1, a float32 has as few digits as it needs, NaN is a string.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    if is_float32:
        for digits in range(6, 9):
            short = float(f"{value:.{digits}g}")
            if struct.unpack("f", struct.pack("f", short))[0] == value:
                return short
    return value
