"""The access log on the page of metrics, whose process asks that of the log at each scrape."""

from __future__ import annotations

from zmqtriton_addons.access_log import QUESTION, SERVICE
from zmqtriton_addons.metrics.services import Figures, at_socket
from zmqtriton_frontends.gateway import Gateway


def metrics(gateway: Gateway) -> Figures:
    return at_socket(gateway, SERVICE, QUESTION)
