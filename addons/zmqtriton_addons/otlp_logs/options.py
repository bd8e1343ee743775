"""The option of pushed logs, over OpenTelemetry's own variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton_addons.otlp_metrics.options import complete_url, destination_problem

#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "otlp_logs"
_PATH = "/v1/logs"


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the option; "" without one."""
    return destination_problem(url(options), "logs")


def url(options: Mapping[str, Any]) -> str:
    """Return the URL of logs; the option may leave out the path."""
    return complete_url(options[SERVICE], _PATH)
