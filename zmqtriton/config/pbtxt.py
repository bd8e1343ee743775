"""Parses text or JSON into a ModelConfig: the only reader of config.pbtxt and of overrides.

An error names file, line and column, shows the line with a caret, and suggests the field or enum
value that was probably meant. `defaults` and `validation` complete and check the message.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

import zmqtriton_protos
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.json_names import normalize_names
from zmqtriton.config.lenient_json import strict
from zmqtriton_floor.errors import closest_match

#: Parsing takes about a second for this size.
MAX_CONFIG_BYTES = 1 << 20
_SHOWN_COLUMNS = 100

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "?(\w+)"?')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named "?(\w+)"?')


def read_config(path: Path) -> Any:
    """Return the ModelConfig in a text file, as it is written there."""
    return parse_text(read_text(path), str(path))


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

    Names may be snake_case or camelCase, and enums in any case; what Triton's reader of JSON
    forgives is forgiven.
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
        raise ConfigError("the model configuration is nested too deeply") from error
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
