"""The texts in the source, to see that those that the documentation quotes exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.repo.sources import sources


@cache
def source_texts() -> frozenset[str]:
    """Every text of the server; what is filled in is `{}`."""
    return frozenset(
        " ".join(text.split())
        for source in sources()
        for node in source.nodes
        for text in _text(node)
    )


def _text(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
        yield "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        yield node.value.decode("latin-1")


def is_in_the_source(text: str) -> bool:
    """True if one text of the source has all of this; `…` stands for anything between two parts."""
    parts = text.split("…")
    longest, pattern = max(parts, key=len), ".*".join(map(re.escape, parts))
    return any(longest in text and re.search(pattern, text) for text in source_texts())
