"""Tokens of models that make text: metrics by the names of dashboards, and limits of clients.

`step.py` sees the responses in each frontend, and refuses clients whose bearer tokens have used up
their allowance; `process.py` adds up the reports of all frontends, and tells them about used-up
tokens. `figures.py` asks it for the page; this module is for other programs.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "token_metrics"
#: Ask its process for the text of the page, and for the sums by `model:version`.
QUESTION, SUMS = b"?", b"sums"
_WITHIN_S = 1.0
_READ_BYTES = 64 << 10


def made_tokens(directory: Path) -> dict[str, int]:
    """Return the LLM tokens by `model:version`; {} if the server does not count them."""
    parts: list[bytes] = []
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as end:
        end.settimeout(_WITHIN_S)
        end.connect(str(directory / SERVICE))
        end.sendall(SUMS + b"\n")
        while part := end.recv(_READ_BYTES):
            parts.append(part)
        return parse_sums(b"".join(parts).decode())
    return {}


def parse_sums(text: str) -> dict[str, int]:
    """Return the LLM tokens in an answer."""
    made: dict[str, int] = json.loads(text)
    return made
