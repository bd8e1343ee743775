"""The access log on the page of metrics, whose process asks that of the log at each scrape."""

from __future__ import annotations

from zmqtriton_frontends.gateway import Gateway
from zmqtriton_standard.access_log.options import QUESTION, SERVICE
from zmqtriton_standard.metrics.services import Figures, at_socket


def metrics(gateway: Gateway) -> Figures:
    return at_socket(gateway, SERVICE, QUESTION)
