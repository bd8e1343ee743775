"""Text or JSON -> ModelConfig message: the only reader of config.pbtxt and of overrides.

Called when a model is scanned or loaded. An error names file, line and column, shows the line
with a caret, and proposes the field or enum value that was probably meant. Completes and checks
nothing: that is the work of `defaults` and `validation`.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError

#: Reading is done in the supervisor's only thread, and this much takes about a second.
MAX_CONFIG_BYTES = 1 << 20
_SHOWN_COLUMNS = 100

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "?(\w+)"?')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named "?(\w+)"?')
_UNKNOWN_JSON_VALUE = re.compile(r"Invalid enum value (\w+) for enum type ([\w.]+)")


def read_config(path: Path) -> Any:
    """The ModelConfig in a text file, as it stands there."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_CONFIG_BYTES else b""
    except OSError as error:
        raise ConfigError(f"failed to open text file for read {path}: {error.strerror}") from error
    if size > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"failed to read text proto from {path}\n{_too_large(size)}",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"failed to read text proto from {path}\n{path}:{line}: the text is not UTF-8"
        ) from error
    return parse_text(text, str(path))


def parse_text(text: str, path: str = "config.pbtxt") -> Any:
    """The ModelConfig in a text; `path` is for the error alone."""
    config = zmqtriton_protos.ModelConfig()
    try:
        text_format.Parse(text, config, descriptor_pool=zmqtriton_protos.POOL)
    except text_format.ParseError as error:
        raise ConfigError(
            f"failed to read text proto from {path}\n{_explain(error, text, path)}"
        ) from error
    return config


def parse_json(text: str) -> Any:
    """The ModelConfig in proto JSON, with snake_case or camelCase names."""
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(_too_large(len(text)))
    config = zmqtriton_protos.ModelConfig()
    try:
        if not isinstance(json.loads(text), dict):
            raise ConfigError("the model configuration must be a JSON object")
        json_format.Parse(text, config, descriptor_pool=zmqtriton_protos.POOL)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{error.lineno}:{error.colno}: {error.msg}\n"
            f"{_source_line(text, error.lineno, error.colno)}"
        ) from error
    except RecursionError as error:
        raise ConfigError("the model configuration is nested too deeply") from error
    except (json_format.ParseError, UnicodeError) as error:
        message = str(error).splitlines()[0]
        raise ConfigError(message + _suggestion(message)) from error
    return config


def parse_override(text: str) -> Any:
    """The `config` parameter of a load request: proto JSON that stands in for config.pbtxt."""
    try:
        return parse_json(text)
    except ConfigError as error:
        raise ConfigError(f"Invalid config override: {error.text}") from error


def _too_large(size: int) -> str:
    return f"a model configuration of {size} bytes exceeds the limit of {MAX_CONFIG_BYTES} bytes"


def _explain(error: text_format.ParseError, text: str, path: str) -> str:
    line, column = error.GetLine(), error.GetColumn()
    message = str(error)
    if line is None or column is None:
        return f"{path}: {message}{_suggestion(message)}"
    lines = text.split("\n")
    source = lines[line - 1] if line <= len(lines) else ""
    # protobuf puts the position before its message, and for some errors the line too.
    message = message.removeprefix(f"{line}:{column} : ").removeprefix(f"'{source}': ")
    shown = _source_line(text, line, column)
    return f"{path}:{line}:{column}: {message}{_suggestion(message)}\n{shown}"


def _source_line(text: str, line: int, column: int) -> str:
    """The line and a caret under the column; of a long line the part around the column."""
    lines = text.split("\n")
    source = lines[line - 1].rstrip("\r") if line <= len(lines) else ""
    start = max(0, column - 1 - _SHOWN_COLUMNS // 2)
    shown = source[start : start + _SHOWN_COLUMNS]
    indent = re.sub(r"[^\t]", " ", source[start : column - 1])
    return f"  {shown}\n  {indent}^"


def _suggestion(message: str) -> str:
    """' Did you mean ...?' when a name in the error is close to one that exists."""
    if found := _UNKNOWN_FIELD.search(message):
        names = [field.name for field in zmqtriton_protos.message(found[1]).DESCRIPTOR.fields]
        word = found[2]
    elif found := _UNKNOWN_VALUE.search(message):
        names, word = list(zmqtriton_protos.enum(found[1]).values_by_name), found[2]
    elif found := _UNKNOWN_JSON_VALUE.search(message):
        names, word = list(zmqtriton_protos.enum(found[2]).values_by_name), found[1]
    else:
        return ""
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
