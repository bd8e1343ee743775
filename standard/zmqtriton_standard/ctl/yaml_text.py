"""A document as YAML, without a library: texts are quoted nearly as in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

#: Words that YAML reads as something else than a text.
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})


def yaml_lines(value: Any) -> Iterator[str]:
    """Yield the lines of a YAML document; texts are quoted nearly as in JSON."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _nested(f"{_scalar(key)}:", inner, "  ")
    elif isinstance(value, list) and value:
        for inner in value:
            lines = list(yaml_lines(inner))
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
    else:
        yield _scalar(value)


def _nested(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from (f"{indent}{line}" for line in yaml_lines(value))
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and value.replace("_", "a").isalpha() and value.isascii()
    if is_plain and value.lower() not in _NOT_TEXT:
        return str(value)
    return _quote(value) if isinstance(value, str) else json.dumps(value)


def _quote(text: str) -> str:
    """Quote a text as in JSON, but without pairs of escapes for one letter, which YAML lacks."""
    letters = (json.dumps(c)[1:-1] if c < "\U00010000" else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(letters)}"'
