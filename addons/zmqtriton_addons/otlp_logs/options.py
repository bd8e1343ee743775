"""The option of pushed logs, over OpenTelemetry's own variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from zmqtriton_addons.otlp_metrics.options import complete_url

#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "otlp_logs"
_PATH = "/v1/logs"


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the option; "" without one."""
    # only now, since it costs memory
    from zmqtriton import otlp_destination

    try:
        otlp_destination.read([("url", url(options))], os.environ, otlp_destination.LOGS)
    except otlp_destination.DestinationError as error:
        return str(error)
    return ""


def url(options: Mapping[str, Any]) -> str:
    """Return the URL of logs; the option may leave out the path."""
    return complete_url(options[SERVICE], _PATH)
