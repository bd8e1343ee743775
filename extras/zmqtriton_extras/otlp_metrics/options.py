"""The metrics of the server, pushed to an OpenTelemetry collector. Here are its options.

`conversion.py` reads the page of metrics and makes messages of it; `process.py` is the process that
posts them; `pusher.py` is shared with the process of logs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from zmqtriton.sdk.frontend import Gateway
    from zmqtriton_standard.metrics.services import Figures


#: The name of the service, of its socket in the runtime directory, and of the option.
SERVICE = "otlp_metrics"
INTERVAL = "otlp_metrics_interval_secs"
#: The kind of what is sent, as paths and variables have it, and the option with its URL.
METRICS = "metrics", "--otlp-metrics"
_PATH = "/v1/metrics"
#: OpenTelemetry's variable for the seconds between pushes; its value is in milliseconds.
_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_S = 60.0


def problem(options: Mapping[str, Any]) -> str:
    """Return the fault of the options; "" without one."""
    fault = destination_problem(complete_url(options[SERVICE]), *METRICS)
    if not fault:
        try:
            interval_s(options[INTERVAL], os.environ)
        except ValueError as error:
            return str(error)
    return fault


def destination_problem(url: str, kind: str, option: str) -> str:
    """Return the fault of the destination of metrics or logs; "" without one."""
    # only now, since it costs memory
    from zmqtriton.sdk.process import Destination

    try:
        Destination.read([("url", url)], os.environ, kind, option)
    except ValueError as error:
        return str(error)
    return ""


def complete_url(url: str, path: str = _PATH) -> str:
    """Return the URL, with `path` added if it has none."""
    url = url if "://" in url else f"http://{url}"
    try:
        has_path = urlsplit(url).path not in ("", "/")
    except ValueError:
        has_path = True  # it is refused as it is
    return url if has_path else url.rstrip("/") + path


def interval_s(option: int, environment: Mapping[str, str]) -> float:
    """Return the seconds between pushes. Raises ValueError for a wrong variable."""
    text = environment.get(_VARIABLE, "")
    if option or not text:
        return option or _DEFAULT_INTERVAL_S
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"{_VARIABLE} must be a number of milliseconds, not {text}")
    return int(text) / 1000


def metrics(gateway: Gateway) -> Figures:
    """Return the function that asks the process for its figures, at each scrape of the page."""
    # here, since the supervisor and other processes only need the options
    from zmqtriton_standard.metrics.services import at_socket

    return at_socket(gateway, SERVICE)
