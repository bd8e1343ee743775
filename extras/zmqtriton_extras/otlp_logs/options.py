"""The server's log, pushed to an OpenTelemetry collector over OTLP/HTTP. Here is its option.

`process.py` follows the last lines that the supervisor keeps for `zmqtriton-ctl logs`. These are
also its queue: lines that are dropped before the collector has them are lost, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zmqtriton_extras.otlp_metrics.options import complete_url, destination_problem

if TYPE_CHECKING:
    from zmqtriton.sdk.frontend import Gateway
    from zmqtriton_standard.metrics.services import Figures

#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "otlp_logs"
_PATH = "/v1/logs"
#: The kind of what is sent, as paths and variables have it, and the option with its URL.
LOGS = "logs", "--otlp-logs"


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the option; "" without one."""
    return destination_problem(url(options), *LOGS)


def url(options: Mapping[str, Any]) -> str:
    """Return the URL for logs; the option may leave out the path."""
    return complete_url(options[SERVICE], _PATH)


def metrics(gateway: Gateway) -> Figures:
    """Return the function that asks the process for its figures, at each scrape of the page."""
    # here, since the supervisor and other processes only need the options
    from zmqtriton_standard.metrics.services import at_socket

    return at_socket(gateway, SERVICE)
