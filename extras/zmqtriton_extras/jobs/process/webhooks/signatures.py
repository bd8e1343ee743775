"""The signatures of webhooks, as the specification Standard Webhooks 1.0 has them.

So clients of OpenAI and the libraries `standardwebhooks` verify them. The options have the secrets.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed

_PREFIX = "whsec_"
_LEAST_BYTES = 16


def read_secrets(path: str) -> list[bytes]:
    """Return the secrets of a file, one a line: while they change, there are two.

    Raises ValueError without any, and OSError.
    """
    secrets = [_secret(line) for line in map(str.strip, _lines(path)) if line]
    if not secrets or min(map(len, secrets)) < _LEAST_BYTES:
        raise ValueError(f"a secret must have at least {_LEAST_BYTES} bytes")
    return secrets


def _lines(path: str) -> list[str]:
    return Path(path).read_text("ascii").splitlines()


def _secret(line: str) -> bytes:
    if not line.startswith(_PREFIX):
        return line.encode()
    try:
        return base64.b64decode(line[len(_PREFIX) :], validate=True)
    except binascii.Error as error:
        raise ValueError(f"the text after {_PREFIX} must be base64") from error


def sign(secrets: Iterable[bytes], message: str, timestamp: int, body: bytes) -> str:
    """Return the value of `webhook-signature`, with a signature by each secret."""
    signed = f"{message}.{timestamp}.".encode() + body
    digests = (hmac.digest(secret, signed, "sha256") for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the options of webhooks; "" without one."""
    allowed, file = options["webhook_allow"], options["webhook_secret_file"]
    if not allowed:
        return ""
    try:
        Allowed(allowed)
    except ValueError as error:
        return f"'--webhook-allow': {error}"
    if not file:
        return "'--webhook-allow' needs '--webhook-secret-file', which signs webhooks"
    try:
        read_secrets(file)
    except (OSError, ValueError) as error:
        return f"'--webhook-secret-file={file}': {error}"
    return ""
