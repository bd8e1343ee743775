"""Batch files for tests: lines as clients of OpenAI's API write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

CHAT: Literal["/v1/chat/completions"] = "/v1/chat/completions"


def line(
    own_id: str,
    text: str = "one two",
    model: str = "parrot",
    more: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return a request for a chat; `more` stands beside its body."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return {"custom_id": own_id, "method": "POST", "url": CHAT, "body": body, **more}


def text_of(*lines: Any) -> bytes:
    """Return a file; lines that are bytes stand there as they are."""
    return b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines
    )
