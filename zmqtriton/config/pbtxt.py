"""Configurations as text and JSON: the only reader of config.pbtxt and overrides, and the writer.

An error names file, line and column, shows the line with a caret, and suggests the field or enum
value that was probably meant. `defaults` and `validation` complete and check the message.

Clients and models read the JSON that is written. Keys stand in the order of the .proto file,
defaults are printed, enums are names and 64-bit integers are numbers: clients compare and parse
this, so the form is part of the interface.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import re
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from google.protobuf.descriptor import FieldDescriptor

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton_floor.errors import closest_match

#: The least and the greatest value of each kind of integer, by its number.
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: ("TYPE_INT32", -(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: ("TYPE_INT64", -(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: ("TYPE_UINT32", 0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: ("TYPE_UINT64", 0, 2**64 - 1),
}
_OTHERS = {
    FieldDescriptor.TYPE_BOOL: ("TYPE_BOOL", bool),
    FieldDescriptor.TYPE_STRING: ("TYPE_STRING", str),
}


def normalize_names(document: dict[str, Any], descriptor: Any, where: str = "") -> Problem | None:
    """Normalise enums; return the problem of the first unknown name, or None.

    Runs before protobuf reads a document, because Triton's protobuf accepts `type_fp32` for
    TYPE_FP32, one value for a list of one and "true" for true, and names what is wrong by its
    place. Changes the document; whether a value makes sense is checked elsewhere.
    """
    fields = {field.name: field for field in descriptor.fields}
    fields |= {field.json_name: field for field in descriptor.fields}
    for name, value in list(document.items()):
        field = fields.get(name)
        if not name:
            return Problem(f"{where}: Proto fields must have a name.")
        if field is None:
            place = f"({where})" if where else ""
            return Problem(
                f"{place}{name}: Cannot find field.",
                suggestion=closest_match(name, [one.name for one in descriptor.fields]),
            )
        inside = f"{where}.{name}" if where else name
        if problem := _normalize_field(document, name, value, field, inside):
            return problem
    return None


def _normalize_field(
    document: dict[str, Any], name: str, value: Any, field: Any, where: str
) -> Problem | None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if isinstance(value, dict):
            inner = entry.fields_by_name["value"]
            entries = (_normalize_value(value, key, inner, f'{where}["{key}"]') for key in value)
            return next(filter(None, entries), None)
        return None
    if isinstance(value, list) and not field.is_repeated:
        return Problem(f"{where}: Proto field is not repeating, cannot start list.")
    if field.is_repeated and value is not None:
        value = [one for one in value if one is not None] if isinstance(value, list) else [value]
        document[name] = value
        places = ((index, f"{where}[{index}]") for index in range(len(value)))
        problems = (_normalize_value(value, index, field, place) for index, place in places)
        return next(filter(None, problems), None)
    return _normalize_value(document, name, field, where)


def _normalize_value(holder: Any, key: str | int, field: Any, where: str) -> Problem | None:
    value = holder[key]
    if field.message_type is not None and isinstance(value, dict):
        return normalize_names(value, field.message_type, where)
    if field.type in _INTEGERS or field.type in _OTHERS:
        return _normalize_scalar(holder, key, field, where)
    if field.enum_type is None or not isinstance(value, str):
        return None
    names = field.enum_type.values_by_name
    # Numbers may be strings, as everywhere in this format.
    if value in names or value.lstrip("-").isdigit():
        return None
    if value.upper() in names:
        holder[key] = value.upper()
        return None
    kind = field.enum_type.full_name
    text = f'({where}): invalid value "{value}" for type type.googleapis.com/{kind}'
    return Problem(text, suggestion=closest_match(value.upper(), names))


def _normalize_scalar(holder: Any, key: str | int, field: Any, where: str) -> Problem | None:
    value = holder[key]
    if value is None:
        return None
    if field.type in _OTHERS:
        kind, expected = _OTHERS[field.type]
        if expected is bool and value in ("true", "false"):
            holder[key] = value == "true"
        elif type(value) is not expected:
            return _invalid(value, kind, where)
        return None
    kind, minimum, maximum = _INTEGERS[field.type]
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return _invalid(value, kind, where)
    is_whole = type(value) in (int, str) or (type(value) is float and number == value)
    return None if is_whole and minimum <= number <= maximum else _invalid(value, kind, where)


def _invalid(value: Any, kind: str, where: str) -> Problem:
    return Problem(f"({where}): invalid value {json.dumps(value)} for type {kind}")


_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    # a string without an end: what follows it is no other token
    r"""|["'].*"""
    r"|(?P<number>-?[0-9][0-9A-Za-z.+-]*)"
    r"|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)(?P<colon>\s*:)?"
    r"|(?P<comma>,(?=\s*[}\]]))",
    re.DOTALL,
)
_IN_STRING = re.compile(r'\\(u[0-9A-Fa-f]{4}|.)|["\0-\x1f]', re.DOTALL)
#: The escapes of JSON, as they follow the backslash.
_ESCAPES = frozenset('"\\/bfnrt')


def strict(text: str) -> str:
    """Return a document that protobuf's reader in Triton takes as JSON that any reader takes.

    Keys may be bare words, strings may have single quotes, any escapes and line breaks, and a comma
    may stand before the end of an object or list. Everything else is left as it is, also what is
    wrong. Any client may send such a text, so each sign is looked at a fixed number of times.
    """
    return _TOKEN.sub(_strict_token, text)


def _strict_token(token: re.Match[str]) -> str:
    if token["string"]:
        return '"' + _IN_STRING.sub(_strict_sign, token["string"][1:-1]) + '"'
    if token["colon"]:
        return f'"{token["word"]}"{token["colon"]}'
    return "" if token["comma"] else token[0]


def _strict_sign(match: re.Match[str]) -> str:
    escape = match[1]
    if escape is None:
        return f"\\u{ord(match[0]):04x}"
    return match[0] if escape in _ESCAPES or len(escape) > 1 else escape


#: Maximum size of a configuration; parsing one of this size takes about a second.
MAX_CONFIG_BYTES = 1 << 20
_SHOWN_COLUMNS = 100

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "?(\w+)"?')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named "?(\w+)"?')


def read_config(path: Path, *, may_have_more: bool = False) -> Any:
    """Return the ModelConfig of a text file, without defaults."""
    return parse_text(read_text(path), str(path), may_have_more=may_have_more)


def read_text(path: Path) -> str:
    """Return the file's text. Raises ConfigError if it is not text."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_CONFIG_BYTES else b""
    except OSError as error:
        raise ConfigError(f"failed to open text file for read {path}: {error.strerror}") from error
    if size > MAX_CONFIG_BYTES:
        raise ConfigError(
            Problem(_read_failure_text(path), path=str(path), detail=_too_large_text(size))
        )
    try:
        # editors of Windows begin a file with a byte order mark
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        is_wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        detail = f"the text is {'UTF-16, ' if is_wide else ''}not UTF-8"
        raise ConfigError(
            Problem(_read_failure_text(path), path=str(path), line=line, detail=detail)
        ) from error


def parse_text(text: str, path: str = "config.pbtxt", *, may_have_more: bool = False) -> Any:
    """Return the ModelConfig in a text; `path` is for errors.

    With `may_have_more` unknown fields are left out.
    """
    config = zmqtriton_protos.ModelConfig()
    try:
        text_format.Parse(
            text, config, descriptor_pool=zmqtriton_protos.POOL, allow_unknown_field=may_have_more
        )
    except text_format.ParseError as error:
        raise ConfigError(_parse_problem(error, text, path)) from error
    return config


def parse_json(text: str) -> Any:
    """Return the ModelConfig in proto JSON.

    Names may be snake_case or camelCase, and enums in any case; deviations from JSON that Triton's
    reader allows are allowed.
    """
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(_too_large_text(len(text)))
    config = zmqtriton_protos.ModelConfig()
    try:
        document = _read_json(text)
        if not isinstance(document, dict):
            raise ConfigError("the model configuration must be a JSON object")
        if refused := normalize_names(document, config.DESCRIPTOR):
            raise ConfigError(refused)
        text = json.dumps(document)
        json_format.Parse(text, config, descriptor_pool=zmqtriton_protos.POOL)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{error.lineno}:{error.colno}: {error.msg}\n"
            f"{_source_excerpt(text, error.lineno, error.colno)}"
        ) from error
    except RecursionError as error:
        raise ConfigError("the model configuration is nested too deeply: flatten it") from error
    except (json_format.ParseError, UnicodeError) as error:
        message = str(error).splitlines()[0]
        raise ConfigError(Problem(message, suggestion=_suggestion_for(message))) from error
    except ValueError as error:  # Python converts no longer ones
        text = "the model configuration has an integer of thousands of digits"
        raise ConfigError(text) from error
    return config


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except json.JSONDecodeError:
        # what is wrong with a text is told with the places of that text
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(strict(text), object_pairs_hook=_reject_duplicate_keys)
        raise


def parse_override(text: str) -> Any:
    """Return the `config` parameter of a load request: proto JSON in place of config.pbtxt."""
    try:
        return parse_json(text)
    except ConfigError as error:
        problem = error.problem
        raise ConfigError(
            replace(problem, text=f"Invalid config override: {problem.text}")
        ) from error


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ConfigError(f"duplicate key {twice}")
    return document


def _read_failure_text(path: object) -> str:
    return f"failed to read text proto from {path}"


def _too_large_text(size: int) -> str:
    return f"a model configuration of {size} bytes exceeds the limit of {MAX_CONFIG_BYTES} bytes"


def _parse_problem(error: text_format.ParseError, text: str, path: str) -> Problem:
    line, column = error.GetLine(), error.GetColumn()
    message = str(error)
    meant = _suggestion_for(message)
    if line is None or column is None:
        return Problem(_read_failure_text(path), suggestion=meant, path=path, detail=message)
    lines = text.split("\n")
    source = lines[line - 1] if line <= len(lines) else ""
    # protobuf puts the position before its message, and for some errors the line, too
    message = message.removeprefix(f"{line}:{column} : ").removeprefix(f"'{source}': ")
    return Problem(
        _read_failure_text(path),
        suggestion=meant,
        path=path,
        line=line,
        column=column,
        detail=message,
        excerpt=_source_excerpt(text, line, column),
    )


def _source_excerpt(text: str, line: int, column: int) -> str:
    """Return the line and a caret under the column; of a long line the part around the column."""
    lines = text.split("\n")
    source = lines[line - 1].rstrip("\r") if line <= len(lines) else ""
    start = max(0, column - 1 - _SHOWN_COLUMNS // 2)
    shown = source[start : start + _SHOWN_COLUMNS]
    indent = re.sub(r"[^\t]", " ", source[start : column - 1])
    return f"  {shown}\n  {indent}^"


def _suggestion_for(message: str) -> str:
    """Return the name that is similar to the one in a parser's error, or ""."""
    if match := _UNKNOWN_FIELD.search(message):
        names = [field.name for field in zmqtriton_protos.message(match[1]).DESCRIPTOR.fields]
    elif match := _UNKNOWN_VALUE.search(message):
        names = list(zmqtriton_protos.enum(match[1]).values_by_name)
    else:
        return ""
    return closest_match(match[2], names)


def from_bytes(data: bytes) -> Any:
    """Return the configuration from serialized protobuf."""
    return zmqtriton_protos.ModelConfig.FromString(data)


def to_dict(config: Any) -> dict[str, Any]:
    """Return the configuration, or a part of it, as plain data.

    Only sections and oneof members that are set appear.
    """
    # Scalar members of a oneof come last, as in the JSON of Triton's protobuf.
    fields = sorted(
        config.DESCRIPTOR.fields,
        key=lambda each: each.containing_oneof is not None and each.message_type is None,
    )
    return {
        field.name: _field_to_json(field, getattr(config, field.name))
        for field in fields
        if not field.has_presence or config.HasField(field.name)
    }


def to_json(config: Any) -> str:
    """Return the text of the /config endpoint and of the model's `args["model_config"]`."""
    return json.dumps(to_dict(config), separators=(",", ":"), ensure_ascii=False)


def to_text(config: Any) -> str:
    """Return the form of config.pbtxt, for the log."""
    return str(text_format.MessageToString(config))


def _field_to_json(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {str(key): _value_to_json(item, value[key]) for key in sorted(value)}
    if field.is_repeated:
        return [_value_to_json(field, item) for item in value]
    return _value_to_json(field, value)


def _value_to_json(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_dict(value)
    if field.enum_type is not None:
        entry = field.enum_type.values_by_number.get(value)
        return value if entry is None else entry.name
    if isinstance(value, float):
        return _float_to_json(value, is_float32=field.type == FieldDescriptor.TYPE_FLOAT)
    return value


def _float_to_json(value: float, *, is_float32: bool) -> float | int | str:
    """Return a number in proto JSON's form.

    1.0 is 1, a float32 has as few digits as it needs, NaN is a string.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    short = (float(f"{value:.{digits}g}") for digits in range(6, 9)) if is_float32 else ()
    return next(
        (one for one in short if struct.unpack("f", struct.pack("f", one))[0] == value), value
    )
