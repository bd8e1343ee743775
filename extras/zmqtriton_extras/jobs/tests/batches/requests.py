"""Batch files for tests: lines as clients of OpenAI's API write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from tests.support.server import Server
from zmqtriton_extras.jobs.tests.asking import ask

FORM_TYPE = {"Content-Type": "multipart/form-data; boundary=b"}
_FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\n'
    b'Content-Disposition: form-data; name="file"; filename="f"\r\n\r\n%b\r\n--b--'
)
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


def form_of(*lines: Any) -> bytes:
    """Return the form in which a client sends a file, as FORM_TYPE."""
    return _FORM % text_of(*lines)


def begin(server: Server, *lines: Any) -> str:
    """Begin a batch of chats, and return its id."""
    file = ask(server, "/v1/files", form_of(*lines), FORM_TYPE).document["id"]
    fields = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
    return str(ask(server, "/v1/batches", json.dumps(fields).encode()).document["id"])
