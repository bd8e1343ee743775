"""The figures of the process that pushes metrics, which the page asks for at each scrape."""

from __future__ import annotations

from zmqtriton_addons.metrics.services import Figures, at_socket
from zmqtriton_addons.otlp_metrics.options import SERVICE
from zmqtriton_frontends.gateway import Gateway


def metrics(gateway: Gateway) -> Figures:
    return at_socket(gateway, SERVICE)
