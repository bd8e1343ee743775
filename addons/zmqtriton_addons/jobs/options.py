"""The check of the options of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton_addons.jobs.process.webhooks.receivers import Allowed
from zmqtriton_addons.jobs.process.webhooks.signatures import read_secrets


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the options; "" without one."""
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
