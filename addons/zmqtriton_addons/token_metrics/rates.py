"""Tokens that models have made, for programs beside the page: a socket of a running server's."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

from zmqtriton_addons.token_metrics import SERVICE, SUMS

_WITHIN_S = 1.0
_READ_BYTES = 64 << 10


def made_tokens(directory: Path) -> dict[str, int]:
    """Return the tokens by `model:version`; none of a server that does not count them."""
    parts: list[bytes] = []
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as end:
        end.settimeout(_WITHIN_S)
        end.connect(str(directory / SERVICE))
        end.sendall(SUMS + b"\n")
        while part := end.recv(_READ_BYTES):
            parts.append(part)
        return parse(b"".join(parts).decode())
    return {}


def parse(text: str) -> dict[str, int]:
    """Return the tokens of an answer."""
    made: dict[str, int] = json.loads(text)
    return made
