"""JSON as protobuf's reader in Triton takes it, made into JSON that any reader takes.

Keys may be bare words, strings may have single quotes, any escapes and line breaks, and a comma may
stand before the end of an object or list. Everything else is left as it is, also what is wrong. Any
client may send such a text, so each sign is looked at a fixed number of times.
"""

from __future__ import annotations

import re

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
    """Return the same document in strict JSON."""
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
