"""The comments of a .proto file, which its compiled form does not have."""

from __future__ import annotations

import re

_DECLARED = re.compile(r"\s*(?:message|oneof|enum) (\w+) {(})?|\s*(})|.*?(\w+) = \d+;")


def read_comments(proto: str) -> dict[str, str]:
    """Return the comment above each message and field, by its full name in the package."""
    comments: dict[str, str] = {}
    names: list[str] = []
    comment: list[str] = []
    for line in proto.splitlines():
        stripped = line.strip()
        if stripped.startswith("//"):
            comment.append(stripped[2:].removeprefix(" "))
            continue
        declared = _DECLARED.fullmatch(line)
        if declared is not None:
            opened, is_empty, closed, field = declared.groups()
            if closed:
                names.pop()
            elif opened and "message" in line:
                names.append(opened)
            elif opened:
                names.append("")  # neither is a part of the names of what it holds
            if comment:
                name = ".".join(filter(None, (*names, field)))
                comments[name] = "\n".join(comment)
            if is_empty:
                names.pop()
        comment = []
    return comments
